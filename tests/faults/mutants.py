"""Ways to be wrong that the tests have to notice: each mutant changes the product in memory before a test runs.

`pytest --mutant NAME` applies one in the process of pytest, and through `VARIABLE` in every program that tests fork.
The product has no hooks for this.
"""

from __future__ import annotations

import importlib
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["MUTANTS", "VARIABLE", "Mutant", "apply", "apply_from_environment"]

VARIABLE = "DIGIDEEP_TEST_MUTANT"


class Mutant(NamedTuple):
    """A change, the test that has to fail with it, and what its failure has to say."""

    change: Callable[[], None]
    test: str
    because: str


def _set(module: str, name: str, value: Any) -> Any:
    """Put `value` in the place of a name of a module, or of a class in it, and return what was there."""
    owner: Any = importlib.import_module(module)
    *outer, last = name.split(".")
    for part in outer:
        owner = getattr(owner, part)
    former = getattr(owner, last)
    setattr(owner, last, value)
    return former


_FILES = "digideep.pipeline.filesystem"


def _in_place() -> None:
    """Write a checkpoint where it will stand, so that there is nothing to rename."""

    def final(path: Path) -> Path:
        parts = [
            f"checkpoint-{p.split('-')[1]}" if p.startswith(".tmp-") and p.count("-") > 1 else p for p in path.parts
        ]
        return Path(*parts)

    def redirected(name: str) -> None:
        real = _set(_FILES, f"RealFileSystem.{name}", None)

        def call(self: Any, path: Path, *more: Any, **options: Any) -> Any:
            return real(self, final(path), *more, **options)

        _set(_FILES, f"RealFileSystem.{name}", call)

    rename = _set(_FILES, "RealFileSystem.rename", None)

    def unless_committed(self: Any, source: Path, target: Path) -> None:
        if final(source) != target:
            rename(self, source, target)

    for name in ("mkdir", "create", "fsync_directory", "open_for_reading", "status", "listdir", "unlink", "rmdir"):
        redirected(name)
    link = _set(_FILES, "RealFileSystem.link", None)
    _set(_FILES, "RealFileSystem.link", lambda self, source, target: link(self, source, final(target)))
    _set(_FILES, "RealFileSystem.rename", unless_committed)
    _set("digideep.pipeline.checkpoint", "remove_tree", lambda path, fs: None)  # it would find what stands there


def _no_fsync() -> None:
    _set(_FILES, "RealFileSystem.fsync", lambda self, descriptor: None)


def _no_directory_fsync() -> None:
    _set(_FILES, "RealFileSystem.fsync_directory", lambda self, path: None)


def _delete_before_commit() -> None:
    """Make room for a checkpoint by removing the others before it is written."""
    from digideep.pipeline.fsio import remove_tree
    from digideep.pipeline.standing import StandingSegments

    save = _set("digideep.pipeline.checkpoint", "CheckpointStore.save", None)

    def deleting(self: Any, number: int, *more: Any, **options: Any) -> Any:
        for other in self.numbers():
            remove_tree(self.path(other), fs=self._fs)
        self._segments = StandingSegments(self._fs)
        return save(self, number, *more, **options)

    _set("digideep.pipeline.checkpoint", "CheckpointStore.save", deleting)


def _manifest_before_data() -> None:
    """Make the manifest and the name of a checkpoint durable first, and its other files afterwards."""
    late: list[str] = []
    fsync = _set(_FILES, "RealFileSystem.fsync", None)
    rename = _set(_FILES, "RealFileSystem.rename", None)
    files = importlib.import_module(_FILES)

    def unless_data(self: Any, descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if "/.tmp-" in path and not path.endswith("MANIFEST.json"):
            late.append(os.path.basename(path))
        else:
            fsync(self, descriptor)

    def then_data(self: Any, source: Path, target: Path) -> None:
        rename(self, source, target)
        while late and target.name.startswith("checkpoint-"):
            descriptor = files.os.open(target / late.pop(), os.O_RDONLY)
            fsync(self, descriptor)
            files.os.close(descriptor)

    _set(_FILES, "RealFileSystem.fsync", unless_data)
    _set(_FILES, "RealFileSystem.rename", then_data)


def _pickle_loader() -> None:
    """Read files of arrays as older programs did, where they look like it."""
    import pickle

    parse = _set("digideep.pipeline.verified", "_parse_arrays", None)

    def unpickling(reader: Any, size: int) -> Any:
        first = reader.read(2)
        if first[:1] == b"\x80":
            return pickle.loads(first + reader.read(size - 2))

        class Rest:
            @staticmethod
            def read(count: int) -> bytes:
                nonlocal first
                begun, first = first[:count], first[count:]
                return bytes(begun + reader.read(count - len(begun)))

            readinto = reader.readinto

        return parse(Rest(), size)

    _set("digideep.pipeline.verified", "_parse_arrays", unpickling)


class _Forked:
    """A worker that is forked and serves, without a session, signals and a watch of its own."""

    def __init__(self, command: list[str], **options: Any) -> None:
        reader, writer = os.pipe()
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            from digideep.environment.vec.serving import serve

            os.dup2(writer, 1)
            os.dup2(writer, 2)
            serve(socket.socket(fileno=os.dup(options["pass_fds"][0])))
            os._exit(0)
        os.close(writer)
        self.stdout = os.fdopen(reader, "rb")

    def poll(self) -> int | None:
        """Return the exit code, None while it runs."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code of a worker that has been killed or told to end."""
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode


def _forked_workers() -> None:
    import subprocess
    from types import SimpleNamespace

    module = "digideep.environment.vec.child"
    kept = {name: getattr(subprocess, name) for name in ("DEVNULL", "PIPE", "STDOUT", "TimeoutExpired")}
    _set(module, "subprocess", SimpleNamespace(Popen=_Forked, **kept))


def _handler_that_saves() -> None:
    """Save in the handler of SIGUSR1, wherever training happens to be."""
    runner = importlib.import_module("digideep.pipeline.runner").Runner
    start = runner.start

    def with_handler(self: Any, session: Any) -> None:
        start(self, session)
        signal.signal(signal.SIGUSR1, lambda number, frame: self.save(forced=True))

    runner.start = with_handler


def _dropped_rng() -> None:
    _set("digideep.pipeline.runner", "set_rng_state", lambda state: None)


def _dropped(owner: str, name: str, key: str) -> None:
    """Leave one part of a state as a new run has it."""
    load = _set(owner, f"{name}.load_state_dict", None)

    def forgetful(self: Any, state: Any) -> None:
        load(self, {**state, key: self.state_dict()[key]})

    _set(owner, f"{name}.load_state_dict", forgetful)


def _dropped_optimiser() -> None:
    _dropped("digideep.agent.ppo.agent", "PPOAgent", "optimiser")


def _dropped_normaliser() -> None:
    _dropped("digideep.utility.statistics", "Statistics", "observations")


def _swallowed_exit() -> None:
    """Go on where an environment has called sys.exit()."""
    forgive = _set("digideep.environment.vec.stepper", "Stepper._forgive", None)

    def swallowing(self: Any, i: int, error: BaseException, **options: Any) -> None:
        if not isinstance(error, SystemExit):
            forgive(self, i, error, **options)

    _set("digideep.environment.vec.stepper", "Stepper._forgive", swallowing)


def _open_tensorboard() -> None:
    serve = _set("digideep.pipeline.session", "serve", None)
    _set("digideep.pipeline.session", "serve", lambda directory, host, **more: serve(directory, host="0.0.0.0", **more))


def _lock_without_inode() -> None:
    _set("digideep.pipeline.locks", "SessionLock._still_named", lambda self, directory, file: True)


_A2 = "tests/faults/test_A2_power_loss.py::test_A2_no_crash_state_loses_an_announced_checkpoint"
_COMMITTED = "tests/faults/test_A2_power_loss.py::test_A2_a_committed_name_never_has_content_that_may_be_lost"
_B1 = "tests/faults/test_B1_resume_equals_never_stopping.py::test_B1_interrupted_and_resumed_equals_uninterrupted"
_B1 += "[toy_ppo-at an epoch boundary-0]"
_E5 = "tests/faults/test_harness.py::test_E5_a_worker_is_a_program_of_its_own_in_a_session_of_its_own"
_I1 = "tests/faults/test_harness.py::test_I1_no_program_of_a_test_can_be_reached_from_other_machines"
_C1 = "tests/faults/test_C1_one_process.py::"
_C1 += "test_C1_a_session_that_was_replaced_while_it_was_opened_is_not_taken_for_the_old_one"
_A5 = "tests/faults/test_A5_damage.py::test_A5_a_pickle_in_place_of_any_file_is_noticed_and_runs_nothing"
_D1 = "tests/faults/test_D1_sigusr1.py::test_D1_a_save_asked_for_anywhere_in_a_cycle_changes_no_bit"
_EXIT = "tests/environment/test_environment_exit.py"

MUTANTS = {
    "in-place writer": Mutant(_in_place, _COMMITTED, "MANIFEST.json: missing"),
    "no fsync": Mutant(_no_fsync, _A2, "< 1"),
    "no directory fsync": Mutant(_no_directory_fsync, _A2, "< 1"),
    "delete before commit": Mutant(_delete_before_commit, _A2, "< 1"),
    "manifest before data": Mutant(_manifest_before_data, _COMMITTED, "expected"),
    "pickle loader": Mutant(_pickle_loader, _A5, "canary"),
    "forked workers": Mutant(_forked_workers, _E5, "digideep.environment.vec.worker"),
    "handler that saves": Mutant(_handler_that_saves, _D1, "assert"),
    "dropped RNG": Mutant(_dropped_rng, _B1, "state/rng"),
    "dropped optimiser": Mutant(_dropped_optimiser, _B1, "state/agents.agent"),
    "dropped normaliser": Mutant(_dropped_normaliser, _B1, "state/statistics"),
    "swallowed SystemExit": Mutant(_swallowed_exit, _EXIT, "AssertionError"),
    "TensorBoard on all interfaces": Mutant(_open_tensorboard, _I1, "can be reached from other machines"),
    "lock without inode check": Mutant(_lock_without_inode, _C1, "DID NOT RAISE"),
}


def apply(name: str) -> None:
    """Change the product in this process."""
    MUTANTS[name].change()


def apply_from_environment() -> None:
    """Change the product in this process as the tests that have started it were asked to."""
    if name := os.environ.get(VARIABLE):
        sys.path.insert(0, str(Path(__file__).resolve().parent))
        apply(name)
