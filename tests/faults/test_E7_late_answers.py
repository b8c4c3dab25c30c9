"""A late answer is never taken for a later one."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest
from failing_parts import Steady, copied, explorer

from digideep.environment.vec.process import ProcessVecEnv
from digideep.environment.vec.signals import ANSWERED, STARTED


def test_E7_an_answer_that_nobody_waits_for_is_passed_over() -> None:
    made = explorer(num_workers=1)
    with contextlib.closing(made):
        made.update()
        vec = made._vec
        assert isinstance(vec, ProcessVecEnv)
        (child,) = vec._workers.children
        vec._workers.send(child, vec._workers.next_number(), ["states", []])  # as after an interrupt

        timings = made.timings()
        made.update()

    assert timings["worker0"].children["step"].count == 8
    assert len(made.episodes()) == 6


@pytest.mark.parametrize("num_workers", [1, 2])
def test_E7_a_worker_that_wakes_up_after_the_limit_answers_nobody(num_workers: int) -> None:
    """A stopped worker is ended at the limit; what it would have answered meets neither its successor nor the next."""

    def before(call: int) -> None:
        if call == 3:
            os.kill(pid, signal.SIGSTOP)

    made = explorer(num_workers=num_workers, num_envs=2, n_steps=6, step_timeout_s=1.0, actor=Steady(before))
    quiet = explorer(num_workers=0, num_envs=2, n_steps=6)
    with contextlib.closing(made), contextlib.closing(quiet):
        vec = made._vec
        assert isinstance(vec, ProcessVecEnv)
        pid = vec._workers.children[0].pid
        chunk = copied(made.update())
        state = made.state_dict()
        expected = [copied(made.update()) for _ in range(2)]
        quiet.load_state_dict(state)
        found = [copied(quiet.update()) for _ in range(2)]
        words = [(view[STARTED], view[ANSWERED]) for view in vec._words]
        steps = made.timings()["worker0"].children["step"].count

        assert made.restarts == 1
        assert steps == 2 + 6 + 6  # of the successor: none but those after the one in which it came
        assert chunk["/masks"][0].tolist() == [0, 1, 1, 1, 0, 1, 1]
        assert len({answered for _, answered in words}) == 1
        for one, other in zip(expected, found, strict=True):
            assert {key for key in one if one[key].tobytes() != other[key].tobytes()} == set()


def test_E7_an_environment_that_comes_back_after_the_limit_is_gone(tmp_path: Path) -> None:
    once = str(tmp_path / "once")
    made = explorer(
        num_workers=1, num_envs=1, step_timeout_s=1.0, kwargs={"fault": "hang", "at": 2, "once": once}, n_steps=6
    )
    with contextlib.closing(made):
        masks = copied(made.update())["/masks"][0]
        episodes = made.episodes()

    assert masks.tolist() == [0, 1, 0, 1, 1, 1, 1]
    assert episodes == []
    assert made.restarts == 1
