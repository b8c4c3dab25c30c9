"""`done.lock` stands only after the last checkpoint is durable, whatever ends the program, and wherever."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from crashdisk import ModelDisk, RecordingOs, Tree, TreeFileSystem
from fakes import Ended, Program, checkpoints, differences, wait_until
from ledger import Tally
from tracing import is_stopped, kill_at

from digideep.pipeline.checkpoint import CheckpointStore
from digideep.pipeline.locks import is_done

Run = Callable[..., Ended]
Toy = Callable[..., list[str]]
QUICK = ["test_win_size=1", "number_epochs=2"]
LAST = 4


def _newest(tree: Tree) -> int:
    """Return the number of the newest whole checkpoint of a session, -1 without one."""
    root = Path("/session")
    store = CheckpointStore(root / "checkpoints", session_id="", run_id="look", fs=TreeFileSystem(tree, root))
    numbers = store.numbers() if "checkpoints" in tree else []
    return max((number for number in numbers if not store.verify(number)), default=-1)


def test_C5_in_every_crash_state_a_session_that_is_done_has_its_last_checkpoint(
    command: Run, toy: Toy, monkeypatch: pytest.MonkeyPatch, tally: Tally
) -> None:
    recording = RecordingOs()
    monkeypatch.setattr("digideep.pipeline.filesystem.os", recording)
    session = command(*toy("recorded", *QUICK)).session
    inside = [operation for operation in recording.record if _is_inside(operation, session)]

    disk, states, done, begun = ModelDisk(session), dict[str, int](), 0, False
    for operation in inside:
        disk.apply(operation)
        begun = begun or (operation[0] == "rename" and operation[2].name == "done.lock")
        # Before that no state has it; that the calls before leave their checkpoints alone is A2.
        for kept, tree in disk.crashes(random.Random(0), mixed=40) if begun else ():
            tally["crash states"] += 1
            if "done.lock" in tree:
                key = repr(tree["checkpoints"])
                states[key] = states[key] if key in states else _newest(tree)
                assert states[key] == LAST, (operation[:2], kept)
                done += 1

    assert is_done(session)
    assert done > 0


_open = dict[int, bool]()


def _is_inside(operation: tuple[Any, ...], session: Path) -> bool:
    """Whether a call has to do with something in the session; keys and other places are no part of it."""
    first = operation[1]
    inside = first.is_relative_to(session) if isinstance(first, Path) else _open.get(first, False)
    if operation[0] in ("open", "create"):
        _open[operation[2]] = inside
    return inside


def _kill_and_resume(
    session: Path, program: Program, straight: Path, resume: Run, *, call: str, n: int, trace: Path
) -> bool:
    """Kill a program that has stopped before its last save at the n-th `call`; return whether it got that far."""
    wait_until(lambda: is_stopped(program.pid))
    kill_at(program.pid, call=call, n=n, trace=trace)
    code = program.end().code
    where = f"{call} {n}"
    assert code in (0, -9), where
    if is_done(session):
        store = CheckpointStore(session / "checkpoints", session_id="", run_id="look")
        assert checkpoints(session)[-1] == LAST and store.verify(LAST) == [], where
        resume(session, expect=3)
    else:
        assert code == -9, where
        resume(session)
    assert differences(straight, session) == [], where
    return bool(code)


def _places(rng: random.Random, count: int) -> list[tuple[str, int]]:
    """Return calls to be killed at; there are about so many of each after the last epoch."""
    many = {"open": 30, "write": 30, "rename": 6, "mkdir": 1, "unlink": 4}
    everything = [(call, n) for call, last in many.items() for n in range(1, last + 1)]
    return rng.sample(everything, count) if count else everything


@pytest.mark.parametrize("count", [pytest.param(4, id="4"), pytest.param(0, marks=pytest.mark.nightly, id="all")])
def test_C5_a_kill_at_a_call_after_the_last_epoch_loses_nothing(
    strace: None, command: Run, start: Callable[..., Program], resume: Run, toy: Toy, tmp_path: Path, count: int,
    tally: Tally,
) -> None:  # fmt: skip
    straight = command(*toy("straight", *QUICK)).session
    seed = random.randrange(2**32)
    print("seed", seed)
    for index, (call, n) in enumerate(_places(random.Random(seed), count)):
        program = start(*toy(f"killed{index}", *QUICK), moments={f"save {LAST}": ["SIGSTOP"]})
        session = Path(program.wait_for("session: ").removeprefix("session: "))

        fired = _kill_and_resume(session, program, straight, resume, call=call, n=n, trace=tmp_path / "trace")

        tally["kills at a call"] += fired
