"""B3: whatever is left out of a restored state is noticed, so that equal runs really have everything in common."""

from __future__ import annotations

import copy
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from fakes import TOY_DIRECTORY, differences
from toys import EVERY_DAY, TOYS, parameter

import digideep
from digideep.errors import CheckpointError
from digideep.pipeline.checkpoint import Checkpoint, CheckpointStore
from digideep.pipeline.runner import Runner
from digideep.testing import first_difference

MEMORIES = ("toy_ppo_recurrent", "toy_dqn")  # hidden states outside the agent, priorities and noise
METHODS = [
    parameter(toy, everyday=toy in (*EVERY_DAY, *MEMORIES))
    for toy in TOYS
    if toy not in ("toy_ddpg", "toy_sac", "toy_sac_value")
]
"""One of those with a replay memory and real actions: their states have the same parts, and the contract of agents
tries every part of all of them."""
KNOBS: dict[str, Any] = {
    "number_epochs": 3, "epoch_size": 1, "num_workers": 0, "test_win_size": 1, "test_interval": 2, "keep_last": 9,
    "on_epoch": "toy_parts:draw",
}  # fmt: skip
OWN: dict[str, dict[str, Any]] = {"toy_q": {"warm_up": 50, "target_interval": 3}}  # so that every part has moved
STOP = 2  # epochs of the first process

# What may be wrong without a consequence for this run, and why.
HARMLESS = {
    **dict.fromkeys(("monitor/meta/epoch", "monitor/meta/frame", "monitor/meta/episode"), "set again at the start"),
    **dict.fromkeys(
        ("runner/progress/epoch", "runner/progress/frame", "runner/progress/fraction"),
        "for environments that keep what they were told outside their own state, which this one does not",
    ),
    "runner/last_test": "replaced by the test at the end of the run",
    "agents.agent/replay/uinteger": "half a draw; `has_uint32`, which is noticed, says that none was left over",
}


class Runs(NamedTuple):
    """Of one method: a run that nothing stopped, and one that stopped after two epochs."""

    straight: Path
    stopped: Path


def train(toy: str, directory: Path, **knobs: Any) -> Path:
    params = str(TOY_DIRECTORY / f"acting_{toy}.py")
    options: dict[str, Any] = {"session_path": str(directory), "log_level": "fatal", "monitor_cpu": False}
    path: Path = digideep.run(params, {**KNOBS, **OWN.get(toy, {}), **knobs}, **options).paths.root
    return path


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Runs]]:
    """A function that gives the runs of a toy, which are made once."""
    made: dict[str, Runs] = {}

    def of(toy: str) -> Runs:
        if toy not in made:
            made[toy] = Runs(train(toy, directory), train(toy, directory, max_exec_iter=STOP))
        return made[toy]

    with pytest.MonkeyPatch.context() as quick:
        quick.setattr("os.fsync", lambda descriptor: None)
        quick.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        quick.setenv("DIGIDEEP_TRUSTED_ROOTS", str(tmp_path_factory.getbasetemp()))
        directory = tmp_path_factory.mktemp("sharp")
        yield of


@pytest.fixture(autouse=True)
def _quick_disk_and_trust(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    monkeypatch.setenv("DIGIDEEP_TRUSTED_ROOTS", str(tmp_path_factory.getbasetemp()))


def resumed(stopped: Path, place: Path) -> Path:
    """Go on with a copy of a session and return the copy."""

    def copied(source: str, target: str) -> None:
        os.link(source, target) if "/modules/" in source else shutil.copy2(source, target)

    shutil.copytree(stopped, place, copy_function=copied)
    digideep.run(
        load_checkpoint=str(place), resume=True, set={"/runner/max_iter": 0}, log_level="fatal", monitor_cpu=False
    )
    return place


def newest_and_first(session: Path) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    store = CheckpointStore(session / "checkpoints", session_id="", run_id="reader")
    return store.load().components, store.load(0).components


def parts_of(newest: Any, first: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Return the paths, three names at most, of what has changed since the first checkpoint."""
    if isinstance(newest, dict) and isinstance(first, dict) and newest.keys() == first.keys() and len(path) < 3:
        return [part for key in newest for part in parts_of(newest[key], first[key], (*path, key))]
    plain = not hasattr(newest, "names")
    return [] if plain and not first_difference(newest, first, path="x") else [path]


def with_part_of(components: Mapping[str, Any], first: Any, part: tuple[str, ...]) -> dict[str, Any]:
    """Return components in which one part is what it was in the first checkpoint."""
    changed = dict(components)
    target: Any = changed
    for key in part[:-1]:
        target[key] = dict(target[key])
        target, first = target[key], first[key]
    target[part[-1]] = copy.deepcopy(first[part[-1]])
    return changed


@pytest.mark.parametrize("toy", METHODS)
def test_B3_nothing_left_out_is_no_difference(runs: Callable[[str], Runs], tmp_path: Path, toy: str) -> None:
    straight, stopped = runs(toy)

    assert differences(straight, resumed(stopped, tmp_path / "whole")) == []


@pytest.mark.parametrize("toy", METHODS)
def test_B3_every_part_of_the_state_that_is_left_out_is_noticed(
    runs: Callable[[str], Runs], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, toy: str
) -> None:
    straight, stopped = runs(toy)
    newest, first = newest_and_first(stopped)
    parts = [part for part in parts_of(dict(newest), dict(first)) if part[0] != "clocks"]
    load, unnoticed = CheckpointStore.load, list[str]()

    for number, part in enumerate(parts):

        def forgetful(self: CheckpointStore, *args: Any, _part: tuple[str, ...] = part, **options: Any) -> Checkpoint:
            found = load(self, *args, **options)
            return found._replace(components=with_part_of(found.components, first, _part))

        with monkeypatch.context() as patch:
            patch.setattr(CheckpointStore, "load", forgetful)
            try:
                noticed = bool(differences(straight, resumed(stopped, tmp_path / f"part{number}")))
            except CheckpointError:
                noticed = True  # even before it could make a difference
        if not noticed:
            unnoticed.append("/".join(part))

    names = {part[:2] for part in parts}
    assert names >= {("rng", "python"), ("rng", "numpy"), ("rng", "torch"), ("counters", "env_steps")}
    assert names >= {("statistics", "returns")}
    assert names & {("agents.agent", "optimiser"), ("agents.agent", "optimisers")}
    assert toy != "toy_q" or names >= {
        ("agents.agent", "target"), ("agents.agent", "lr_steps"), ("agents.agent", "exploration"),
        ("memory.train", "segments"),
    }  # fmt: skip
    assert {part[0] for part in parts} == set(newest) - {"clocks"}
    assert set(unnoticed) <= HARMLESS.keys()


@pytest.mark.parametrize("toy", METHODS)
def test_B3_generators_restored_before_what_draws_from_them_are_noticed(
    runs: Callable[[str], Runs], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, toy: str
) -> None:
    straight, stopped = runs(toy)
    restore = Runner.load_state_dict

    def drawing_afterwards(self: Runner, state: Any) -> None:
        restore(self, state)
        np.random.random()

    monkeypatch.setattr(Runner, "load_state_dict", drawing_afterwards)

    found = differences(straight, resumed(stopped, tmp_path / "drawn"))

    assert "state/rng" in found or "tensors" in found
