from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from digideep.errors import SpaceError
from digideep.model.distributions import Bernoulli, Categorical, Distribution, MultiCategorical, Normal
from digideep.model.heads import ActionHeads
from digideep.spec import ArraySpec

KINDS: dict[str, Distribution] = {
    "categorical": Categorical(4),
    "multi-categorical": MultiCategorical((3, 2, 4)),
    "bernoulli": Bernoulli(3),
    "normal": Normal(2),
}


def made(kind: str, rows: int = 6, seed: int = 0):  # type: ignore[no-untyped-def]
    rng, dist = np.random.default_rng(seed), KINDS[kind]
    outputs = rng.standard_normal((rows, dist.outputs)) * 1.5
    log_std = rng.standard_normal(dist.log_stds) * 0.4 if dist.log_stds else None
    actions = dist.draw(outputs, log_std, dist.noise(rng, rows)).actions
    return dist, outputs, log_std, actions


def tensors(outputs, log_std, actions, *, grad: bool = False):  # type: ignore[no-untyped-def]
    scale = None if log_std is None else torch.tensor(log_std, requires_grad=grad)
    return torch.tensor(outputs, requires_grad=grad), scale, torch.tensor(actions)


@pytest.mark.parametrize("kind", KINDS)
def test_numpy_and_torch_agree_on_log_probabilities(kind: str) -> None:
    dist, outputs, log_std, actions = made(kind)

    in_numpy = dist.log_probs(outputs, log_std, actions)
    in_torch = dist.log_prob(*tensors(outputs, log_std, actions))

    np.testing.assert_allclose(in_numpy, in_torch.numpy(), rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_draw_comes_with_the_log_probability_of_its_actions(kind: str) -> None:
    dist, outputs, log_std, _ = made(kind)
    noise = dist.noise(np.random.default_rng(3), len(outputs))

    for drawn in (dist.draw(outputs, log_std, noise), dist.draw(outputs, log_std, None)):
        np.testing.assert_allclose(drawn.log_probs, dist.log_probs(outputs, log_std, drawn.actions), rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_closed_form_terms_equal_autograd(kind: str) -> None:
    dist, outputs, log_std, actions = made(kind)
    rng = np.random.default_rng(9)
    by_log_prob, by_entropy = (torch.tensor(rng.standard_normal(len(outputs))) for _ in range(2))
    with_grad, scale, taken = tensors(outputs, log_std, actions, grad=True)
    log_prob, entropy = dist.log_prob(with_grad, scale, taken), dist.entropy(with_grad, scale)
    ((log_prob * by_log_prob).sum() + (entropy * by_entropy).sum()).backward()  # type: ignore[no-untyped-call]

    in_torch = dist.terms(torch.tensor(outputs).T, None if log_std is None else torch.tensor(log_std), taken)
    in_numpy = dist.terms(outputs.T, log_std, actions)
    gradients = in_torch.gradient(by_log_prob, by_entropy), in_numpy.gradient(by_log_prob.numpy(), by_entropy.numpy())

    expected = torch.zeros_like(with_grad) if with_grad.grad is None else with_grad.grad
    for terms, gradient in zip((in_torch, in_numpy), gradients, strict=True):
        np.testing.assert_allclose(terms.log_prob, log_prob.detach(), rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(terms.entropy, entropy.detach(), rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(gradient.outputs, expected.T, rtol=1e-11, atol=1e-13)
        if scale is not None:
            assert gradient.log_std is not None and scale.grad is not None
            np.testing.assert_allclose(gradient.log_std, scale.grad, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32"])
@pytest.mark.parametrize("kind", ["categorical", "multi-categorical", "bernoulli"])
def test_actions_may_be_integers_of_any_size(kind: str, dtype: str) -> None:
    dist, outputs, _, actions = made(kind)
    small, in_torch = actions.astype(dtype), torch.tensor(outputs)
    expected = dist.log_probs(outputs, None, actions)
    ones = np.ones(len(outputs))

    np.testing.assert_array_equal(dist.log_probs(outputs, None, small), expected)
    np.testing.assert_allclose(dist.log_prob(in_torch, None, torch.tensor(small)), expected, rtol=1e-12)
    gradients = []
    for xp_outputs, taken, weights in ((outputs, small, ones), (in_torch, torch.tensor(small), torch.tensor(ones))):
        terms = dist.terms(xp_outputs.T, None, taken)
        np.testing.assert_allclose(terms.log_prob, expected, rtol=1e-12)
        gradients.append(terms.gradient(weights, 0.0 * weights).outputs)
    np.testing.assert_allclose(gradients[0], gradients[1], rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("kind", ["categorical", "multi-categorical", "bernoulli"])
def test_probabilities_of_all_actions_sum_to_one_and_give_the_entropy(kind: str) -> None:
    dist, outputs, _, _ = made(kind, rows=1)
    choices = {"categorical": [4], "multi-categorical": [3, 2, 4], "bernoulli": [2, 2, 2]}[kind]
    every = np.array(list(itertools.product(*map(range, choices))))
    actions = every[:, 0] if kind == "categorical" else every

    log_probs = dist.log_probs(np.repeat(outputs, len(every), axis=0), None, actions)

    assert np.exp(log_probs).sum() == pytest.approx(1.0, rel=1e-12)
    entropy = dist.entropy(torch.tensor(outputs), None)
    assert entropy.item() == pytest.approx(-(np.exp(log_probs) * log_probs).sum(), rel=1e-12)


def test_normal_log_density_and_entropy_follow_the_formula() -> None:
    dist = Normal(1)

    log_prob = dist.log_probs(np.array([[1.0]]), np.array([math.log(2.0)]), np.array([[4.0]]))
    entropy = dist.entropy(torch.zeros(1, 1), torch.tensor([math.log(2.0)]))

    assert log_prob[0] == pytest.approx(-(1.5**2) / 2 - math.log(2.0 * math.sqrt(2.0 * math.pi)))
    assert entropy.item() == pytest.approx(0.5 * math.log(2.0 * math.pi * math.e * 4.0))


@pytest.mark.parametrize("kind", KINDS)
def test_frequencies_of_draws_follow_the_distribution(kind: str) -> None:
    dist, outputs, log_std, _ = made(kind, rows=1, seed=4)
    rows = 20000
    many = np.repeat(outputs, rows, axis=0)

    actions = dist.draw(many, log_std, dist.noise(np.random.default_rng(1), rows)).actions

    if kind == "normal":
        np.testing.assert_allclose(actions.mean(axis=0), outputs[0], atol=0.05)
        np.testing.assert_allclose(actions.std(axis=0), np.exp(log_std), rtol=0.03)
        return
    found, counts = np.unique(actions, axis=0, return_counts=True)
    probabilities = np.exp(dist.log_probs(np.repeat(outputs, len(found), axis=0), None, found))
    np.testing.assert_allclose(counts / rows, probabilities, atol=0.015)


def test_noise_picks_the_action_whose_interval_it_falls_into() -> None:
    logits = np.log(np.array([[0.2, 0.5, 0.3]] * 5))
    noise = np.array([[0.0], [0.19], [0.21], [0.69], [0.999999]])

    drawn = Categorical(3).draw(logits, None, noise)

    assert drawn.actions.tolist() == [0, 0, 1, 1, 2]


def test_an_action_of_probability_zero_is_never_drawn() -> None:
    logits = np.array([[0.0, -np.inf, 0.0]] * 1000, dtype=np.float32)

    drawn = Categorical(3).draw(logits, None, np.random.default_rng(0).random((1000, 1)))

    assert set(drawn.actions.tolist()) == {0, 2}


@pytest.mark.parametrize("kind", KINDS)
def test_modes_are_the_most_likely_actions(kind: str) -> None:
    dist, outputs, log_std, _ = made(kind)
    rng = np.random.default_rng(2)

    best = dist.draw(outputs, log_std, None).log_probs

    for _ in range(50):
        assert (dist.draw(outputs, log_std, dist.noise(rng, len(outputs))).log_probs <= best + 1e-12).all()


@pytest.mark.parametrize("kind", ["categorical", "multi-categorical", "bernoulli"])
def test_extreme_logits_stay_finite(kind: str) -> None:
    dist = KINDS[kind]
    outputs = np.full((2, dist.outputs), -1e4, dtype=np.float32)
    outputs[:, 0] = 1e4

    drawn = dist.draw(outputs, None, dist.noise(np.random.default_rng(0), 2))
    terms = dist.terms(torch.tensor(outputs).T, None, torch.tensor(drawn.actions))
    gradient = terms.gradient(torch.ones(2), torch.ones(2)).outputs

    assert np.isfinite(drawn.log_probs).all()
    assert torch.isfinite(terms.entropy).all() and torch.isfinite(gradient).all()


MIXED = {
    "arm": ArraySpec("box", (2, 1), "float32", low=(-1.0,), high=(1.0,)),
    "gear": ArraySpec("discrete", (), "int64", n=(3,)),
    "pedal": ArraySpec("box", (), "float32"),
    "lamps": ArraySpec("multi_binary", (2,), "int8"),
}


def test_joint_log_probability_of_slots_is_the_sum_and_actions_have_their_slots_shapes() -> None:
    heads, rng = ActionHeads(MIXED), np.random.default_rng(0)
    outputs, log_std = rng.standard_normal((5, heads.outputs)), rng.standard_normal(heads.log_stds)

    drawn = heads.draw(outputs, log_std, heads.noise(rng, 5))

    shapes = {slot: (array.shape, str(array.dtype)) for slot, array in drawn.actions.items()}
    assert shapes == {
        "arm": ((5, 2, 1), "float32"),
        "gear": ((5,), "int64"),
        "pedal": ((5,), "float32"),
        "lamps": ((5, 2), "int8"),
    }
    arm = Normal(2).log_probs(outputs[:, :2], log_std[:2], drawn.actions["arm"].reshape(5, 2))
    gear = Categorical(3).log_probs(outputs[:, 2:5], None, drawn.actions["gear"])
    pedal = Normal(1).log_probs(outputs[:, 5:6], log_std[2:], drawn.actions["pedal"].reshape(5, 1))
    lamps = Bernoulli(2).log_probs(outputs[:, 6:], None, drawn.actions["lamps"])
    np.testing.assert_allclose(drawn.log_probs, arm + gear + pedal + lamps, rtol=1e-5)


def test_one_generator_an_environment_gives_rows_that_do_not_depend_on_the_others() -> None:
    heads = ActionHeads(MIXED)

    together = heads.noise([np.random.default_rng(seed) for seed in (1, 2, 3)], 3)
    alone = heads.noise([np.random.default_rng(2)], 1)

    for all_rows, row in zip(together, alone, strict=True):
        np.testing.assert_array_equal(all_rows[1:2], row)


@pytest.mark.parametrize(
    ("slot", "spec", "message"),
    [
        ("", ArraySpec("box", (3,), "int32"), r"action space: expected a box of floats, found Box\(3,\) of int32"),
        ("arm", ArraySpec("box", (0,), "float32"), "slot 'arm': expected at least one element"),
        ("arm", ArraySpec("multi_discrete", (2,), "int64", n=(3, 0)), "slot 'arm': expected at least one element"),
    ],
)
def test_spaces_without_a_distribution_are_refused_by_name(slot: str, spec: ArraySpec, message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        ActionHeads({slot: spec})
