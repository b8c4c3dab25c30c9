"""SIGUSR1 saves and goes on, and no bit of the result shows that it came."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable

import pytest
from fakes import Ended, Program, check_logs_continue, checkpoints, differences, read

Run = Callable[..., Ended]
Start = Callable[..., Program]
Toy = Callable[..., list[str]]

ENDLESS = ["number_epochs=100000", "test_activate=false", "save_interval=0"]


@pytest.fixture
def rng() -> random.Random:
    seed = int(os.environ.get("DIGIDEEP_TEST_SEED", random.randrange(2**32)))
    print("DIGIDEEP_TEST_SEED", seed)
    return random.Random(seed)


def test_D1_sigusr1_saves_and_goes_on(start: Start, toy: Toy) -> None:
    program = start(*toy("saving", *ENDLESS))
    program.wait_for("saved ")

    program.send(signal.SIGUSR1)
    program.wait_for("saved ")
    program.send(signal.SIGUSR1)
    program.wait_for("saved ")
    program.send(signal.SIGTERM)

    assert len(set(program.end().saved)) >= 3


def test_D1_a_save_asked_for_anywhere_in_a_cycle_changes_no_bit(command: Run, toy: Toy) -> None:
    sets = ["test_win_size=1", "save_interval=0", "keep_last=9"]
    straight = command(*toy("straight", *sets)).session
    moments = {moment: ["SIGUSR1"] for moment in ("start", "cycle 2", "learnt 3", "test 2", "save 5", "cycle 8")}

    asked = command(*toy("asked", *sets), moments=moments).session

    assert checkpoints(straight) == [0, 8]
    assert checkpoints(asked) == [0, 1, 2, 3, 4, 8]  # in the test of epoch 2: after its last cycle, which is the fourth
    assert differences(straight, asked) == []
    check_logs_continue(asked)


def test_D1_sigusr1_may_be_asked_to_stop(digideep: Run, resume: Run, toy: Toy) -> None:
    ended = digideep(*toy("stop", "on_sigusr1=stop"), moments={"cycle 3": ["SIGUSR1"]}, expect=75)

    assert ended.saved[-1] == "checkpoint-3"
    assert read(ended.session / "summary.json")["reason"] == "SIGUSR1"
    resume(ended.session)


def test_D1_a_storm_of_two_thousand_changes_no_bit(start: Start, command: Run, toy: Toy, rng: random.Random) -> None:
    sets = ["number_epochs=12", "test_interval=4", "test_win_size=1"]
    straight = command(*toy("straight", *sets)).session
    program = start(*toy("storm", *sets))
    program.wait_for("session: ")

    for _ in range(2000):
        try:
            program.send(signal.SIGUSR1)
        except ProcessLookupError:
            break
        if rng.random() < 0.01:
            time.sleep(rng.random() / 100)  # a random moment, not a wait for anything
    ended = program.end()

    assert ended.code == 0
    assert len(ended.saved) > 5
    assert differences(straight, ended.session) == []
    check_logs_continue(ended.session)
