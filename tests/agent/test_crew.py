"""Jobs side by side in threads that belong to a crew."""

from __future__ import annotations

import os
import signal
import threading
import warnings

import numpy as np
import pytest

from digideep.agent.continuous.crew import Crew


def test_a_crew_returns_results_in_order_and_raises_the_first_error() -> None:
    def fail() -> int:
        raise ZeroDivisionError("of a job")

    for threads in (1, 2, 3):
        crew = Crew(threads)
        assert crew.run(*(lambda n=n: n for n in range(5))) == [0, 1, 2, 3, 4]  # type: ignore[misc]
        with pytest.raises(ZeroDivisionError, match="of a job"):
            crew.run(lambda: 1, fail)


def test_an_error_of_the_first_job_waits_for_the_others_to_end() -> None:
    may_end, has_ended = threading.Event(), threading.Event()

    def fail() -> None:
        may_end.set()
        raise ZeroDivisionError("of a job")

    def last() -> None:
        may_end.wait(30.0)
        sum(range(300_000))
        has_ended.set()

    with pytest.raises(ZeroDivisionError, match="of a job"):
        Crew(2).run(fail, last)

    assert has_ended.is_set()


def test_a_crew_starts_no_more_threads_than_there_are_jobs_for() -> None:
    before = set(threading.enumerate())
    crew = Crew(8)

    crew.run(*(threading.get_ident for _ in range(2)))

    assert len(set(threading.enumerate()) - before) == 1


def test_a_crew_works_in_a_fork_of_its_process() -> None:
    crew = Crew(2)
    crew.run(int, int)

    with warnings.catch_warnings():  # that there are threads is what this is about
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        signal.alarm(30)  # without threads of its own it would wait for ever
        found: list[int] = []
        try:
            found = crew.run(lambda: 1, lambda: 2)
        finally:
            os._exit(0 if found == [1, 2] else 1)

    assert os.waitpid(child, 0)[1] == 0


def test_what_numpy_does_about_overflows_holds_in_every_thread_of_a_crew() -> None:
    large = np.full(3, 1e38, np.float32)

    with np.errstate(over="ignore"):
        found = Crew(2).run(*(lambda: (large * large).max() for _ in range(2)))

    assert np.isinf(found).all()
    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        Crew(2).run(lambda: large.max(), lambda: (large * large).max())


def test_threads_of_a_crew_end_with_it_and_keep_no_program_from_ending() -> None:
    before = set(threading.enumerate())
    crew = Crew(3)
    crew.run(*(lambda: threading.get_ident() for _ in range(6)))
    started = set(threading.enumerate()) - before

    del crew
    for thread in started:
        thread.join(timeout=30.0)

    assert len(started) == 2
    assert all(thread.daemon for thread in started)
    assert not any(thread.is_alive() for thread in started)
