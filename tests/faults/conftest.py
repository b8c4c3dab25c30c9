"""What holds for every test of this directory: nothing is left behind, nobody else can connect, nothing is traced."""

from __future__ import annotations

import multiprocessing.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cold import Cold
from drivers import Drivers, has_strace
from fakes import Ended
from hostile import train
from leftovers import CASE, Listeners, end, leftovers, processes, shared_names

Errors = list[str]


@pytest.fixture(scope="session", autouse=True)
def _places_made_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Make the directories that all tests share before one of them is blamed for them."""
    tmp_path_factory.getbasetemp()
    multiprocessing.util.get_temp_dir()


@pytest.fixture(scope="session")
def cold(_places_made_once: None) -> Iterator[Cold]:
    """Return the server that runs programs which refuse their arguments, without torch and Gymnasium."""
    server = Cold()
    yield server
    server.close()


@pytest.fixture(scope="session")
def warm(_places_made_once: None) -> Iterator[Cold]:
    """Return the server that runs programs which need torch anyway."""
    server = Cold(warm=True)
    yield server
    server.close()


@pytest.fixture(scope="session")
def trained(warm: Cold, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a session with checkpoints 0 and 1 and an epoch to go, signed by nobody who runs tests. Copy it."""
    return train(warm, tmp_path_factory.mktemp("trained"))


@pytest.fixture
def stderrs() -> Errors:
    """Return a list for what programs wrote to standard error; `no_traces` looks at it afterwards."""
    return []


@pytest.fixture(autouse=True)
def _nothing_is_left(_private_home: None, request: pytest.FixtureRequest) -> Iterator[Listeners | None]:
    """Fail a test that leaves a process, shared memory, a semaphore or a temporary file, or listens to others.

    Gives what looks for listeners, to a test that wants it to look at a certain moment.
    """
    if not sys.platform.startswith("linux"):
        yield None
        return
    case = os.urandom(8).hex()
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="case-") as directory:
        patch.setenv(CASE, case)
        patch.setenv("TMPDIR", directory)
        patch.setattr(tempfile, "tempdir", directory)
        processes_before, shared_before = processes(case), shared_names()
        with Listeners(case) as listeners:
            yield listeners
            listeners.look()
        left = leftovers(
            case, processes_before=processes_before, shared_before=shared_before, temporary=Path(directory)
        )
        end(processes(case) - processes_before)
    assert left == [], f"{request.node.name} leaves things behind"
    is_meant = request.node.get_closest_marker("open_to_others") is not None
    assert is_meant or listeners.found == set(), f"{request.node.name} can be reached from other machines"


@pytest.fixture(autouse=True)
def _no_traces(
    _nothing_is_left: None, request: pytest.FixtureRequest, tmp_path: Path, stderrs: Errors
) -> Iterator[None]:
    """Fail a test in which a program printed a traceback, unless `expects_traceback` says that it has to."""
    yield
    files = [*tmp_path.glob("stderr-*"), *tmp_path.glob("*/stderr-*")]
    traced = ["Traceback" in text for text in (*stderrs, *(path.read_text(errors="replace") for path in files))]
    expected = request.node.get_closest_marker("expects_traceback") is not None
    assert any(traced) == expected, "\n".join(text for text in stderrs if "Traceback" in text)


@pytest.fixture
def command(command: Callable[..., Ended], stderrs: Errors) -> Callable[..., Ended]:
    """Return the function that runs the program in this process; what it says to standard error is kept."""

    def run(*argv: str, **options: Any) -> Ended:
        ended = command(*argv, **options)
        stderrs.append(ended.err)
        return ended

    return run


@pytest.fixture
def execute(tmp_path: Path, stderrs: Errors) -> Callable[..., Ended]:
    """Return a function that runs `python -m MODULE` as a user does, by default the program, and waits for its end."""

    def run(
        *argv: str, module: str = "digideep.main", expect: int | None = 0, timeout_s: float = 120.0, **options: Any
    ) -> Ended:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **options.pop("env", {})}
        done = subprocess.run(
            [sys.executable, "-P", "-m", module, *argv],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            env=environment,
            **{"cwd": tmp_path, **options},
        )
        stderrs.append(done.stderr)
        ended = Ended(done.returncode, done.stdout.splitlines(), done.stderr)
        assert expect is None or ended.code == expect, f"{argv}: exit code {ended.code}\n{ended.out}\n{ended.err}"
        return ended

    return run


@pytest.fixture(scope="session")
def drivers() -> Iterator[Drivers]:
    """Return what starts storage drivers."""
    drivers = Drivers()
    yield drivers
    drivers.close()


@pytest.fixture
def strace() -> None:
    """Leave a test out where there is no strace that may trace; CI fails then."""
    if not has_strace():
        pytest.skip("expected strace that may trace, found none; install it")
