"""Workers whose parent steps a share of its own: the same numbers, and what goes wrong on either side."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fakes_vec import Follower, explorer

from digideep.environment.explorer import Explorer
from digideep.environment.recovery import Supervision
from digideep.environment.vec.hang import HangWatch
from digideep.environment.vec.process import ProcessVecEnv
from digideep.environment.vec.restart import RestartBudget
from digideep.errors import EnvironmentFailure, WorkerError

LENGTHS = [3, 1, 6]
HERE = os.getpid()


class Careless(Follower):
    """Does not mind where an episode ends before its time; calls `before` with the number of each call."""

    def __init__(self, before: Callable[[int], None] = lambda call: None) -> None:
        super().__init__()
        self.before = before

    def act(self, *args: Any, **kwargs: Any) -> Any:
        self.before(len(self.calls))
        self.last = None
        return super().act(*args, **kwargs)


def started(num_workers: int = 1, *, actor: Any = None, **fields: Any) -> Explorer:
    kwargs = {"lengths": LENGTHS, **fields.pop("kwargs", {})}
    made = explorer(num_workers=num_workers, parent_steps=True, kwargs=kwargs, **fields)
    made.set_actors({"agent": actor or Follower()})
    return made


def played(made: Explorer, chunks: int = 3) -> tuple[list[dict[str, Any]], list[Any]]:
    with contextlib.closing(made):
        arrays = [{key: array.copy() for key, array in made.update().arrays.items()} for _ in range(chunks)]
        return arrays, made.episodes()


def assert_same(one: tuple[list[dict[str, Any]], list[Any]], other: tuple[list[dict[str, Any]], list[Any]]) -> None:
    for left, right in zip(one[0], other[0], strict=True):
        assert {key for key in left if left[key].tobytes() != right[key].tobytes()} == set()
    assert one[1] == other[1]


@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_share_of_this_process_changes_no_bit(num_workers: int) -> None:
    made = started(num_workers, num_envs=5)
    shared = isinstance(made._vec, ProcessVecEnv) and made._vec._own is not None

    found = played(made)

    assert shared
    assert_same(found, played(started(0, num_envs=5)))


@pytest.mark.parametrize("before", [0, 1])
def test_a_state_goes_on_to_the_same_bits_with_and_without_a_share(before: int) -> None:
    first = started(before)
    for _ in range(2):
        first.update()
    first.episodes()
    state = first.state_dict()
    exactness = first.exactness
    expected = played(first)
    resumed = started(1 - before)
    resumed.load_state_dict(state)

    found = played(resumed)

    assert exactness == "exact"
    assert_same(found, expected)


def test_the_share_is_the_last_one_and_has_the_number_after_the_workers() -> None:
    made = started(2, num_envs=5)
    with contextlib.closing(made):
        vec = made._vec
        assert isinstance(vec, ProcessVecEnv) and vec._own is not None
        held = [child.envs for child in vec._workers.children]

        assert (held, vec._own.num_envs) == ([range(0, 2), range(2, 4)], 1)
        assert [vec.worker_of(env) for env in range(5)] == [0, 0, 1, 1, 2]


@pytest.mark.parametrize(
    ("fields", "taken"),
    [
        ({"num_workers": 2}, (2, False)),
        ({"num_workers": 2, "parent_steps": True}, (2, True)),
        ({"num_workers": 9, "parent_steps": True}, (2, True)),
        ({"num_workers": 9}, (3, False)),
        ({"num_workers": 0, "parent_steps": True}, (0, False)),
        ({"num_workers": 1, "num_envs": 1, "parent_steps": True}, (0, False)),
        ({"num_workers": "auto", "mode": "test"}, (0, False)),
    ],
)
def test_workers_that_were_asked_for_hold_all_environments_unless_a_share_is_asked_for(
    fields: dict[str, Any], taken: tuple[int, bool]
) -> None:
    with contextlib.closing(explorer(**fields)) as made:
        assert (made.num_workers, made.parent_steps) == taken


def test_a_failure_in_the_own_share_is_told_as_one_of_a_worker_is() -> None:
    made = started(kwargs={"lengths": [3], "fault": "step", "only_in": HERE}, num_envs=2)

    with contextlib.closing(made), pytest.raises(EnvironmentFailure) as raised:
        played(made)

    error: Any = raised.value
    assert "environment 1 (Script-v0, worker 1, seed " in str(error)
    assert "episode 1, step 2): KeyError: 'torque'" in str(error)
    assert "fakes_vec.py" in error.traceback_text
    assert (error.crash["env_index"], error.crash["phase"], error.crash["step"]) == (1, "step", 2)
    assert len(error.crash["actions"][""]) == 2


def test_of_two_failures_in_one_step_the_first_environment_is_told_and_workers_are_at_rest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = started(kwargs={"fault": "step"}, num_envs=2)

    with contextlib.closing(made):
        with pytest.raises(EnvironmentFailure, match=r"environment 0 \(Script-v0, worker 0, "):
            made.update()
            made.update()
        assert not any(around.is_open for around in made._vec._rounds)  # type: ignore[attr-defined]
        assert len(made._vec.states()) == 2
    logged = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(logged) == 1
    assert "environment 1 (Script-v0, worker 1, " in logged[0] and "KeyError: 'torque'" in logged[0]


def test_a_failure_in_the_own_share_is_forgiven_there() -> None:
    kwargs = {"lengths": [9], "fault": "step", "only_in": HERE}
    made = started(actor=Careless(), kwargs=kwargs, num_envs=2, on_env_error="reset")

    chunks, _ = played(made, chunks=2)

    assert made.env_errors == 1
    masks = np.concatenate([chunk["/masks"][:, :-1] for chunk in chunks], axis=1)
    np.testing.assert_array_equal(masks, [[0, 1, 1, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 0, 1, 1]])


def test_a_hang_in_the_own_share_ends_at_the_limit() -> None:
    made = started(kwargs={"fault": "hang", "only_in": HERE}, num_envs=2, step_timeout_s=1.0)

    with contextlib.closing(made), pytest.raises(EnvironmentFailure) as raised:
        played(made)

    error: Any = raised.value
    assert type(error) is EnvironmentFailure
    assert "environment 1 (Script-v0, worker 1, " in str(error)
    assert "expected an answer within 1 s (step_timeout_s), found none" in str(error)
    assert "_go_wrong" in error.traceback_text


def test_a_worker_that_dies_beside_the_own_share_is_replaced_alone() -> None:
    def kill(call: int) -> None:
        if call == 2:
            os.kill(children[0].pid, signal.SIGKILL)

    supervision = Supervision(RestartBudget())
    made = started(actor=Careless(kill), num_envs=2, kwargs={"lengths": [9]}, supervision=supervision)
    assert isinstance(made._vec, ProcessVecEnv)
    children = made._vec._workers.children

    chunks, _ = played(made, chunks=2)

    assert made.restarts == 1
    masks = np.concatenate([chunk["/masks"][:, :-1] for chunk in chunks], axis=1)
    np.testing.assert_array_equal(masks, [[0, 1, 1, 0, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1, 1, 1]])


def test_a_worker_that_hangs_beside_the_own_share_is_ended_at_the_limit() -> None:
    made = started(num_envs=2, step_timeout_s=1.0, supervision=Supervision(RestartBudget(0)))
    assert isinstance(made._vec, ProcessVecEnv)
    made.update()
    os.kill(made._vec._workers.children[0].pid, signal.SIGSTOP)

    with contextlib.closing(made), pytest.raises(WorkerError, match=r"worker 0, .*within 1 s \(step_timeout_s\)"):
        made.update()


def test_everything_is_closed_and_nothing_watches_any_more() -> None:
    threads = threading.active_count()
    made = started(2, num_envs=5)
    watch = made._vec._own._watch  # type: ignore[attr-defined]
    made.update()

    made.close()
    made.close()

    assert isinstance(watch, HangWatch) and not watch._thread.is_alive()
    assert threading.active_count() == threads
