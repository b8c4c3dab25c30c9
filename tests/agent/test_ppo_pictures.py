"""PPO on pictures: bytes from the slab to the network, and the fused path against the reference."""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from batch_forms import cast

from digideep.agent.crash import Origin
from digideep.agent.policy import Policy, build_policy
from digideep.agent.ppo.agent import PPOAgent
from digideep.agent.ppo.losses import LossOptions, derivatives
from digideep.agent.rollout.batches import RolloutBatch, make_rollout, minibatches
from digideep.agent.rollout.crash import batch_of, crash_batch
from digideep.agent.rollout.learner import fused_gradients, reference_gradients
from digideep.model.config import CNNConfig
from digideep.model.flat import FlatAdam, FlatParameters
from digideep.spec import ArraySpec, EnvSpec
from digideep.types import Chunk, ChunkMeta, Counters
from digideep.utility.node import node
from digideep.utility.statistics import Normalizer

MODEL = node(CNNConfig, channels=[4, 8], kernels=[4, 3], strides=[2, 1], hidden_sizes=[16])
SPEC = EnvSpec(
    "Pictures-v0",
    {"observation": ArraySpec("box", (2, 12, 10), "uint8", low=(0.0,), high=(255.0,))},
    {"": ArraySpec("discrete", (), "int64", n=(3,))},
)
OPTIONS = [
    LossOptions(clip, value_clip, 0.5, entropy)
    for clip, value_clip, entropy in itertools.product((0.2, 0.01), (None, 0.2), (0.0, 0.02))
]


def rollout(*, channels_last: bool = True, steps: int = 40, envs: int = 4) -> Any:
    rng = np.random.default_rng(5)
    slab = rng.integers(0, 256, (steps, envs, 2, 12, 10)).astype(np.uint8)

    def rows(scale: float) -> Any:
        return (scale * rng.standard_normal((steps, envs))).astype(np.float32).T

    return slab, make_rollout(
        observations={"observation": slab.swapaxes(0, 1)},
        actions={"": rng.integers(0, 3, (steps, envs)).T},
        log_probs=rows(0.1) - np.float32(np.log(3.0)),
        values=rows(1.0),
        advantages=rows(1.0),
        weights=(rng.random((envs, steps)) > 0.1).astype(np.float32),
        device=torch.device("cpu"),
        channels_last=channels_last,
    )


def batches() -> list[Any]:
    rng = np.random.default_rng(0)
    _, rows = rollout()
    return [batch for _ in range(2) for batch in minibatches(rows, rng, size=32, normalize=True)]


def train(
    policy: Policy, rows: list[RolloutBatch], gradients: Callable[[Policy, RolloutBatch], Any]
) -> list[torch.Tensor]:
    """An update for each minibatch, with clipping and Adam over flat parameters; returns the figures."""
    flat = FlatParameters(policy)
    adam = FlatAdam(flat, eps=1e-5)
    figures = []
    for batch in rows:
        flat.gradients.zero_()
        figures.append(torch.as_tensor(gradients(policy, batch)))
        flat.clip_gradients(0.5)
        adam.step(3e-3)
    return figures


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(("dtype", "rtol", "atol"), [(torch.float64, 1e-9, 1e-12), (torch.float32, 1e-5, 1e-6)])
def test_ten_fused_updates_end_where_the_reference_does(
    options: LossOptions, dtype: torch.dtype, rtol: float, atol: float, make_agent: Any
) -> None:
    agent: PPOAgent = make_agent(
        SPEC,
        model=MODEL,
        clip_param=options.clip_param,
        value_clip=options.value_clip,
        entropy_coef=options.entropy_coef,
    )
    policy = build_policy(MODEL, SPEC, seed=1, where="/agents/agent/model").to(dtype)
    reference, fused = copy.deepcopy(policy), copy.deepcopy(policy)
    rows = [cast(batch, dtype) for batch in batches()]

    derive = functools.partial(derivatives, options=options)
    expected = train(reference, rows, lambda p, batch: reference_gradients(p, batch, loss=agent.loss))
    found = train(fused, rows, lambda p, batch: fused_gradients(p, batch, derive=derive))

    assert len(rows) == 10
    for (name, one), other in zip(fused.named_parameters(), reference.named_parameters(), strict=True):
        assert torch.allclose(one, other[1], rtol=rtol, atol=atol), name
    assert all(not torch.equal(a, b) for a, b in zip(policy.parameters(), fused.parameters(), strict=True))
    torch.testing.assert_close(torch.stack(found), torch.stack(expected), rtol=1e-4, atol=1e-5)


def test_minibatches_of_pictures_stay_bytes_with_the_channels_of_a_pixel_side_by_side() -> None:
    _, turned = rollout()
    slab, plain = rollout(channels_last=False)

    pairs = zip(
        minibatches(turned, np.random.default_rng(0), size=32, normalize=False),
        minibatches(plain, np.random.default_rng(0), size=32, normalize=False),
        strict=True,
    )

    assert np.shares_memory(plain.observations["observation"].numpy(), slab)
    for one, other in pairs:
        pictures = one.observations["observation"]
        assert pictures.dtype == torch.uint8
        assert pictures.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(pictures, other.observations["observation"])
        assert torch.equal(one.log_probs, other.log_probs)


def test_the_minibatch_of_a_crash_holds_the_pictures_in_their_usual_order(make_agent: Any) -> None:
    agent = make_agent(SPEC, model=MODEL)
    batch = batches()[0]

    origin = Origin("agent", agent.config, SPEC, 0)
    kept = crash_batch(batch, torch.zeros(5), policy=agent.policy, origin=origin, names=agent.loss_names)

    stored = kept.arrays["/batch/observations/observation"]
    assert stored.flags.c_contiguous
    again = batch_of(kept.arrays, spec=SPEC, device=torch.device("cpu"))
    assert torch.equal(again.observations["observation"], batch.observations["observation"])


def test_an_agent_learns_what_to_do_when_it_is_dark(make_agent: Any) -> None:
    agent: PPOAgent = make_agent(SPEC, model=MODEL, lr=3e-3, minibatch_size=64, gamma=0.0)
    rng = np.random.default_rng(0)
    rows = (17, 8)
    slab = {f"/agents/agent/artifacts/{name}": np.zeros(rows, np.float32) for name in ("log_probs", "values")}
    slab |= {"/masks": np.ones(rows, np.float32), "/terminations": np.zeros(rows, np.float32)}

    def cycle() -> float:
        is_bright = rng.integers(0, 2, rows)
        pictures = np.broadcast_to((200 * is_bright).astype(np.uint8)[..., None, None, None], (*rows, 2, 12, 10)).copy()
        actor, actions = agent.actor(Normalizer()), np.zeros(rows, np.int64)
        for t in range(rows[0]):
            output = actor.act({"observation": pictures[t]})
            actions[t] = output.actions[""]
            for name, values in output.artifacts.items():
                slab[f"/agents/agent/artifacts/{name}"][t] = values
        slab["/rewards"] = (actions == is_bright).astype(np.float32)
        arrays = {**slab, "/observations/observation": pictures, "/agents/agent/actions": actions}
        agent._memory.store(Chunk({k: v.swapaxes(0, 1) for k, v in arrays.items()}, ChunkMeta(128, 128, 0, 0)))  # type: ignore[attr-defined]
        agent.update(Normalizer(), Counters(env_steps=128))
        return float(slab["/rewards"].mean())

    returns = [cycle() for _ in range(15)]

    assert (agent.network_class, agent.path.partition(":")[0]) == ("cnn", "fused")
    assert returns[0] < 0.6
    assert returns[-1] > 0.9
