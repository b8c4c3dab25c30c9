"""B8: single operations of digideep, in microseconds, as one line of JSON by name of the operation.

    python -m benchmarks.micro

Names with ` / ` in them are what the operation before it is compared with in the same process: the reference path of
the learner, or another way to do the same. The driver compares the others with `peers/sb3_micro.py`.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.params_ppo import LayerNormConfig, cpanel_of
from benchmarks.settings import PPO_SETTINGS
from benchmarks.timing import best_us
from digideep.agent.ppo.agent import PPOAgent
from digideep.agent.ppo.config import PPOConfig
from digideep.agent.ppo.losses import Losses
from digideep.agent.returns import gae
from digideep.agent.rollout.batches import RolloutBatch
from digideep.memory.config import RollBufferConfig
from digideep.memory.rollbuffer import RollBuffer
from digideep.model.config import MLPConfig
from digideep.model.heads import Evaluation
from digideep.pipeline.checkpoint import CheckpointStore
from digideep.pipeline.layout import SessionPaths
from digideep.pipeline.logs import SessionLogs
from digideep.pipeline.saving import Origin, Saver
from digideep.pipeline.summary import Summary
from digideep.post.load import load
from digideep.spec import ArraySpec, EnvSpec
from digideep.types import Chunk, ChunkMeta, Counters, Node
from digideep.utility.node import node
from digideep.utility.profiling import timer_block
from digideep.utility.statistics import Normalizer

_SETTING = PPO_SETTINGS["B1"]
_SPEC = EnvSpec(
    _SETTING.env,
    {"observation": ArraySpec("box", (4,), "float32", low=(-10.0,), high=(10.0,))},
    {"": ArraySpec("discrete", (), "int64", n=(2,))},
)


class Reference(PPOAgent):
    """PPO on the reference path: autograd through the losses as they are written."""

    def loss(self, batch: RolloutBatch, evaluated: Evaluation) -> Losses:
        """Return the same loss; overriding it is what chooses the path."""
        return super().loss(batch, evaluated)


def main() -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    found: dict[str, float] = {}
    rng = np.random.default_rng(0)
    agent = _make(PPOAgent).agent
    chunk = _chunk(agent, rng)
    found["act for 8 environments"] = _act(agent, rng)
    for size in (256, 64):
        found[f"gradient step, {size} rows"] = _step(_make(PPOAgent, minibatch_size=size), chunk)
        reference = _make(Reference, minibatch_size=size)
        found[f"gradient step, {size} rows / its reference path"] = _step(reference, chunk)
    own = node(LayerNormConfig)
    found["gradient step of the user's own network, 256 rows"] = _step(_make(PPOAgent, model=own), chunk)
    found["gradient step of the user's own network, 256 rows / its reference path"] = _step(
        _make(Reference, model=own), chunk
    )
    found["advantages of 8 x 128"] = _advantages(chunk)
    found.update(_blocks())
    with tempfile.TemporaryDirectory(prefix="digideep-bench-") as directory:
        found.update(_files(agent, Path(directory)))
    print(json.dumps(found))


class _Made(NamedTuple):
    """An agent and the memory that it learns from."""

    agent: PPOAgent
    memory: RollBuffer


def _make(cls: type[PPOAgent], *, model: Node | None = None, minibatch_size: int = 256) -> _Made:
    config = PPOConfig(
        model=dict(model or node(MLPConfig, hidden_sizes=list(_SETTING.hidden_sizes))),
        lr=1e-12,  # the weights stay, so that every call does the same
        minibatch_size=minibatch_size,
        update_epochs=_SETTING.update_epochs,
        value_clip=_SETTING.value_clip,
        entropy_coef=_SETTING.entropy_coef,
    )
    memory = RollBuffer(RollBufferConfig(), name="train")
    agent = cls(
        config, name="agent", spec=_SPEC, memory=memory, device="cpu", seed=1, monitor=lambda name, value: None,
        allowed=("digideep", "benchmarks"),
    )  # fmt: skip
    return _Made(agent, memory)


def _observations(rng: np.random.Generator, *shape: int) -> np.ndarray[Any, Any]:
    return rng.standard_normal((*shape, 4)).astype(np.float32)


def _chunk(agent: PPOAgent, rng: np.random.Generator) -> Chunk:
    rows = (_SETTING.n_steps + 1, _SETTING.num_envs)
    slab = {
        "/masks": np.ones(rows, np.float32),
        "/rewards": np.ones(rows, np.float32),
        "/terminations": (rng.random(rows) < 0.02).astype(np.float32),
        "/observations/observation": _observations(rng, *rows),
        "/agents/agent/actions": np.zeros(rows, np.int64),
        "/agents/agent/artifacts/log_probs": np.zeros(rows, np.float32),
        "/agents/agent/artifacts/values": np.zeros(rows, np.float32),
    }
    actor = agent.actor(Normalizer())
    for t in range(_SETTING.n_steps):
        output = actor.act({"observation": slab["/observations/observation"][t]})
        slab["/agents/agent/actions"][t] = output.actions[""]
        for artifact in ("log_probs", "values"):
            slab[f"/agents/agent/artifacts/{artifact}"][t] = output.artifacts[artifact]
    frames = _SETTING.rows
    return Chunk({key: value.swapaxes(0, 1) for key, value in slab.items()}, ChunkMeta(frames, frames, 0, 0))


def _act(agent: PPOAgent, rng: np.random.Generator) -> float:
    actor, observations = agent.actor(Normalizer()), {"observation": _observations(rng, _SETTING.num_envs)}
    return best_us(lambda: actor.act(observations))


def _step(made: _Made, chunk: Chunk) -> float:
    """Return the time of an update, rollout and report included, divided by its gradient steps."""
    agent = made.agent
    made.memory.store(chunk)
    steps = _SETTING.update_epochs * -(-_SETTING.rows // agent.config.minibatch_size)
    normalizer, counters = Normalizer(), Counters(env_steps=_SETTING.rows)
    return best_us(lambda: agent.update(normalizer, counters)) / steps


def _advantages(chunk: Chunk) -> float:
    arrays = chunk.arrays
    values = np.array(arrays["/agents/agent/artifacts/values"])
    return best_us(
        lambda: gae(
            arrays["/rewards"][:, :-1], values, terminations=arrays["/terminations"][:, :-1],
            masks=arrays["/masks"], discount=0.99, gae_lambda=0.95,
        )
    )  # fmt: skip


def _blocks() -> dict[str, float]:
    block = timer_block("bench")
    totals = {"bench": 0.0}

    @contextlib.contextmanager
    def generator_block(name: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            totals[name] += time.perf_counter() - began

    def ours() -> None:
        with block:
            pass

    def generator() -> None:
        with generator_block("bench"):
            pass

    def record() -> None:
        with torch.profiler.record_function("bench"):
            pass

    return {
        "timed block": best_us(ours),
        "timed block / a generator context manager": best_us(generator),
        "timed block / torch's record_function": best_us(record),
    }


def _files(agent: PPOAgent, directory: Path) -> dict[str, float]:
    """Return what a save takes, by the real saver, and a policy's way back from a real session."""
    import digideep

    session = digideep.run(
        "benchmarks.params_ppo",
        cpanel={**cpanel_of(_SETTING), "total_frames": _SETTING.rows, "num_workers": 0},
        session_path=str(directory),
        device="cpu",
        log_level="error",
    )
    loader = load(session.paths.root)
    return {
        "save, until training goes on": _save_us(agent, directory / "waits", wait=False),
        "save, until it is durable": _save_us(agent, directory / "durable", wait=True),
        "load a policy": best_us(lambda: loader.policy()),
    }


def _save_us(agent: PPOAgent, directory: Path, *, wait: bool) -> float:
    directory.mkdir()
    paths = SessionPaths(directory)
    logs = SessionLogs(paths, cpu=False, gpu=False)
    store = CheckpointStore(paths.checkpoints, session_id="bench", run_id="bench")
    saver = Saver(paths, store=store, logs=logs, summary=Summary(), say=lambda line: None)
    origin = Origin({"runner": {"keep_last": 2, "keep_best": 0, "keep_every": 0}}, "cpu", "exact")
    progress = {"epoch": 0, "frame": 0, "episode": 0, "frames_per_s": 0.0, "last_test": None}
    taken = []
    for number in range(8):
        began = time.perf_counter()
        state = {"agents.agent": agent.state_dict()}
        saver.begin(number, state, progress, origin=origin, begun_at=time.monotonic())
        if wait:
            saver.look(wait=True)
        taken.append(time.perf_counter() - began)
        saver.look(wait=True)
    logs.stop()
    return min(taken) * 1e6


if __name__ == "__main__":
    main()
