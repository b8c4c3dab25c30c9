"""F5: no number of ours goes bad by itself, whatever the inputs: generated cases, each from a seed that is printed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch

from digideep.agent.ppo import losses
from digideep.agent.ppo.losses import LossOptions, derivatives
from digideep.agent.returns import explained_variance, gae
from digideep.agent.rollout.batches import RolloutBatch
from digideep.agent.sampling import normalized, shares
from digideep.agent.schedules import linear
from digideep.environment.config import StatisticsConfig
from digideep.model.distributions import distribution
from digideep.model.flat import FlatAdam, FlatParameters
from digideep.model.heads import Evaluation
from digideep.pipeline.state import mean_and_deviation
from digideep.spec import ArraySpec, EnvSpec
from digideep.types import Chunk, ChunkMeta, Episode
from digideep.utility.monitoring import Monitor
from digideep.utility.statistics import ArrayMoments, Statistics

Array: TypeAlias = np.ndarray[Any, Any]

CASES = 60
MAGNITUDES = (1e-30, 1e-8, 1.0, 1e8, 1e30)


def finite(*arrays: Any) -> bool:
    return all(bool(np.isfinite(np.asarray(array)).all()) for array in arrays)


def cases(number: int = CASES) -> Iterator[np.random.Generator]:
    """Yield a generator a case; the last seed that is printed is that of the case that fails."""
    for seed in range(number):
        print("seed", seed)
        yield np.random.default_rng(seed)


def numbers(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return equal, almost equal, sparse or plain random numbers of some magnitude, in one of the dtypes of rewards."""
    size = float(rng.choice(MAGNITUDES))
    kind = rng.integers(4)
    if kind == 0:
        found = np.full(shape, rng.standard_normal())
    elif kind == 1:
        found = 1.0 + 1e-7 * rng.integers(0, 2, shape)
    elif kind == 2:
        found = rng.standard_normal(shape) * (rng.random(shape) < 0.1)
    else:
        found = rng.standard_normal(shape)
    return (size * found).astype(rng.choice(["float32", "float64"]))


def masks(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return masks with episodes of any length: no boundary, episodes of length 1, or nothing that is real."""
    share = float(rng.choice([0.0, 0.2, 0.5, 1.0]))
    return (rng.random(shape) >= share).astype(np.float32)


def sizes(rng: np.random.Generator) -> tuple[int, int]:
    return int(rng.choice([1, 2, 5])), int(rng.choice([1, 2, 17]))


def test_F5_advantages_and_returns_are_finite() -> None:
    for rng in cases():
        num_envs, steps = sizes(rng)
        rewards, values = numbers(rng, (num_envs, steps)), numbers(rng, (num_envs, steps + 1))
        terminations = (rng.random((num_envs, steps)) < 0.3).astype(np.float32)
        discount, gae_lambda = rng.choice([0.0, 0.99, 1.0], 2)

        advantages = gae(
            rewards,
            values,
            terminations=terminations,
            masks=masks(rng, (num_envs, steps + 1)),
            discount=float(discount),
            gae_lambda=float(gae_lambda),
        )

        assert finite(advantages)


def test_F5_normalised_advantages_are_finite_and_of_size_one() -> None:
    for rng in cases():
        rows = int(rng.choice([1, 2, 3, 64]))
        values, share = numbers(rng, (rows,)), shares(masks(rng, (rows,)))

        found = normalized(values, share)

        assert finite(found, share)
        assert np.dot(found * found, share) <= 1.0 + 1e-9
        assert abs(np.dot(found, share)) <= 1e-6
        assert not found[share == 0.0].any()


@pytest.mark.parametrize(("value", "rows"), list(itertools.product([0.1, -7.3, 1e9 + 0.3, 1e30], [1, 3, 10, 1000])))
def test_F5_equal_advantages_become_zero_whatever_their_size(value: float, rows: int) -> None:
    assert not normalized(np.full(rows, value), np.full(rows, 1.0 / rows)).any()


def test_F5_explained_variance_is_finite() -> None:
    for rng in cases():
        rows = int(rng.choice([1, 2, 64]))

        found = explained_variance(numbers(rng, (rows,)), numbers(rng, (rows,)), masks(rng, (rows,)))

        assert finite(found)


def chunks(rng: np.random.Generator, dtype: str, num_envs: int, steps: int) -> Iterator[Chunk]:
    size = float(rng.choice(MAGNITUDES))
    for _ in range(3):
        rows = (num_envs, steps + 1)
        kind = rng.integers(3)
        seen = rng.standard_normal((*rows, 3)) if kind else np.full((*rows, 3), 0.1)
        scaled = (size * seen).astype(dtype) if dtype != "int64" else rng.integers(-(2**40), 2**40, (*rows, 3))
        yield Chunk(
            {
                "/observations/observation": scaled,
                "/rewards": numbers(rng, rows) if kind else np.ones(rows, np.float32),
                "/masks": masks(rng, rows),
            },
            ChunkMeta(0, 0, 0, 0),
        )


def test_F5_running_statistics_and_what_they_normalise_are_finite() -> None:
    for rng in cases():
        num_envs, steps = sizes(rng)
        dtype = str(rng.choice(["float32", "float64", "int64"]))
        spec = EnvSpec("Made-v0", {"observation": ArraySpec("box", (3,), dtype)}, {})
        statistics = Statistics(StatisticsConfig(observations=True, rewards=True), spec=spec, num_envs=num_envs)

        for chunk in chunks(rng, dtype, num_envs, steps):
            statistics.merge(chunk)
            normalizer = statistics.snapshot()
            seen = normalizer.observations({"observation": chunk.arrays["/observations/observation"]})["observation"]

            assert finite(seen, normalizer.rewards(chunk.arrays["/rewards"]))
            saved = statistics.state_dict()
            for moments in (saved["observations"]["observation"], saved["returns"]):
                assert finite(moments["mean"], moments["m2"])
                assert (np.asarray(moments["m2"]) >= 0.0).all()


@pytest.mark.parametrize(("value", "rows"), list(itertools.product([0.1, 1e9 + 0.3, 1e30, -1e-30], [1, 3, 7, 1000])))
def test_F5_an_observation_that_never_changes_has_no_variance(value: float, rows: int) -> None:
    moments = ArrayMoments(0, np.zeros(1), np.zeros(1))

    for _ in range(3):
        moments = moments.merged(np.full((rows, 1), value))

    assert moments.variance.tolist() == [0.0]
    assert moments.mean.tolist() == [value]


SPECS = {
    "discrete": ArraySpec("discrete", (), "int64", n=(5,)),
    "multi_discrete": ArraySpec("multi_discrete", (2,), "int64", n=(3, 2)),
    "multi_binary": ArraySpec("multi_binary", (3,), "int8"),
    "box": ArraySpec("box", (3,), "float32", low=(-1.0,), high=(1.0,)),
}


@pytest.mark.parametrize("kind", SPECS)
def test_F5_log_probabilities_entropies_and_their_gradients_are_finite(kind: str) -> None:
    for rng in cases():
        made = distribution(SPECS[kind])
        rows = int(rng.choice([1, 9]))
        outputs = (float(rng.choice([0.0, 1.0, 1e3, 1e30])) * rng.standard_normal((rows, made.outputs))).astype(
            np.float32
        )
        log_std = np.full(made.log_stds, rng.choice([-20.0, 0.0, 20.0]), np.float32) if made.log_stds else None

        drawn = made.draw(outputs, log_std, made.noise(rng, rows))
        tensor = torch.from_numpy(outputs).requires_grad_()
        scale = None if log_std is None else torch.from_numpy(log_std)
        actions = torch.from_numpy(drawn.actions)
        in_torch, in_numpy = (
            made.terms(tensor.detach().T, scale, actions),
            made.terms(outputs.T, log_std, drawn.actions),
        )
        (made.log_prob(tensor, scale, actions) + made.entropy(tensor, scale)).sum().backward()  # type: ignore[no-untyped-call]
        ones = np.ones(rows, np.float32)
        gradients = in_torch.gradient(torch.from_numpy(ones), torch.from_numpy(ones)), in_numpy.gradient(ones, ones)

        assert finite(drawn.actions, drawn.log_probs, tensor.grad)
        for terms, gradient in zip((in_torch, in_numpy), gradients, strict=True):
            assert finite(terms.log_prob, terms.entropy, gradient.outputs)


def a_batch(rng: np.random.Generator, rows: int) -> tuple[Evaluation, RolloutBatch]:
    def tensor(array: Array) -> torch.Tensor:
        return torch.from_numpy(np.asarray(array, np.float32))

    apart = float(rng.choice([0.0, 1.0, 100.0, 1e5]))
    log_probs = rng.standard_normal(rows)
    share = shares(masks(rng, (rows,)))
    values = rng.standard_normal(rows) * rng.choice([1e-30, 1.0, 1e15])
    advantages = tensor(normalized(rng.standard_normal(rows), share))
    returns = tensor(rng.standard_normal(rows))
    batch = RolloutBatch({}, {}, tensor(log_probs), tensor(values), advantages, returns, tensor(share))
    now = tensor(log_probs + apart * rng.standard_normal(rows)).requires_grad_()
    return Evaluation(now, tensor(rng.random(rows)), tensor(values + rng.standard_normal(rows)).requires_grad_()), batch


def test_F5_losses_and_their_gradients_are_finite_and_equal_on_every_path() -> None:
    for rng in cases():
        now, batch = a_batch(rng, int(rng.choice([1, 2, 32])))
        options = LossOptions(0.2, float(rng.choice([0.2, 10.0])), 0.5, 0.01)

        figures = [
            losses.clipped_surrogate(now.log_prob, batch, clip_param=options.clip_param),
            losses.clipped_value_loss(now.values, batch, value_clip=options.value_clip),
            losses.entropy_bonus(now.entropy, batch),
            losses.approximate_kl(now.log_prob, batch),
            losses.clip_fraction(now.log_prob, batch, clip_param=options.clip_param),
        ]
        (figures[0] + options.value_coef * figures[1]).backward()  # type: ignore[no-untyped-call]
        in_numpy = batch._replace(**{name: getattr(batch, name).numpy() for name in RolloutBatch._fields[2:7]})
        with torch.no_grad():
            both = (
                derivatives(now, batch, options),
                derivatives(Evaluation(*(part.detach().numpy() for part in now)), in_numpy, options),
            )

        assert float(figures[3].detach()) >= -1e-5
        for by in both:
            assert finite(*(figure.detach() for figure in figures), *by)
            np.testing.assert_allclose(torch.stack(figures).detach(), by.figures, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(now.log_prob.grad, by.by_log_prob, rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(now.values.grad, by.by_value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("size", [0.0, 1e-38, 1e-20, 1.0, 1e20, 1e30])
def test_F5_the_norm_of_a_gradient_and_the_step_that_follows_are_finite(size: float) -> None:
    module = torch.nn.Linear(40, 3)
    flat = FlatParameters(module)
    adam = FlatAdam(flat, eps=1e-5)
    flat.gradients.fill_(size)

    norm = flat.clip_gradients(0.5)
    adam.step(1e-3)

    assert norm == pytest.approx(size * math.sqrt(123), rel=1e-5, abs=1e-30)
    assert finite(flat.values, *adam.state().exp_avg.values(), *adam.state().exp_avg_sq.values())
    assert math.sqrt(float(flat.gradients.double().square().sum())) <= 0.5 * (1 + 1e-5)


@pytest.mark.parametrize("final", [None, 0.0, 1e-30, 1e30])
def test_F5_schedules_are_finite_and_end_where_they_should(final: float | None) -> None:
    for initial, horizon, frame in itertools.product((0.0, 1e-30, 1e30), (1, 10**15), (0, 1, 10**15, 2**63)):
        found = linear(initial, final, horizon=horizon, frame=frame)

        assert finite(found)
        assert frame < horizon or found == (initial if final is None else final)


def test_F5_statistics_windows_are_finite() -> None:
    for rng in cases():
        monitor = Monitor()
        for _ in range(4):
            for value in numbers(rng, (int(rng.choice([1, 2, 30])),)):
                monitor.monitor("one by one", float(value), 3)
            monitor.extend("together", numbers(rng, (int(rng.choice([1, 30])),)), 2)

            for entry in monitor.dump()["data"].values():
                assert finite(*entry.values())
                assert entry["min"] <= entry["mean"] * (1 + 1e-12) + 1e-300 or entry["mean"] < 0
                assert entry["std"] >= 0.0


@pytest.mark.parametrize("returns", [[1e30], [0.1] * 3, [1e150, -1e150], [1e-320, 0.0]])
def test_F5_mean_and_deviation_of_returns_are_finite(returns: list[float]) -> None:
    assert finite(*mean_and_deviation([Episode(0, 0, return_, 1, None, {}) for return_ in returns]))
