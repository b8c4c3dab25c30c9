"""A2C's closed form against autograd over its losses, and A2C against the PPO that it is a case of."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from batch_forms import cast, in_numpy, in_torch

from digideep.agent.a2c import losses
from digideep.agent.a2c.agent import A2CAgent, whole_batch
from digideep.agent.a2c.config import A2CConfig
from digideep.agent.a2c.losses import Losses, LossOptions
from digideep.agent.policy import Policy, build_policy
from digideep.agent.rollout.batches import RolloutBatch
from digideep.agent.rollout.learner import fused_gradients, packed_gradients, reference_gradients
from digideep.model.config import MLPConfig
from digideep.model.flat import FlatAdam, FlatOptimiser, FlatParameters, FlatRMSprop
from digideep.model.heads import Evaluation
from digideep.model.packed import PackedMLP
from digideep.types import Counters
from digideep.utility.node import node
from digideep.utility.statistics import Normalizer


class Options(NamedTuple):
    value_coef: float
    entropy_coef: float
    normalize: bool
    gae_lambda: float
    optimizer: str


OPTIONS = [
    Options(0.5, 0.01, False, 1.0, "rmsprop"),
    Options(0.5, 0.0, False, 1.0, "rmsprop"),
    Options(1.0, 0.05, True, 1.0, "rmsprop"),
    Options(0.25, 0.01, False, 0.9, "adam"),
    Options(0.5, 0.0, True, 0.95, "adam"),
]
HEADS = ["discrete", "multi_discrete", "multi_binary", "box", "dict"]


def loss_of(options: Options) -> Callable[[RolloutBatch, Evaluation], Losses]:
    def loss(batch: RolloutBatch, evaluated: Evaluation) -> Losses:
        policy_loss = losses.policy_gradient_loss(evaluated.log_prob, batch)
        value_loss = losses.value_loss(evaluated.values, batch)
        entropy = losses.entropy_bonus(evaluated.entropy, batch)
        total = policy_loss + options.value_coef * value_loss - options.entropy_coef * entropy
        return Losses(total, policy_loss, value_loss, entropy)

    return loss


def optimiser_of(options: Options, flat: FlatParameters) -> FlatOptimiser:
    return FlatAdam(flat, eps=1e-5) if options.optimizer == "adam" else FlatRMSprop(flat, alpha=0.99, eps=1e-5)


def after_ten_updates(
    policy: Policy, batches: list[RolloutBatch], *, options: Options, path: str
) -> tuple[Policy, torch.Tensor]:
    """Train a copy and return it with the figures of every update."""
    policy = copy.deepcopy(policy)
    flat = FlatParameters(policy)
    optimiser = optimiser_of(options, flat)
    packed = PackedMLP(policy.network) if path == "packed" else None  # type: ignore[arg-type]
    derive = functools.partial(losses.derivatives, options=LossOptions(options.value_coef, options.entropy_coef))
    figures = []
    for batch in batches:
        flat.gradients.zero_()
        if packed is not None:
            found = packed_gradients(policy, in_numpy(batch), network=packed, derive=derive)
        elif path == "reference":
            found = reference_gradients(policy, batch, loss=loss_of(options))
        else:
            rows = in_numpy(batch) if path == "fused in numpy" else batch
            found = fused_gradients(policy, rows, derive=derive)
        figures.append(torch.as_tensor(found))
        flat.clip_gradients(0.5)
        optimiser.step(7e-4)
    return policy, torch.stack(figures)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_path_of_a2c_equals_its_reference_after_ten_updates(
    head: str, options: Options, make_spec: Any, make_agent: Any, make_chunk: Any
) -> None:
    spec = make_spec(head)
    agent = make_agent(spec, cls=A2CAgent, config=A2CConfig, gae_lambda=options.gae_lambda)
    chunks = [make_chunk(agent, np.random.default_rng(seed), n_steps=10) for seed in range(10)]
    rollouts = [agent.prepare(chunk, Normalizer()) for chunk in chunks]
    batches = [in_torch(whole_batch(rollout, normalize=options.normalize)) for rollout in rollouts]
    policy = build_policy(node(MLPConfig, hidden_sizes=[16, 16]), spec, seed=1, where="/model")

    assert all(0 < (batch.shares == 0.0).sum() < 40 for batch in batches)
    for dtype, rtol, atol in ((torch.float64, 1e-9, 1e-13), (torch.float32, 1e-5, 1e-6)):
        typed = [cast(batch, dtype) for batch in batches]
        policy = policy.to(dtype)
        expected, figures = after_ten_updates(policy, typed, options=options, path="reference")
        for path in ("fused", "fused in numpy", "packed"):
            found, found_figures = after_ten_updates(policy, typed, options=options, path=path)

            for name, parameter in expected.named_parameters():
                torch.testing.assert_close(found.get_parameter(name).data, parameter.data, rtol=rtol, atol=atol)
            torch.testing.assert_close(found_figures, figures, rtol=10 * rtol, atol=10 * atol)


class OnReference(A2CAgent):
    """The standard losses, on the path of those that are overridden."""

    def policy_loss(self, batch: RolloutBatch, evaluated: Evaluation) -> torch.Tensor:
        return super().policy_loss(batch, evaluated)


@pytest.mark.parametrize(
    "fields",
    [
        {"lr": 1e-3, "lr_final": 1e-4, "lr_horizon": 400},
        {"optimizer": "adam", "normalize_advantage": True, "max_grad_norm": None, "gae_lambda": 0.9},
    ],
    ids=lambda fields: "-".join(fields),
)
@pytest.mark.parametrize("head", ["discrete", "box"])
def test_a2c_agents_of_every_path_are_equal_after_ten_updates(
    head: str, fields: dict[str, Any], make_spec: Any, make_agent: Any, make_chunk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents = [make_agent(make_spec(head), cls=cls, config=A2CConfig, **fields) for cls in (A2CAgent, OnReference)]
    monkeypatch.setattr(PackedMLP, "can_pack", lambda network: False)
    agents.append(make_agent(make_spec(head), cls=A2CAgent, config=A2CConfig, **fields))
    chunks = [make_chunk(agents[0], np.random.default_rng(seed)) for seed in range(10)]
    assert [agent.path.split(":")[0] for agent in agents] == ["packed", "reference", "fused"]

    for agent in agents:
        for number, chunk in enumerate(chunks):
            agent._memory.store(chunk)
            agent.update(Normalizer(), Counters(env_steps=(number + 1) * chunk.meta.env_steps))

    for name, parameter in agents[1].policy.named_parameters():
        for other in (agents[0], agents[2]):
            torch.testing.assert_close(other.policy.get_parameter(name).data, parameter.data, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("head", ["discrete", "box"])
def test_a2c_is_ppo_with_one_epoch_of_one_minibatch(
    head: str, make_spec: Any, make_agent: Any, make_chunk: Any
) -> None:
    same = {"lr": 1e-3, "entropy_coef": 0.01, "gae_lambda": 0.95, "normalize_advantage": True}
    a2c = make_agent(make_spec(head), cls=A2CAgent, config=A2CConfig, optimizer="adam", optimizer_eps=1e-5, **same)
    ppo = make_agent(make_spec(head), update_epochs=1, minibatch_size=48, value_clip=None, adam_eps=1e-5, **same)
    before = a2c.publish()[1]

    for number in range(10):
        chunk = make_chunk(a2c, np.random.default_rng(number))
        for agent in (a2c, ppo):
            agent._memory.store(chunk)
            agent.update(Normalizer(), Counters(env_steps=(number + 1) * chunk.meta.env_steps))

    moved = a2c.publish()[1] - before
    torch.testing.assert_close(ppo.publish()[1] - before, moved, rtol=1e-2, atol=1e-5)
    assert moved.abs().mean().item() > 1e-3
    assert ppo.metrics["update/agent/clip_fraction"] == 0.0


class Doubled(A2CAgent):
    def policy_loss(self, batch: RolloutBatch, evaluated: Evaluation) -> torch.Tensor:
        return 2.0 * super().policy_loss(batch, evaluated)


def test_an_overridden_loss_of_a2c_is_really_used_and_the_path_says_so(
    make_spec: Any, make_agent: Any, make_chunk: Any
) -> None:
    fields: dict[str, Any] = {"config": A2CConfig, "value_coef": 0.0, "entropy_coef": 0.0}
    standard, own = (make_agent(make_spec(), cls=cls, **fields) for cls in (A2CAgent, Doubled))
    chunk = make_chunk(standard, np.random.default_rng(0))

    single, double = (
        agent.gradients(whole_batch(agent.prepare(chunk, Normalizer()), normalize=False)).flat
        for agent in (standard, own)
    )

    assert standard.path == "packed: a standard network on the CPU, closed-form gradients in numpy"
    assert own.path == "reference: Doubled overrides policy_loss"
    assert single.abs().max().item() > 1e-4
    torch.testing.assert_close(double, 2.0 * single, rtol=1e-4, atol=1e-7)
