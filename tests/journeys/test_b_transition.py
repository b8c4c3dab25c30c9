"""A transition from the environment's step, through slab and memory, to the minibatch and the monitor."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
from fakes import Ended, rows

from digideep.agent.sampling import minibatch_slices, shares, time_major
from digideep.environment.config import EnvConfig, ExplorerConfig
from digideep.environment.explorer import Explorer
from digideep.memory.config import RollBufferConfig
from digideep.testing import CountingActor
from digideep.utility.node import build, node

N, T = 3, 8


def _explorer(workers: int) -> Explorer:
    kwargs = {"lengths": [1, 3, 4], "ends": "alternate"}
    env = node(EnvConfig, model_name="digideep.testing:Counting-v0", env_kwargs=kwargs)
    config = node(ExplorerConfig, env=env, num_envs=N, num_workers=workers, n_steps=T)
    explorer: Explorer = build(config, where="/explorer/train", mode="train", seed=5)
    return explorer


@pytest.mark.parametrize("workers", [0, 2])
def test_what_the_environment_says_arrives_in_the_minibatch(workers: int) -> None:
    explorer = _explorer(workers)
    memory = build(node(RollBufferConfig), where="/memory/train", name="train")
    actor = CountingActor()
    try:
        for _ in range(2):  # the second chunk goes on where the first ended; the actor checks every number
            explorer.set_actors({"agent": actor})
            memory.store(explorer.update())

        chunk = memory.last_chunk()
        arrays = chunk.arrays

        # Nothing was copied on the way from the slab to the memory.
        assert arrays["/observations/observation"].base is not None
        counts = arrays["/observations/observation"][:, :, 0]
        assert (np.diff(counts, axis=1) == 1).all()
        assert (arrays["/agents/agent/artifacts/values"][:, :T] == counts[:, :T]).all()
        real = arrays["/masks"][:, 1:]
        # The reward is the count that the step led to; the step that only resets has none.
        assert (arrays["/rewards"][:, :T] == real * counts[:, 1:]).all()
        assert chunk.meta.env_steps == int(real.sum())

        weights = time_major(real)
        order = np.random.default_rng(0).permutation(N * T)
        shuffled, sums = weights[order], []
        for part in minibatch_slices(N * T, 7):
            share = shares(shuffled[part])
            assert ((share > 0) == (shuffled[part] > 0)).all()
            sums.append(float(share.sum()))
        assert sums == pytest.approx([1.0] * len(sums))
    finally:
        explorer.close()


def test_losses_of_real_transitions_reach_the_monitor(
    command: Callable[..., Ended], toy: Callable[..., list[str]]
) -> None:
    session = command(*toy("losses", "number_epochs=1", "test_activate=false")).session

    (row,) = rows(session / "varlog.jsonl")
    names = (
        "policy_loss",
        "value_loss",
        "entropy",
        "approx_kl",
        "clip_fraction",
        "explained_variance",
        "lr",
        "grad_norm",
    )
    assert {f"update/agent/{name}" for name in names} <= row["data"].keys()
    assert all(row["data"][f"update/agent/{name}"]["num"] == 2 for name in names)  # once an update, two cycles


@pytest.mark.parametrize("workers", [0, 2])
def test_a_bad_number_is_named_where_it_arose(
    digideep: Callable[..., Ended], toy: Callable[..., list[str]], workers: int
) -> None:
    knobs = {
        "model_name": "digideep.testing:Faulty-v0", "env_kwargs": {"fault": "nan", "at": 4, "episode": 1},
        "num_workers": workers, "test_activate": False,
    }  # fmt: skip

    error = digideep(*toy("nan"), "--cpanel", json.dumps(knobs), expect=8).err.splitlines()[-1]

    for part in ("/observations/observation", "environment", "seed", "episode", "step 4"):
        assert part in error
