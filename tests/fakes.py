"""Runs of the program in forked processes, quick to start, and what tests compare sessions by."""

from __future__ import annotations

import contextlib
import itertools
import json
import multiprocessing
import os
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from mutants import apply_from_environment

from digideep.utility.device import prepare_process

prepare_process()  # must stand before the libraries are imported, here and in the programs that tests start

TOY_DIRECTORY = Path(__file__).resolve().parent / "toy"
TOY = str(TOY_DIRECTORY / "toy_params.py")
CLOCKS = ("time/", "machine/")
CLOCK_COMPONENTS = ("clocks",)
"""Components of a checkpoint that two equal runs need not have in common; of all others every bit is compared."""
OWN_MANIFEST_KEYS = ("session_id", "parent", "params_sha256", "logs", "files", "manifest_sha256")
"""What a manifest says of its own session: which it is, which saves and changed budgets came before, how long the text
of clocks is. The hashes of all files of tensors are compared one by one."""

# The libraries are imported once, in a process with one thread that has computed nothing; each run is a fork of it.
_PRELOADED = [
    "torch",
    "gymnasium",
    "tensorboard.compat.proto.event_pb2",
    "digideep.main",
    "digideep.launch",
    "digideep.autoresume",
    "digideep.pipeline.runner",
    "digideep.agent.ppo.agent",
    "digideep.environment.explorer",
    "digideep.params.cartpole_ppo",
    "fakes",
]
_context = multiprocessing.get_context("forkserver")


class Ended(NamedTuple):
    """How a program ended: its exit code (negative: the signal that killed it), its lines on stdout, its stderr."""

    code: int
    out: list[str]
    err: str

    @property
    def session(self) -> Path:
        """The session of the first line."""
        return Path(self.out[0].removeprefix("session: "))

    @property
    def evaluation(self) -> Path:
        """The evaluation of the first line."""
        return Path(self.out[0].removeprefix("evaluation: "))

    @property
    def saved(self) -> list[str]:
        """Names of the checkpoints that were announced."""
        return [line.rpartition("/")[2] for line in self.out if line.startswith("saved ")]


class Program:
    """`digideep` with some arguments, in a process and a process group of its own."""

    def __init__(
        self,
        *argv: str,
        cwd: Path,
        moments: Mapping[str, list[str]] | None = None,
        env: Mapping[str, str] | None = None,
        ignored: Sequence[int] = (),
        before: Callable[[], None] | None = None,
    ) -> None:
        _context.set_forkserver_preload(_PRELOADED)
        environment = {**os.environ, **(env or {}), "TOY_MOMENTS": json.dumps(moments or {})}
        self._err = cwd / f"stderr-{os.urandom(4).hex()}"
        reader, writer = _context.Pipe(duplex=False)
        self._process = _context.Process(
            target=_become_program,
            args=(list(argv), writer, str(self._err), environment, str(cwd), list(ignored), before),
        )
        self._process.start()
        writer.close()
        self.out: list[str] = []
        self._stdout = os.fdopen(os.dup(reader.fileno()), encoding="utf-8")
        reader.close()
        self.pid: int = self._process.pid or 0

    def wait_for(self, beginning: str) -> str:
        """Return the next line on stdout that begins like this; the program ending without it is an error."""
        for line in self._stdout:
            self.out.append(line.rstrip("\n"))
            if line.startswith(beginning):
                return self.out[-1]
        raise AssertionError(f"no line {beginning!r} in {self.out}; stderr: {self._err.read_text()}")

    def send(self, number: int) -> None:
        """Send a signal to the program."""
        os.kill(self.pid, number)

    def close_stdout(self) -> None:
        """Stop to read, as `head -1` does."""
        self._stdout.close()

    def close(self) -> None:
        """End the program and its children at once, whatever they are doing."""
        if not self._stdout.closed:
            self._stdout.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.join()

    def end(self, *, timeout_s: float = 60.0) -> Ended:
        """Wait for the end; a program that does not come to one is killed, and the test fails."""
        if not self._stdout.closed:
            with self._stdout:
                self.out += [line.rstrip("\n") for line in self._stdout]
        self._process.join(timeout_s)
        code = self._process.exitcode
        if code is None:
            os.kill(self.pid, signal.SIGKILL)
            raise AssertionError(f"still there after {timeout_s} s; stderr: {self._err.read_text()}")
        return Ended(code, self.out, self._err.read_text())


def _become_program(
    argv: list[str],
    out: Connection,
    err: str,
    environment: dict[str, str],
    cwd: str,
    ignored: list[int],
    before: Callable[[], None] | None,
) -> None:
    os.setsid()
    os.dup2(out.fileno(), 1)
    out.close()
    descriptor = os.open(err, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    tempfile.tempdir = None  # asked for before, it would be that of another test
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
    # Killing processes takes nothing from the page cache; what power losses do is tested on the store itself.
    os.fsync = lambda descriptor: None
    sys.argv = ["digideep", *argv]
    if before is not None:
        before()
    apply_from_environment()
    from digideep.main import console

    console()


def wait_until(condition: Callable[[], object], *, timeout_s: float = 30.0) -> None:
    """Look again and again until a condition holds; that it never does is an error."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s"
        time.sleep(0.005)


# What a session holds


def checkpoints(session: Path) -> list[int]:
    """Return the numbers of the checkpoints that stand."""
    found = (path.name.removeprefix("checkpoint-") for path in (session / "checkpoints").glob("checkpoint-*"))
    return sorted(int(number) for number in found)


def read(path: Path) -> Any:
    """Return a JSON file."""
    return json.loads(path.read_text())


def rows(path: Path) -> list[Any]:
    """Return the rows of a JSON-lines file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def manifest(session: Path, number: int | None = None) -> Any:
    """Return the manifest of a checkpoint, by default of the newest."""
    number = checkpoints(session)[-1] if number is None else number
    return read(session / "checkpoints" / f"checkpoint-{number}" / "MANIFEST.json")


def state(session: Path, number: int | None = None) -> Any:
    """Return the state of a checkpoint, by default of the newest."""
    number = checkpoints(session)[-1] if number is None else number
    return read(session / "checkpoints" / f"checkpoint-{number}" / "state.json")


def last_checkpoint(session: Path) -> dict[str, Any]:
    """Return all of the last checkpoint that has to be equal in two runs of the same bits."""
    directory = session / "checkpoints" / f"checkpoint-{checkpoints(session)[-1]}"
    described = manifest(session)
    keys = [key for key in described if key not in OWN_MANIFEST_KEYS]
    tensors = sorted(directory.glob("*.safetensors"))
    assert tensors
    return {
        "name": directory.name,
        "state": {key: value for key, value in state(session).items() if key not in CLOCK_COMPONENTS},
        "tensors": {path.name: sha256(path.read_bytes()).hexdigest() for path in tensors},
        "hashes": {path.name: described["files"][path.name]["sha256"] for path in tensors},
        **{f"manifest {key}": described[key] for key in keys},
    }


def metric_rows(session: Path) -> list[Any]:
    """Return the rows of varlog without what a clock has touched."""
    found = rows(session / "varlog.jsonl")
    for row in found:
        del row["meta"]["clock"]
        row["data"] = {name: entry for name, entry in row["data"].items() if not name.startswith(CLOCKS)}
    return found


def monitor_rows(session: Path) -> dict[str, list[str]]:
    """Return the rows of the monitor files without `t`; those of workers together, as they may be split otherwise."""
    found: dict[str, list[str]] = {}
    for path in sorted((session / "monitor").glob("*/*.monitor.csv")):
        lines = path.read_text().splitlines()[1:]
        clock = lines[0].split(",").index("t")
        kept = [",".join(v for i, v in enumerate(line.split(",")) if i != clock) for line in lines]
        found[str(path.relative_to(session))] = kept
    return found


def differences(one: Path, other: Path) -> list[str]:
    """Return the names of all parts in which two sessions differ that ought to be the same run."""
    first, second = ({**last_checkpoint(s), "varlog": metric_rows(s), "monitor": monitor_rows(s)} for s in (one, other))
    assert first.keys() == second.keys()
    found = [key for key in first if first[key] != second[key]]
    if "state" in found:
        parts = {key for key in first["state"] if first["state"][key] != second["state"].get(key)}
        found += [f"state/{key}" for key in sorted(parts)]
    return found


def event_steps(session: Path) -> dict[str, list[int]]:
    """Return the steps of each tag in the TensorBoard event file, in the order in which they stand there."""
    from tensorboard.compat.proto import event_pb2

    (path,) = (session / "tensorboard").iterdir()
    data, found, place = path.read_bytes(), dict[str, list[int]](), 0
    while place < len(data):
        (length,) = struct.unpack_from("<Q", data, place)
        event = event_pb2.Event.FromString(data[place + 12 : place + 12 + length])
        for value in event.summary.value:
            found.setdefault(value.tag, []).append(event.step)
        place += 16 + length
    assert place == len(data)
    return found


def check_logs_continue(session: Path) -> None:
    """Check that no log of a session repeats or goes back."""
    for steps in event_steps(session).values():
        assert all(before < after for before, after in itertools.pairwise(steps)), steps
    for name in ("varlog.jsonl", "prolog.jsonl"):
        epochs = [row["meta"]["epoch"] for row in rows(session / name)]
        assert epochs == list(range(1, len(epochs) + 1)), (name, epochs)
    for name in ("varlog.jsonl", "prolog.jsonl", "monlog.jsonl"):
        if (session / name).exists():
            clocks = [row["meta"]["clock"] for row in rows(session / name)]
            assert clocks == sorted(clocks), (name, clocks)


def tree(path: Path) -> list[tuple[str, int, str]]:
    """Return (path, mode, content) of everything below a directory."""
    found = []
    for entry in sorted(path.rglob("*")):
        content = sha256(entry.read_bytes()).hexdigest() if entry.is_file() else ""
        found.append((str(entry.relative_to(path)), entry.lstat().st_mode, content))
    return found
