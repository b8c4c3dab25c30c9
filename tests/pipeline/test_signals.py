"""Signals become flags; handlers are put back; what came before is handed on."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from digideep.pipeline.signals import HANDLED, StopRequest


@pytest.fixture
def requests() -> Iterator[StopRequest]:
    made = StopRequest()
    made.install()
    yield made
    made.restore()


def test_sigusr1_asks_for_one_save(requests: StopRequest) -> None:
    for _ in range(50):
        os.kill(os.getpid(), signal.SIGUSR1)

    assert (requests.take_save(), requests.take_save(), requests.exit_code) == (True, False, None)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_the_first_stopping_signal_gives_the_exit_code(requests: StopRequest, number: int, code: int) -> None:
    requests.grace_s = 1000.0

    os.kill(os.getpid(), number)
    requests.request_stop(signal.SIGTERM)

    assert (requests.exit_code, requests.received()) == (code, [number])


def test_what_was_asked_for_can_be_handed_to_another_program(requests: StopRequest) -> None:
    requests.grace_s = 1000.0
    os.kill(os.getpid(), signal.SIGUSR1)
    os.kill(os.getpid(), signal.SIGTERM)

    assert requests.received() == [signal.SIGTERM, signal.SIGUSR1]


def test_former_handlers_come_back() -> None:
    before = [signal.getsignal(number) for number in HANDLED]
    requests = StopRequest()

    requests.install()
    during = [signal.getsignal(number) for number in HANDLED]
    requests.restore()
    requests.restore()

    assert [signal.getsignal(number) for number in HANDLED] == before
    assert during != before


def test_an_ignored_hangup_is_left_alone() -> None:
    former = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    requests = StopRequest()
    try:
        requests.install()
        os.kill(os.getpid(), signal.SIGHUP)
        assert (signal.getsignal(signal.SIGHUP), requests.exit_code) == (signal.SIG_IGN, None)
    finally:
        requests.restore()
        signal.signal(signal.SIGHUP, former)


def test_signals_that_were_blocked_across_an_exec_are_delivered() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
    # To this thread: one to the process would go to any other thread, where nothing is blocked.
    signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
    requests = StopRequest()
    try:
        requests.install()
        assert requests.take_save()
    finally:
        requests.restore()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
