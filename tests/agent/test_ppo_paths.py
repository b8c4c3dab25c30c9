"""The fused learner against autograd over the losses, and both against a plain torch loop."""

from __future__ import annotations

import copy
import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from batch_forms import cast, in_numpy, in_torch

from digideep.agent.policy import Policy, build_policy
from digideep.agent.ppo import losses
from digideep.agent.ppo.agent import PPOAgent
from digideep.agent.ppo.losses import Losses, LossOptions
from digideep.agent.rollout.batches import RolloutBatch, minibatches
from digideep.agent.rollout.learner import fused_gradients, packed_gradients, reference_gradients
from digideep.model.config import MLPConfig
from digideep.model.flat import FlatAdam, FlatParameters
from digideep.model.heads import Evaluation
from digideep.model.mlp import ActorCriticMLP
from digideep.model.packed import PackedMLP
from digideep.types import Counters
from digideep.utility.node import node
from digideep.utility.statistics import Normalizer

OPTIONS = [
    LossOptions(clip_param, value_clip, 0.5, entropy_coef)
    for clip_param, value_clip, entropy_coef in itertools.product((0.2, 0.01), (None, 0.2, 0.01), (0.0, 0.02))
]
HEADS = ["discrete", "multi_discrete", "multi_binary", "box", "dict"]


def loss_of(options: LossOptions) -> Callable[[RolloutBatch, Evaluation], Losses]:
    def loss(batch: RolloutBatch, evaluated: Evaluation) -> Losses:
        policy_loss = losses.clipped_surrogate(evaluated.log_prob, batch, clip_param=options.clip_param)
        value_loss = losses.clipped_value_loss(evaluated.values, batch, value_clip=options.value_clip)
        entropy = losses.entropy_bonus(evaluated.entropy, batch)
        return Losses(
            policy_loss + options.value_coef * value_loss - options.entropy_coef * entropy,
            policy_loss,
            value_loss,
            entropy,
            losses.approximate_kl(evaluated.log_prob, batch),
            losses.clip_fraction(evaluated.log_prob, batch, clip_param=options.clip_param),
        )

    return loss


def train(policy: Policy, batches: list[RolloutBatch], gradients: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
    """Ten updates with clipping and Adam over flat parameters."""
    flat = FlatParameters(policy)
    adam = FlatAdam(flat, eps=1e-5)
    figures = []
    for batch in batches:
        flat.gradients.zero_()
        figures.append(gradients(policy, batch))
        flat.clip_gradients(0.5)
        adam.step(3e-3)
    return figures


@pytest.fixture
def rollout(make_spec: Any, make_agent: Any, make_chunk: Any) -> Callable[[str], tuple[Any, list[RolloutBatch]]]:
    def make(head: str) -> tuple[Any, list[RolloutBatch]]:
        spec = make_spec(head)
        agent = make_agent(spec)
        rows = agent.prepare(make_chunk(agent, np.random.default_rng(3), n_steps=40), Normalizer())
        rng = np.random.default_rng(0)
        batches = [in_torch(b) for _ in range(2) for b in minibatches(rows, rng, size=32, normalize=True)]
        return spec, batches

    return make


def after_ten_updates(
    policy: Policy, batches: list[RolloutBatch], *, options: LossOptions, path: str
) -> tuple[Policy, torch.Tensor]:
    """Train a copy and return it with the figures of every update."""
    policy = copy.deepcopy(policy)
    network: list[PackedMLP] = []
    derive = functools.partial(losses.derivatives, options=options)

    def gradients(trained: Policy, batch: RolloutBatch) -> torch.Tensor:
        if path == "reference":
            return reference_gradients(trained, batch, loss=loss_of(options))
        if path == "fused":
            return torch.as_tensor(fused_gradients(trained, batch, derive=derive))
        if path == "fused in numpy":
            return torch.as_tensor(fused_gradients(trained, in_numpy(batch), derive=derive))
        if not network:
            assert isinstance(trained.network, ActorCriticMLP)
            network.append(PackedMLP(trained.network))
        return torch.as_tensor(packed_gradients(trained, in_numpy(batch), network=network[0], derive=derive))

    return policy, torch.stack(train(policy, batches, gradients))


def assert_paths_are_equal(policy: Policy, batches: list[RolloutBatch], options: LossOptions) -> torch.Tensor:
    assert len(batches) == 10
    for dtype, rtol, atol in ((torch.float64, 1e-9, 1e-13), (torch.float32, 1e-5, 1e-6)):
        typed = [cast(batch, dtype) for batch in batches]
        policy = policy.to(dtype)
        expected, figures = after_ten_updates(policy, typed, options=options, path="reference")
        for path in ("fused", "fused in numpy", "packed"):
            found, found_figures = after_ten_updates(policy, typed, options=options, path=path)

            for name, parameter in expected.named_parameters():
                torch.testing.assert_close(found.get_parameter(name).data, parameter.data, rtol=rtol, atol=atol)
            torch.testing.assert_close(found_figures, figures, rtol=10 * rtol, atol=10 * atol)
    return figures


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_path_equals_the_reference_after_ten_updates(head: str, options: LossOptions, rollout: Any) -> None:
    spec, batches = rollout(head)
    policy = build_policy(node(MLPConfig, hidden_sizes=[16, 16]), spec, seed=1, where="/model")

    figures = assert_paths_are_equal(policy, batches, options)

    clipped = figures[:, -1].max().item()
    assert options.clip_param > 0.1 or clipped > 0.1  # with a narrow bound the clipped branch is really taken


@pytest.mark.parametrize(
    "fields", [{"shared": True}, {"hidden_sizes": []}, {"activation": "relu", "hidden_sizes": [9]}]
)
def test_every_path_equals_the_reference_for_every_shape_of_network(fields: dict[str, Any], rollout: Any) -> None:
    spec, batches = rollout("box")
    policy = build_policy(node(MLPConfig, **{"hidden_sizes": [16, 8], **fields}), spec, seed=1, where="/model")

    assert_paths_are_equal(policy, batches, LossOptions(0.2, 0.2, 0.5, 0.01))


def test_flat_clipping_and_adam_equal_a_plain_torch_loop(rollout: Any) -> None:
    spec, batches = rollout("box")
    options = LossOptions(0.2, 0.2, 0.5, 0.01)
    policy = build_policy(node(MLPConfig, hidden_sizes=[8]), spec, seed=2, where="/model").double()
    plain = copy.deepcopy(policy)
    typed = [cast(batch, torch.float64) for batch in batches]
    optimiser = torch.optim.Adam(plain.parameters(), lr=3e-3, eps=1e-5, foreach=False)

    derive = functools.partial(losses.derivatives, options=options)
    train(policy, typed, lambda p, b: fused_gradients(p, b, derive=derive))
    for batch in typed:
        optimiser.zero_grad()
        loss_of(options)(batch, plain.evaluate(batch.observations, batch.actions)).total.backward()
        norm = torch.cat([p.grad.ravel() for p in plain.parameters() if p.grad is not None]).norm()
        for parameter in plain.parameters():
            assert parameter.grad is not None
            parameter.grad *= min(1.0, 0.5 / norm.item())
        optimiser.step()

    for name, parameter in plain.named_parameters():
        torch.testing.assert_close(policy.get_parameter(name).data, parameter.data, rtol=1e-8, atol=1e-11)


class Doubled(PPOAgent):
    def policy_loss(self, batch: RolloutBatch, evaluated: Evaluation) -> torch.Tensor:
        return 2.0 * super().policy_loss(batch, evaluated)


def test_an_overridden_loss_is_really_used_and_the_path_says_so(make_spec: Any, make_agent: Any) -> None:
    own, standard = make_agent(make_spec(), cls=Doubled), make_agent(make_spec())

    assert own.path == "reference: Doubled overrides policy_loss"
    assert standard.path == "packed: a standard network on the CPU, closed-form gradients in numpy"


def test_networks_that_numpy_cannot_do_learn_on_the_fused_path(make_spec: Any, make_agent: Any) -> None:
    agent = make_agent(make_spec(), model=node(MLPConfig, activation="gelu"))

    assert agent.path == "fused: closed-form gradient of the loss, autograd through the network only"


def test_an_overridden_loss_changes_the_gradient(make_spec: Any, make_agent: Any, make_chunk: Any) -> None:
    own, standard = (make_agent(make_spec(), cls=cls, value_coef=0.0, entropy_coef=0.0) for cls in (Doubled, PPOAgent))
    chunk = make_chunk(standard, np.random.default_rng(0))
    batches = [
        next(minibatches(agent.prepare(chunk, Normalizer()), np.random.default_rng(0), size=48, normalize=True))
        for agent in (standard, own)
    ]

    single, double = standard.gradients(batches[0]).flat, own.gradients(batches[1]).flat

    assert single.abs().max().item() > 1e-4
    torch.testing.assert_close(double, 2.0 * single, rtol=1e-4, atol=1e-7)


def test_a_loss_set_on_the_instance_before_it_learns_is_not_ignored(make_spec: Any, make_agent: Any) -> None:
    class Patched(PPOAgent):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self.value_loss = lambda batch, evaluated: evaluated.values.sum()  # type: ignore[method-assign]
            super().__init__(*args, **kwargs)

    assert make_agent(make_spec(), cls=Patched).path == "reference: Patched overrides value_loss"


class OnReference(PPOAgent):
    """The standard losses, on the path of those that are overridden."""

    def policy_loss(self, batch: RolloutBatch, evaluated: Evaluation) -> torch.Tensor:
        return super().policy_loss(batch, evaluated)


@pytest.mark.parametrize(
    "fields",
    [
        {"target_kl": 1e-3, "lr": 1e-3},
        {"lr": 1e-3, "lr_final": 1e-4, "lr_horizon": 400},
        {"clip_param": 0.3, "clip_param_final": 0.01, "clip_param_horizon": 300},
        {"normalize_advantage": False, "max_grad_norm": None, "minibatch_size": 7},
    ],
    ids=lambda fields: "-".join(fields),
)
@pytest.mark.parametrize("head", ["discrete", "box"])
def test_agents_of_every_path_are_equal_after_ten_updates(
    head: str, fields: dict[str, Any], make_spec: Any, make_agent: Any, make_chunk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents = [make_agent(make_spec(head), cls=cls, **fields) for cls in (PPOAgent, OnReference)]
    monkeypatch.setattr(PackedMLP, "can_pack", lambda network: False)
    agents.append(make_agent(make_spec(head), **fields))
    chunk = make_chunk(agents[0], np.random.default_rng(5))
    assert [agent.path.split(":")[0] for agent in agents] == ["packed", "reference", "fused"]

    steps = []
    for agent in agents:
        agent._memory.store(chunk)
        taken, apply = [], agent.apply
        monkeypatch.setattr(agent, "apply", lambda *a, taken=taken, apply=apply: taken.append(0) or apply(*a))
        for update in range(1, 11):
            agent.update(Normalizer(), Counters(env_steps=update * chunk.meta.env_steps))
        steps.append(len(taken))

    assert steps[0] == steps[1] == steps[2]
    full = 10 * agents[0].config.update_epochs * math.ceil(48 / agents[0].config.minibatch_size)
    assert (steps[0] < full) == ("target_kl" in fields)  # the KL has really ended an update, or nothing has
    for name, parameter in agents[1].policy.named_parameters():
        for other in (agents[0], agents[2]):
            torch.testing.assert_close(other.policy.get_parameter(name).data, parameter.data, rtol=1e-5, atol=1e-6)
