"""Nothing of a run can be reached from other machines, and without being asked for nothing listens at all."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
from fakes import Program, wait_until

ENDLESS = ["number_epochs=100000", "test_activate=false", "save_interval=0", "num_workers=2"]


def _open_to(pid: int) -> set[str]:
    """Return the addresses at which a program and all below it can be reached, by TCP or UDP."""
    found = set()
    program = psutil.Process(pid)
    for process in (program, *program.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            for socket in process.net_connections(kind="inet"):
                if socket.status in (psutil.CONN_LISTEN, psutil.CONN_NONE) and socket.laddr:
                    found.add(socket.laddr.ip)
    return found


def test_I1_a_run_with_workers_listens_to_nobody(start: Callable[..., Program], toy: Callable[..., list[str]]) -> None:
    program = start(*toy("closed", *ENDLESS))
    program.wait_for("saved ")

    assert len(psutil.Process(program.pid).children(recursive=True)) >= 2
    assert _open_to(program.pid) == set()
    program.send(signal.SIGTERM)
    assert program.end().code == 143


def test_I1_tensorboard_listens_to_this_machine_only(
    start: Callable[..., Program], toy: Callable[..., list[str]], tmp_path: Path
) -> None:
    program = start(*toy("served", *ENDLESS), "--tensorboard")
    program.wait_for("saved ")
    report = Path(program.out[0].removeprefix("session: ")) / "report.log"

    wait_until(lambda: "TensorBoard: http://127.0.0.1:" in report.read_text(), timeout_s=60)

    assert _open_to(program.pid) == {"127.0.0.1"}
    program.send(signal.SIGTERM)
    assert program.end().code == 143
