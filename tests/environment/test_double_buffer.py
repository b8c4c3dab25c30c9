"""Acting in halves: the same numbers whether one half is stepped meanwhile or not, and what goes wrong in between."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from fakes_vec import Counter, Follower, explorer

from digideep.environment.explorer import Explorer
from digideep.environment.recovery import Supervision
from digideep.environment.vec.process import ProcessVecEnv
from digideep.environment.vec.restart import RestartBudget
from digideep.environment.vec.rounds import Round
from digideep.errors import ConfigError, EnvironmentFailure, NonFiniteError, WorkerError
from digideep.types import ActorOutput

Played = tuple[list[dict[str, Any]], list[Any]]


class Drawing(Follower):
    """Draws from one generator, so that the order of the halves is part of what it decides; `before` sees each call."""

    def __init__(self, before: Callable[[int], None] = lambda call: None) -> None:
        super().__init__()
        self.rng = np.random.default_rng(5)
        self.before = before
        self.rows: list[int] = []

    def act(self, observations: Mapping[str, Any], *args: Any, **kwargs: Any) -> ActorOutput:
        self.before(len(self.rows))
        shown = observations["observation"]
        self.rows.append(len(shown))
        actions = self.rng.integers(0, 2, len(shown))
        values = shown[:, 1].astype(np.float32)
        return ActorOutput({"": actions}, {"log_probs": -values, "values": values})


def started(num_workers: int = 0, *, actor: Any = None, act_groups: int = 2, **fields: Any) -> Explorer:
    kwargs = {"lengths": [3, 1, 6], **fields.pop("kwargs", {})}
    fields = {"num_envs": 6, "supervision": Supervision(RestartBudget()), **fields}
    made = explorer(num_workers=num_workers, act_groups=act_groups, kwargs=kwargs, **fields)
    made.set_actors({"agent": actor or Drawing()})
    return made


def played(made: Explorer, chunks: int = 3) -> Played:
    with contextlib.closing(made):
        arrays = [{key: array.copy() for key, array in made.update().arrays.items()} for _ in range(chunks)]
        return arrays, made.episodes()


def different(one: Played, other: Played) -> set[str]:
    pairs = [(left, right, key) for left, right in zip(one[0], other[0], strict=True) for key in left]
    keys = {key for left, right, key in pairs if left[key].tobytes() != right[key].tobytes()}
    return keys | (set() if one[1] == other[1] else {"episodes"})


def rounds(made: Explorer) -> list[Round]:
    assert isinstance(made._vec, ProcessVecEnv)
    return made._vec._rounds


def masks(found: Played) -> list[list[int]]:
    return np.concatenate([chunk["/masks"][:, :-1] for chunk in found[0]], axis=1).astype(int).tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("num_workers", "groups"), [(1, 0), (2, 2), (3, 0), (4, 2)], ids=["1 worker", "2", "3 workers", "4"]
)
@pytest.mark.parametrize("kind", [Drawing, Counter])
def test_stepping_one_half_while_the_other_acts_changes_no_bit(num_workers: int, groups: int, kind: Any) -> None:
    made = started(num_workers, actor=kind())
    overlapping = len(made._vec.groups)

    found = played(made)

    assert overlapping == groups
    assert different(found, played(started(0, actor=kind()))) == set()


def test_each_half_acts_for_itself_while_the_other_is_stepped() -> None:
    open_before: list[tuple[bool, bool]] = []
    actor = Drawing(lambda call: open_before.append((rounds(made)[0].is_open, rounds(made)[1].is_open)))
    made = started(2, actor=actor)

    played(made, chunks=1)

    assert actor.rows == [3] * 8
    # Before the first call nothing has begun; from then on the other half is always on its way.
    assert open_before == [(False, False), (True, False), *[(False, True), (True, False)] * 3]


def test_acting_at_once_is_the_default() -> None:
    actor = Drawing()

    played(started(2, actor=actor, act_groups=1), chunks=1)

    assert actor.rows == [6] * 4


@pytest.mark.parametrize(("before", "after"), [(0, 2), (2, 0)])
def test_a_state_goes_on_to_the_same_bits_with_and_without_overlap(before: int, after: int) -> None:
    steady = Counter()
    first = started(before, actor=steady)
    for _ in range(2):
        first.update()
    first.episodes()
    state = first.state_dict()
    exactness = first.exactness
    expected = played(first)
    resumed = started(after, actor=steady)
    resumed.load_state_dict(state)

    found = played(resumed)

    assert exactness == "exact"
    assert different(found, expected) == set()


@pytest.mark.parametrize("fault_at", [2, 4, 5])
def test_a_forgiven_failure_is_in_the_same_row_with_and_without_overlap(fault_at: int) -> None:
    fields: dict[str, Any] = {
        "kwargs": {"lengths": [9], "fault": "step", "fault_at": fault_at}, "on_env_error": "reset",
        "env_error_budget": 100,
    }  # fmt: skip
    serial, overlapping = started(0, **fields), started(2, **fields)

    expected, found = played(serial), played(overlapping)

    assert serial.env_errors == overlapping.env_errors > 0
    assert different(found, expected) == set()


@pytest.mark.parametrize(
    ("worker", "stopped", "killed", "row"),
    [(0, 4, 4, 3), (1, 5, 5, 3), (0, 4, 5, 3), (1, 3, 4, 2)],
    ids=["the first, at rest", "the second, at rest", "the first, under way", "the second, under way"],
)
def test_a_worker_that_dies_takes_along_the_step_of_its_own_half_alone(
    worker: int, stopped: int, killed: int, row: int
) -> None:
    # Calls 2 k and 2 k + 1 are those of the halves at row k. Who is stopped before he is asked does not answer.
    def kill(call: int) -> None:
        for number in [signal.SIGSTOP] * (call == stopped) + [signal.SIGKILL] * (call == killed):
            os.kill(made._vec._workers.children[worker].pid, number)  # type: ignore[attr-defined]

    made = started(2, actor=Drawing(kill), num_envs=2, kwargs={"lengths": [99]})

    found = masks(played(made, chunks=2))

    assert made.restarts == 1
    assert found[1 - worker] == [0, 1, 1, 1, 1, 1, 1, 1]
    assert found[worker] == [0, *(int(t != row) for t in range(1, 8))]


@pytest.mark.parametrize("env", [0, 1])
def test_a_failure_names_its_step_though_the_other_half_may_be_a_row_ahead(env: int) -> None:
    fields: dict[str, Any] = {"num_envs": 2, "kwargs": {"lengths": [9], "fault": "step", "fault_at": 3}}
    with contextlib.closing(started(2, **fields)) as first:
        first.reset()
        state = first.state_dict()
    other = state["environments"][1 - env]["environment"]["layers"][1]["own"]
    other["total"] = 50  # its fault is over
    made = started(2, **fields)
    made.load_state_dict(state)
    made.reset()  # nobody knows what the episodes before began with

    with contextlib.closing(made):
        with pytest.raises(EnvironmentFailure) as raised:
            made.update()
        at_rest = not any(around.is_open for around in rounds(made))

    error: Any = raised.value
    assert at_rest
    assert f"environment {env} (Script-v0, worker {env}, " in str(error)
    assert "episode 1, step 3): KeyError: 'torque'" in str(error)
    assert (error.crash["env_index"], error.crash["step"]) == (env, 3)


def test_a_second_failure_that_is_found_on_the_way_out_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    made = started(2, num_envs=2, kwargs={"lengths": [9], "fault": "step", "fault_at": 2})

    with contextlib.closing(made), pytest.raises(EnvironmentFailure, match=r"environment 0 \(Script-v0, worker 0, "):
        made.update()

    logged = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(logged) == 1
    assert "environment 1 (Script-v0, worker 1, " in logged[0] and "step 2): KeyError: 'torque'" in logged[0]


def test_a_worker_that_is_not_replaced_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    def kill(call: int) -> None:
        if call == 3:
            os.kill(made._vec._workers.children[1].pid, signal.SIGKILL)  # type: ignore[attr-defined]

    made = started(2, actor=Drawing(kill), supervision=Supervision(RestartBudget(0)))

    with contextlib.closing(made), pytest.raises(WorkerError, match=r"worker 1, .*died of signal 9"):
        made.update()

    assert [record for record in caplog.records if record.levelname == "WARNING"] == []


def test_a_bad_action_of_the_second_half_names_its_environment() -> None:
    class Poisoned(Drawing):
        def act(self, *args: Any, **kwargs: Any) -> ActorOutput:
            output = super().act(*args, **kwargs)
            if len(self.rows) == 4:
                output.actions[""][1] = 7
            return output

    made = started(2, actor=Poisoned())

    with contextlib.closing(made), pytest.raises(NonFiniteError, match=r"of environment 4, found 7 "):
        made.update()


def test_halves_of_an_odd_number_are_refused() -> None:
    with pytest.raises(ConfigError, match="expected an even number for act_groups 2, found 3; use an even one"):
        explorer(act_groups=2, num_envs=3)
