"""What the runner remembers: when an epoch ends, and which goal is reached."""

from __future__ import annotations

import pytest

from digideep.pipeline.state import Goal, RunnerState
from digideep.types import Counters

EPOCHS = Goal(3, 0, None)
FRAMES = Goal(0, 100, None)


def test_an_epoch_ends_after_its_cycles_and_waits_for_test_and_log() -> None:
    state = RunnerState()

    first = state.after_cycle(n_cycles=2, goal=EPOCHS, counters=Counters())
    second = first.after_cycle(n_cycles=2, goal=EPOCHS, counters=Counters())
    settled = second.next_epoch().settled()

    assert (first.cycle, first.epoch, first.epoch_cycles, first.pending) == (1, 0, 1, False)
    assert (second.cycle, second.epoch, second.epoch_cycles, second.pending) == (2, 0, 2, True)
    assert (settled.cycle, settled.epoch, settled.epoch_cycles, settled.pending) == (2, 1, 0, False)


def test_an_epoch_ends_early_where_the_frames_are_there() -> None:
    state = RunnerState().after_cycle(n_cycles=5, goal=FRAMES, counters=Counters(env_steps=100))

    assert state.pending


@pytest.mark.parametrize(
    ("state", "goal", "frames", "reached"),
    [
        (RunnerState(epoch=2), EPOCHS, 0, ""),
        (RunnerState(epoch=3), EPOCHS, 0, "goal: 3 epochs"),
        (RunnerState(epoch=9), FRAMES, 99, ""),
        (RunnerState(epoch=0), FRAMES, 100, "goal: 100 frames"),
    ],
)
def test_a_goal_is_reached_when_it_is(state: RunnerState, goal: Goal, frames: int, reached: str) -> None:
    assert state.reached(goal, counters=Counters(env_steps=frames)) == reached


def test_the_state_survives_being_plain_data() -> None:
    state = RunnerState(epoch=2, cycle=5, epoch_cycles=1, pending=True)

    assert RunnerState.from_plain({**state.to_plain(), "something": "else"}) == state
