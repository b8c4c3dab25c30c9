"""Signals to the whole process group, as a terminal and a queue send them, end no worker before its run."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest
from fakes import Ended, Program
from signalling import workers_of

ENDLESS = ["number_epochs=100000", "test_activate=false", "save_interval=0", "num_workers=2"]


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_D6_signals_to_the_whole_group_do_not_kill_workers(
    start: Callable[..., Program],
    resume: Callable[..., Ended],
    toy: Callable[..., list[str]],
    name: str,
    code: int,
) -> None:
    program = start(*toy("group", *ENDLESS))
    program.wait_for("saved ")
    assert len(workers_of(program.pid)) == 2

    os.killpg(program.pid, signal.SIGUSR1)
    program.wait_for("saved ")
    os.killpg(program.pid, signal.Signals[name])
    ended = program.end()

    assert ended.code == code
    assert "Traceback" not in ended.err
    assert "ended" not in ended.err.replace("ends after", "")
    resume(ended.session, "--set", "/runner/n_epochs=1", "/runner/max_iter=1")


def test_D6_signals_to_the_workers_themselves_are_ignored(
    start: Callable[..., Program], toy: Callable[..., list[str]]
) -> None:
    program = start(*toy("group", *ENDLESS))
    program.wait_for("saved ")
    workers = workers_of(program.pid)

    for worker in workers:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            worker.send_signal(number)
    program.send(signal.SIGUSR1)
    program.wait_for("saved ")
    left = workers_of(program.pid)
    program.send(signal.SIGTERM)

    assert program.end().code == 143
    assert [worker.pid for worker in left] == [worker.pid for worker in workers]
