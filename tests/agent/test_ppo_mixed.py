"""PPO where a picture and a vector have to be looked at together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from digideep.agent.ppo.config import RecurrentPPOConfig
from digideep.agent.ppo.recurrent import RecurrentPPOAgent
from digideep.model.config import MixedConfig, RNNConfig
from digideep.spec import ArraySpec, EnvSpec
from digideep.types import Chunk, ChunkMeta, Counters
from digideep.utility.node import node
from digideep.utility.statistics import Normalizer

SPEC = EnvSpec(
    "Signs-v0",
    {
        "front": ArraySpec("box", (1, 12, 10), "uint8", low=(0.0,), high=(255.0,)),
        "speed": ArraySpec("box", (2,), "float32"),
    },
    {"": ArraySpec("discrete", (), "int64", n=(4,))},
)
NETWORK = {"channels": [4], "kernels": [4], "strides": [2], "picture_sizes": [8]}
STEPS, ENVS = 16, 8


def shares_of_right_answers(agent: Any, cycles: int) -> list[float]:
    """Act and learn where the right one of four actions follows from the picture and the vector; gamma is 0."""
    rng, rows = np.random.default_rng(0), (STEPS + 1, ENVS)
    found = []
    for _ in range(cycles):
        is_bright, is_fast = rng.integers(0, 2, rows), rng.integers(0, 2, rows)
        pictures = np.broadcast_to((200 * is_bright).astype(np.uint8)[..., None, None, None], (*rows, 1, 12, 10)).copy()
        speeds = np.stack([2.0 * is_fast - 1.0, rng.standard_normal(rows)], axis=-1).astype(np.float32)
        slab = {
            "/observations/front": pictures,
            "/observations/speed": speeds,
            "/masks": np.ones(rows, np.float32),
            "/terminations": np.zeros(rows, np.float32),
            "/agents/agent/actions": np.zeros(rows, np.int64),
            "/agents/agent/artifacts/log_probs": np.zeros(rows, np.float32),
            "/agents/agent/artifacts/values": np.zeros(rows, np.float32),
        }
        actor = agent.actor(Normalizer())
        state = actor.initial_state(ENVS)
        for key, value in (state or {}).items():
            slab[f"/agents/agent/hidden_state/{key}"] = np.zeros((STEPS + 1, *value.shape), np.float32)
        for t in range(STEPS):
            output = actor.act({"front": pictures[t], "speed": speeds[t]}, state, slab["/masks"][t])
            slab["/agents/agent/actions"][t] = output.actions[""]
            for name, numbers in output.artifacts.items():
                slab[f"/agents/agent/artifacts/{name}"][t] = numbers
            state = output.hidden_state
            for key, value in (state or {}).items():
                slab[f"/agents/agent/hidden_state/{key}"][t + 1] = value
        slab["/rewards"] = (slab["/agents/agent/actions"] == 2 * is_bright + is_fast).astype(np.float32)
        found.append(float(slab["/rewards"][:-1].mean()))
        frames = STEPS * ENVS
        agent._memory.store(
            Chunk({key: array.swapaxes(0, 1) for key, array in slab.items()}, ChunkMeta(frames, frames, 0, 0))
        )
        agent.update(Normalizer(), Counters(env_steps=frames))
    return found


@pytest.mark.parametrize("is_recurrent", [False, True], ids=["plain", "with memory"])
def test_the_action_is_found_that_only_both_together_tell(is_recurrent: bool, make_agent: Any) -> None:
    fields: dict[str, Any] = {"lr": 5e-3, "minibatch_size": 64, "gamma": 0.0}
    if is_recurrent:
        model = node(RNNConfig, hidden_sizes=[16], units=16, **NETWORK)
        agent = make_agent(
            SPEC, cls=RecurrentPPOAgent, config=RecurrentPPOConfig, model=model, sequence_length=8, **fields
        )
    else:
        agent = make_agent(SPEC, model=node(MixedConfig, hidden_sizes=[16], **NETWORK), **fields)

    found = shares_of_right_answers(agent, cycles=40)

    assert agent.path.startswith("fused")
    assert found[0] < 0.5
    assert np.mean(found[-3:]) > 0.9
