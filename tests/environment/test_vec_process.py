"""Worker processes: what they do when an environment, they themselves, or their parent fail."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from fakes_vec import ALLOWED

from digideep.environment.config import EnvConfig
from digideep.environment.vec.process import ProcessVecEnv
from digideep.environment.vec.slab import RESET, RUN
from digideep.errors import EnvironmentFailure, TrustError, UsageError, WorkerError

ENVS = 3


class Factory:
    """Makes vector environments and closes them at the end of a test."""

    def __init__(self) -> None:
        self.made: list[ProcessVecEnv] = []

    def __call__(
        self, *, name: str = "Script-v0", timeout_s: float = 20.0, workers: int = 2, start: bool = True, **kwargs: Any
    ) -> ProcessVecEnv:
        config = EnvConfig(model_name=name, from_module="fakes_vec", env_kwargs={"lengths": [3], **kwargs})
        vec = ProcessVecEnv(config, num_envs=ENVS, num_workers=workers, allowed=ALLOWED, step_timeout_s=timeout_s)
        self.made.append(vec)
        if start:
            slab = vec.attach(4)
            slab.next_seeds[:] = [7, 8, 9]
            slab.modes.fill(RESET)
            vec.reset(4)
            slab.modes.fill(RUN)
        return vec


@pytest.fixture
def make() -> Iterator[Factory]:
    factory = Factory()
    yield factory
    for vec in factory.made:
        vec.close()


def run(vec: ProcessVecEnv, steps: int = 8) -> None:
    for t in range(steps):
        vec.step(t % 4)


def pids(vec: ProcessVecEnv) -> list[int]:
    return [child.pid for child in vec._workers.children]


def wait_until(condition: Callable[[], bool], *, seconds: float = 10.0) -> bool:
    """Whether `condition` came true in time; for what other processes do, which nobody tells."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return condition()


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_an_exception_in_a_worker_is_one_line_with_its_traceback_beside_it(make: Factory) -> None:
    vec = make(fault="step", fault_at=5)

    with pytest.raises(EnvironmentFailure) as raised:
        run(vec)

    # Environment 0 is the first of worker 0; its fifth step is the second of its second episode.
    assert str(raised.value) == "environment 0 (Script-v0, worker 0, seed 7, episode 1, step 2): KeyError: 'torque'"
    assert type(raised.value) is EnvironmentFailure
    assert "fakes_vec.py" in raised.value.traceback_text  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("exit", "expected a running worker, found that it ended with exit code 3"),
        ("kill", r"expected a running worker, found that it died of signal 9 \(SIGKILL\); was memory short\?"),
    ],
)
def test_a_worker_that_dies_in_a_step_is_noticed_and_named(make: Factory, fault: str, message: str) -> None:
    vec = make(fault=fault, fault_at=5, workers=1)
    begun = time.monotonic()

    with pytest.raises(WorkerError, match=message) as raised:
        run(vec)

    assert str(raised.value).startswith("environment 0 (Script-v0, worker 0, seed 7, episode 1, step 2): ")
    assert time.monotonic() - begun < 5.0


def test_a_worker_that_dies_while_idle_is_noticed_at_the_next_step(make: Factory) -> None:
    vec = make()
    run(vec, 2)
    os.kill(pids(vec)[1], signal.SIGKILL)

    with pytest.raises(WorkerError, match=r"worker 1, .*died of signal 9"):
        run(vec)


def test_a_worker_that_dies_is_noticed_by_other_requests_too(make: Factory) -> None:
    vec = make()
    os.kill(pids(vec)[0], signal.SIGKILL)

    with pytest.raises(WorkerError, match=r"worker 0, .*died of signal 9"):
        vec.states()


def test_a_hang_ends_at_the_time_limit_with_the_stack_of_the_worker(make: Factory) -> None:
    vec = make(fault="hang", fault_at=2, timeout_s=1.0)

    with pytest.raises(WorkerError, match=r"expected an answer within 1 s \(step_timeout_s\), found none") as raised:
        run(vec)

    assert "_go_wrong" in raised.value.traceback_text  # type: ignore[attr-defined]


def test_a_worker_that_does_not_read_is_a_hang(make: Factory) -> None:
    vec = make(timeout_s=1.0)
    states = [{**state, "environment": np.zeros(4 * 2**20, np.uint8)} for state in vec.states()]
    os.kill(pids(vec)[1], signal.SIGSTOP)

    with pytest.raises(WorkerError, match=r"worker 1, .*expected an answer within 1 s \(step_timeout_s\), found none"):
        vec.load_states(states)


def test_signals_for_the_group_and_for_a_worker_leave_it_running(make: Factory) -> None:
    vec = make()
    for pid in pids(vec):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
            os.kill(pid, number)

    run(vec)

    assert all(os.getpgid(pid) == pid for pid in pids(vec))


def test_a_failing_reset_is_named(make: Factory) -> None:
    with pytest.raises(EnvironmentFailure, match=r"episode 0, step 0\): ValueError: the world is not there"):
        make(fault="reset", fault_at=0)


def test_errors_while_environments_are_made_keep_their_class(make: Factory) -> None:
    config = EnvConfig(model_name="CartPol-v1")

    with pytest.raises(UsageError, match="CartPole"):
        ProcessVecEnv(config, num_envs=2, num_workers=1)
    with pytest.raises(TrustError, match="fakes_vec"):
        ProcessVecEnv(EnvConfig(model_name="Script-v0", from_module="fakes_vec"), num_envs=2, num_workers=1)
    with pytest.raises(EnvironmentFailure, match=r"no such file: world\.xml"):
        make(fault="init", start=False)


def test_environments_are_closed_in_every_worker(make: Factory, tmp_path: Path) -> None:
    vec = make(fault="close", mark=str(tmp_path / "closed"))

    vec.close()

    assert len(list((tmp_path / "closed").iterdir())) == ENVS


def test_nothing_is_left_after_close(make: Factory) -> None:
    me = psutil.Process()
    gc.collect()
    children, descriptors, threads = set(me.children(recursive=True)), me.num_fds(), me.num_threads()
    vec = make(workers=3)
    run(vec)

    vec.close()
    del vec
    make.made.clear()
    gc.collect()

    assert set(me.children(recursive=True)) == children
    assert me.num_fds() == descriptors
    assert me.num_threads() == threads


def test_what_an_environment_has_started_ends_with_its_worker(make: Factory, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    vec = make(fault="child", fault_at=1, mark=str(mark), workers=1)
    run(vec, 1)
    grandchild = int(mark.read_text())
    assert not is_gone(grandchild)

    vec.close()

    assert wait_until(lambda: is_gone(grandchild))


PARENT = """
import sys
sys.path[:0] = {path!r}
from test_vec_process import Factory, run
vec = Factory()(fault={fault!r}, fault_at=1, mark={mark!r}, workers=1)
print(vec._workers.children[0].pid, flush=True)
run(vec, 1)
print("stepped", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("fault", ["close", "hang"])
def test_workers_end_with_a_parent_that_was_killed(tmp_path: Path, fault: str) -> None:
    mark = tmp_path / "closed"
    program = PARENT.format(path=[str(Path(__file__).parent)], fault=fault, mark=str(mark))
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        if fault == "close":
            assert parent.stdout.readline() == "stepped\n"
        else:
            assert wait_until(mark.exists)

        parent.kill()

        assert wait_until(lambda: is_gone(worker))
    if fault == "close":
        assert len(list(mark.iterdir())) == ENVS


def test_what_a_worker_prints_is_logged_and_not_without_end(make: Factory, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="digideep.environment.vec.child"):
        vec = make(fault="print", fault_at=1, workers=1)
        run(vec, 1)
        vec.close()

    assert caplog.messages.count("worker 0: " + "x" * 50) == ENVS


def test_workers_import_no_torch_and_use_one_thread(make: Factory) -> None:
    vec = make(workers=1)

    environment = psutil.Process(pids(vec)[0]).environ()
    maps = Path(f"/proc/{pids(vec)[0]}/maps").read_text() if Path("/proc").is_dir() else ""

    assert environment["OPENBLAS_NUM_THREADS"] == environment["OMP_NUM_THREADS"] == "1"
    assert "libtorch" not in maps


def test_a_step_after_close_is_refused(make: Factory) -> None:
    vec = make()
    vec.close()

    with pytest.raises(WorkerError, match="expected open workers"):
        vec.states()
    assert np.isfinite(vec.tick)
