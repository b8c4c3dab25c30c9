"""Noise on actions: its distribution, its schedule, what resets it, and its state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from made_agents import SPEC, made

from digideep.agent.replay.exploration import Exploration
from digideep.agent.replay.noise import ActionNoise
from digideep.agent.td3.agent import TD3Agent
from digideep.errors import CheckpointError
from digideep.utility.statistics import Normalizer

SHAPE = (4, 2)


def drawn(noise: ActionNoise, steps: int, *, seed: int = 0, row: int = 0, masks: Any = None) -> Any:
    """Return noise `[steps, 4, 2]` of one generator."""
    rng = np.random.default_rng(seed)
    return np.stack([noise.draw(SHAPE, rng, row=row, masks=masks) for _ in range(steps)])


def test_normal_noise_is_new_at_each_step_and_has_its_deviation() -> None:
    found = drawn(ActionNoise("normal", scale=0.3), 5000)

    assert found.mean() == pytest.approx(0.0, abs=0.005)
    assert found.std() == pytest.approx(0.3, rel=0.02)
    before, after = found[:-1].ravel(), found[1:].ravel()
    assert np.corrcoef(before, after)[0, 1] == pytest.approx(0.0, abs=0.02)
    assert found.dtype == np.float32


def test_ornstein_uhlenbeck_noise_wanders_as_its_formula_says() -> None:
    noise = ActionNoise("ornstein_uhlenbeck", scale=0.2)

    found = drawn(noise, 5000)

    rng, x, expected = np.random.default_rng(0), np.zeros(SHAPE), []
    for _ in range(5000):
        x = x - 0.15 * x + 0.2 * rng.standard_normal(SHAPE, dtype=np.float32)
        expected.append(x)
    np.testing.assert_allclose(found, np.stack(expected), atol=1e-5)
    # An autoregression of 0.85: its deviation in the long run is scale / sqrt(1 - 0.85^2), 1.9 times the scale.
    assert found[100:].std() == pytest.approx(0.2 * 1.898, rel=0.03)
    before, after = found[100:-1].ravel(), found[101:].ravel()
    assert np.corrcoef(before, after)[0, 1] == pytest.approx(0.85, abs=0.02)


def test_wandering_noise_begins_at_nothing_where_an_episode_begins() -> None:
    noise = ActionNoise("ornstein_uhlenbeck", scale=1e-3)
    noise.load_state_dict({"wandering": np.full(SHAPE, 5.0, np.float32)}, where="noise")

    found = noise.draw(SHAPE, np.random.default_rng(0), row=0, masks=np.array([1, 0, 1, 0], np.float32))

    assert (found[[0, 2]] > 4.0).all() and (np.abs(found[[1, 3]]) < 0.1).all()


def test_wandering_noise_of_another_number_of_environments_begins_anew() -> None:
    noise = ActionNoise("ornstein_uhlenbeck", scale=1e-3)
    noise.load_state_dict({"wandering": np.full((2, 2), 5.0, np.float32)}, where="noise")

    assert (np.abs(noise.draw(SHAPE, np.random.default_rng(0), row=0, masks=None)) < 0.1).all()


@pytest.mark.parametrize("kind", ["normal", "ornstein_uhlenbeck"])
def test_the_deviation_falls_on_a_line_and_stays_at_its_end(kind: Any) -> None:
    noise = ActionNoise(kind, scale=0.5, final=0.1, horizon=100)

    assert [noise.scale(row) for row in (0, 50, 100, 1000)] == pytest.approx([0.5, 0.3, 0.1, 0.1])
    assert drawn(noise, 3000, row=1000)[:, :, 0].std() == pytest.approx(
        0.1 * (1.0 if kind == "normal" else 1.9), rel=0.1
    )
    assert ActionNoise(kind, scale=0.5).scale(10**9) == 0.5


@pytest.mark.parametrize("kind", ["normal", "ornstein_uhlenbeck"])
def test_a_loaded_noise_goes_on_as_the_saved_one(kind: Any) -> None:
    straight, resumed = ActionNoise(kind, scale=0.3), ActionNoise(kind, scale=0.3)
    rng, other = np.random.default_rng(1), np.random.default_rng(2)
    straight.draw(SHAPE, rng, row=0, masks=None)

    state = straight.state_dict()
    resumed.load_state_dict(state, where="noise")
    other.bit_generator.state = rng.bit_generator.state
    expected = [straight.draw(SHAPE, rng, row=n, masks=None) for n in range(3)]

    for number, array in enumerate(expected):
        np.testing.assert_array_equal(resumed.draw(SHAPE, other, row=number, masks=None), array)
    assert state["wandering"] is None or not np.shares_memory(state["wandering"], expected[0])


def exploration(**fields: Any) -> Exploration:
    noise = ActionNoise("normal", scale=0.4, final=0.0, horizon=8)
    return Exploration(**{"warm_up": 8, "rng": np.random.default_rng(0), "noise": noise, **fields})


def test_random_actions_of_the_warm_up_fill_the_whole_range_evenly() -> None:
    found = exploration().random_actions((20_000, 1)).ravel()

    assert found.min() >= -1.0 and found.max() <= 1.0
    counts, _ = np.histogram(found, bins=10, range=(-1.0, 1.0))
    assert np.abs(counts / 2000 - 1.0).max() < 0.1


def test_noisy_actions_stay_within_their_bounds_and_begin_with_the_warm_ups_end() -> None:
    explores = exploration()
    explores.count(8)

    first = explores.noisy(np.full(SHAPE, 0.9, np.float32), None)
    explores.count(8)
    last = explores.noisy(np.full(SHAPE, 0.9, np.float32), None)

    assert first.max() == 1.0 and len(np.unique(first)) > 3
    np.testing.assert_array_equal(last, np.full(SHAPE, 0.9, np.float32))  # the deviation has fallen to nothing
    assert explores.noise_scale == 0.0


def test_an_exploration_without_noise_leaves_actions_as_they_are() -> None:
    explores = exploration(noise=None)
    actions = np.full(SHAPE, 0.9, np.float32)

    assert explores.noisy(actions, None) is actions
    assert explores.noise_scale == 0.0
    assert not explores.remembers


def test_a_warm_up_that_is_over_is_not_repeated_after_a_resume() -> None:
    straight, resumed = exploration(), exploration(rng=np.random.default_rng(5))
    straight.count(5)
    resumed.load_state_dict(straight.state_dict(), where="exploration")

    for explores in (straight, resumed):
        assert not explores.is_warm
        explores.count(3)
        assert explores.is_warm
    np.testing.assert_array_equal(resumed.random_actions(SHAPE), straight.random_actions(SHAPE))
    again = exploration()
    again.load_state_dict(resumed.state_dict(), where="exploration")
    assert again.is_warm and again.rows == 8


@pytest.mark.parametrize(("saved", "loaded"), [("noise", None), (None, "noise")])
def test_a_state_with_noise_and_one_without_are_not_taken_for_each_other(saved: Any, loaded: Any) -> None:
    one, other = (exploration() if kind else exploration(noise=None) for kind in (saved, loaded))
    one.count(5)

    with pytest.raises(CheckpointError, match=r"agents\.a/exploration/noise: expected (no )?noise, found (no )?noise"):
        other.load_state_dict(one.state_dict(), where="agents.a/exploration")
    assert other.rows == 0


def test_a_state_of_noise_without_its_place_is_refused() -> None:
    state = exploration().state_dict() | {"noise": {}}

    with pytest.raises(CheckpointError, match="exploration/noise: expected the parts"):
        exploration().load_state_dict(state, where="exploration")


class Rising:
    """Noise of one's own: nothing, then 0.1 more at each step; written as docs/implement_a_method.md says."""

    remembers = False

    def __init__(self, rise: float) -> None:
        self.rise, self.steps = rise, 0

    def scale(self, row: int) -> float:
        return self.rise * row

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator, *, row: int, masks: Any) -> Any:
        self.steps += 1
        return np.full(shape, self.rise * (self.steps - 1), np.float32)

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps}

    def load_state_dict(self, state: Any, *, where: str) -> None:
        self.steps = state["steps"]


class RisingAgent(TD3Agent):
    """TD3 that explores so."""

    def make_noise(self, config: Any) -> Rising:
        return Rising(config.noise_scale)


def test_an_agents_own_noise_is_what_it_explores_with_and_part_of_its_state() -> None:
    agent, plain = made("td3", cls=RisingAgent, noise_scale=0.1), made("td3", noise_scale=0.1)
    seen = {slot: np.zeros((1, *spec.shape), np.float32) for slot, spec in SPEC.observations.items()}
    best = plain.actor(Normalizer()).act(seen, deterministic=True).actions[""]

    def explored(learner: Any, steps: int) -> list[float]:
        actor = learner.actor(Normalizer())
        return [float((actor.act(seen).actions[""] - best).mean()) for _ in range(steps)]

    assert explored(agent, 3) == pytest.approx([0.0, 0.1, 0.2], abs=1e-6)
    assert "noise_scale" in agent.figures() and agent.path == plain.path
    other = made("td3", cls=RisingAgent, noise_scale=0.1)
    other.load_state_dict(agent.state_dict())
    assert explored(other, 2) == pytest.approx([0.3, 0.4], abs=1e-6)
