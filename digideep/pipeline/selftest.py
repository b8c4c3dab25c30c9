"""Trying a file system: whether what was announced survives `kill -9`, locks hold, and numbers come back exactly.

`python -m digideep.pipeline.selftest drive|hold DIRECTORY` are the child processes that are killed.
"""

from __future__ import annotations

import contextlib
import os
import random
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from digideep.errors import CheckpointError, DigideepError, SessionLockedError, StorageError, UsageError, one_line
from digideep.pipeline.checkpoint import CheckpointMeta, CheckpointStore, Component
from digideep.pipeline.fsio import remove_tree
from digideep.pipeline.locks import SessionLock
from digideep.types import LiveSegments, Segment

__all__ = ["Result", "expected_state", "run_selftest"]

KILLS = 20
TIME_LIMIT_S = 30.0  # of the kills; with the longest waits for children all trials end within a minute
_ANSWER_S = 10.0
_SESSION = "selftest"
_COMPONENT = "agents.selftest"
_MEMORY = "memory.selftest"
_SEGMENTS = 3  # of a memory; one is new at each save, the others are linked
_META = CheckpointMeta(
    epoch=0, cycle=0, frame=0, episode=0, exactness="exact", parent=None, versions={}, threads={}, device="none",
    params_sha256="",
)  # fmt: skip


class Result(NamedTuple):
    """What one trial found."""

    name: str
    ok: bool
    finding: str


def expected_state(number: int) -> dict[str, object]:
    """Return the state that checkpoint `number` of a trial holds; corners of floating point included."""
    generator = np.random.default_rng(number)
    return {
        "number": number,
        "normal": generator.standard_normal((64, 257)),
        "single": generator.standard_normal(4096).astype(np.float32),
        "corners": np.array([-0.0, 5e-324, 1.7976931348623157e308, 0.1]),
        "integers": np.array([-(2**63), 2**63 - 1, number]),
        "pi": 3.141592653589793,
    }


def expected_segments(number: int) -> dict[str, np.ndarray]:
    """Return the arrays by name of segment that the memory in checkpoint `number` holds."""
    return {
        f"{index:06d}": np.random.default_rng(index).standard_normal((16, 257))
        for index in range(max(0, number - _SEGMENTS), number)
    }


def run_selftest(directory: Path, *, kills: int = KILLS, time_limit_s: float = TIME_LIMIT_S) -> list[Result]:
    """Return the results of all trials in a temporary directory inside `directory`, which is removed again.

    Where `directory` does not exist it is made, and removed with it.

    Args:
        directory: on the file system in question.
        kills: processes that are killed while they save.
        time_limit_s: fewer where this time is over.

    Raises:
        UsageError: nothing can be written in `directory`.
    """
    place = directory / f".digideep-selftest-{os.getpid()}"
    is_new = not os.path.lexists(directory)
    try:
        if is_new:
            directory.mkdir(mode=0o700)
        place.mkdir(mode=0o700)
    except OSError as error:
        raise UsageError(
            f"{one_line(directory)}: expected a directory that can be written, found {error.strerror}; name another"
        ) from error
    try:
        return [
            _attempt("kill", lambda: _try_kills(place, kills=kills, time_limit_s=time_limit_s)),
            _attempt("lock", lambda: _try_lock(place)),
            _attempt("exactness", lambda: _try_exactness(place)),
        ]
    finally:
        remove_tree(place)
        if is_new:
            with contextlib.suppress(OSError):  # somebody else has begun to use it meanwhile
                directory.rmdir()


def _attempt(name: str, trial: Callable[[], str]) -> Result:
    try:
        return Result(name, True, trial())
    except (DigideepError, OSError) as error:
        return Result(name, False, one_line(error))


def _store(place: Path, *, run_id: str = "reader") -> CheckpointStore:
    return CheckpointStore(place / "checkpoints", session_id=_SESSION, run_id=run_id)


@contextlib.contextmanager
def _child(role: str, place: Path) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    """Run one of the programs below; it is killed when the block ends."""
    code = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, [code, os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, "-P", "-m", "digideep.pipeline.selftest", role, str(place)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    )
    try:
        if process.stdout is None or not select.select([process.stdout], [], [], _ANSWER_S)[0]:
            raise StorageError(f"expected an answer of the child process within {_ANSWER_S:g} s, found none")
        yield process, process.stdout
    finally:
        process.kill()
        process.communicate()


def _try_kills(place: Path, *, kills: int, time_limit_s: float) -> str:
    chance = random.Random(place.name)
    began, killed, announced = time.monotonic(), 0, -1
    while killed < kills and (killed < 1 or time.monotonic() - began < time_limit_s):
        with _child("drive", place) as (process, output):
            time.sleep(chance.uniform(0.0, 0.1))
            process.kill()
            lines, errors = output.read().split(b"\n"), process.stderr.read() if process.stderr else b""
        acknowledged = [int(line.removeprefix(b"saved ")) for line in lines[:-1]]
        if not acknowledged:
            last = errors.decode(errors="replace").strip().rpartition("\n")[2]
            raise StorageError(f"expected the child process to save, found that it ended: {last}")
        announced = acknowledged[-1]
        killed += 1
        _check(place, at_least=announced)
    return f"{killed} processes killed in {announced + 1} saves, nothing announced was lost"


def _check(place: Path, *, at_least: int) -> None:
    """Raise CheckpointError unless the newest checkpoint is as announced, to the bit."""
    found = _store(place).load()
    if found.number < at_least:
        raise CheckpointError(f"expected checkpoint-{at_least}, which was announced, found checkpoint-{found.number}")
    expected, state = expected_state(found.number), found.components[_COMPONENT]
    if not isinstance(state, dict) or state.keys() != expected.keys():
        raise CheckpointError(f"checkpoint-{found.number}: expected the keys that were saved, found others")
    for name, value in expected.items():
        wanted, there = np.asarray(value), np.asarray(state[name])
        if not _is_same(wanted, there):
            raise CheckpointError(f"checkpoint-{found.number}: expected the bits of {name} that were saved")
    segments = {segment.name: segment.arrays["rows"] for segment in found.components[_MEMORY]["segments"]}
    wanted_segments = expected_segments(found.number)
    if list(segments) != list(wanted_segments):
        raise CheckpointError(f"checkpoint-{found.number}: expected the segments that were saved, found others")
    for name, rows in segments.items():
        if not _is_same(wanted_segments[name], rows):
            raise CheckpointError(f"checkpoint-{found.number}: expected the bits of segment {name} that were saved")


def _is_same(wanted: np.ndarray, there: np.ndarray) -> bool:
    same_kind = wanted.dtype == there.dtype and wanted.shape == there.shape
    return same_kind and wanted.tobytes() == there.tobytes()


def _try_lock(place: Path) -> str:
    session = place / "session"
    session.mkdir()
    with _child("hold", session) as (process, _):
        try:
            with SessionLock(session):
                raise StorageError("expected that a second process cannot have the lock, found that it can")
        except SessionLockedError:
            process.kill()
            process.wait()
    with SessionLock(session, wait_s=2.0):
        return "held against a second process, free after the first was killed"


def _try_exactness(place: Path) -> str:
    """Save and read once more in this process, and say how long a durable save takes here."""
    store = _store(place, run_id="exact")
    number = max(store.numbers(), default=0) + 1
    began = time.monotonic()
    _save(store, number)
    elapsed_ms = 1000.0 * (time.monotonic() - began)
    _check(place, at_least=number)
    _save(store, number + 1)
    (shared, *_) = sorted(store.path(number + 1).glob(f"{_MEMORY}.*.safetensors"))
    shares = "shared by hard links" if shared.stat().st_nlink > 1 else "copied into each one: no hard links here"
    found = f"a durable save took {elapsed_ms:.1f} ms; what two checkpoints have in common is {shares}"
    return f"what was saved came back to the bit; {found}"


def _save(store: CheckpointStore, number: int) -> None:
    segments = [Segment(name, {"rows": rows}) for name, rows in expected_segments(number).items()]
    parts = [
        Component(name=_COMPONENT, kind="selftest", version=1, state=expected_state(number)),
        Component(name=_MEMORY, kind="selftest", version=1, state={"segments": LiveSegments(segments)}),
    ]
    store.save(number, parts, meta=_META._replace(cycle=number), logs={})


def _drive(place: Path) -> None:
    """Save one checkpoint after the other, and announce each, until somebody kills this process."""
    store = _store(place, run_id=f"run-{os.getpid()}")
    store.sweep()
    number = max(store.numbers(), default=-1) + 1
    while True:
        _save(store, number)
        sys.stdout.write(f"saved {number}\n")
        sys.stdout.flush()
        store.retain(keep_last=3, keep_best=0, keep_every=0, best=[])
        number += 1


def _hold(session: Path) -> None:
    """Hold the lock of a session until somebody kills this process, or closes its input."""
    with SessionLock(session):
        sys.stdout.write("held\n")
        sys.stdout.flush()
        sys.stdin.read()


def main(arguments: Sequence[str]) -> int:
    """Be one of the child processes: `drive DIRECTORY` or `hold DIRECTORY`."""
    role, place = arguments
    {"drive": _drive, "hold": _hold}[role](Path(place))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
