"""The explorer in training: chunks, episodes, states, and what it says when numbers go bad."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes_vec import Counter, Follower, explorer

from digideep.environment.explorer import Explorer
from digideep.errors import EnvironmentFailure, NonFiniteError, ShapeError, UsageError
from digideep.spec import ArraySpec
from digideep.types import ActorOutput, Chunk, Progress
from digideep.utility.profiling import get_timer_root, reset_timers

KEYS = [
    "/agents/agent/actions",
    "/agents/agent/artifacts/log_probs",
    "/agents/agent/artifacts/values",
    "/masks",
    "/observations/observation",
    "/rewards",
    "/terminations",
]


def started(name: str = "Script-v0", *, actor: Any = None, **fields: Any) -> Explorer:
    made = explorer(name, **fields)
    made.set_actors({"agent": actor or Follower()})
    made.reset()
    return made


def copied(chunk: Chunk) -> dict[str, np.ndarray[Any, Any]]:
    return {key: array.copy() for key, array in chunk.arrays.items()}


def assert_equal(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for key in one:
        np.testing.assert_array_equal(one[key], other[key], err_msg=key)


def test_a_chunk_has_rows_t_plus_one_for_every_key() -> None:
    made = started(n_steps=5)

    chunk = made.update()
    made.close()

    assert sorted(chunk.arrays) == KEYS
    assert all(array.shape[:2] == (3, 6) for array in chunk.arrays.values())
    assert chunk.arrays["/agents/agent/actions"].dtype == np.int64
    assert chunk.arrays["/rewards"].dtype == np.float32


def test_only_real_transitions_are_counted() -> None:
    made = started(n_steps=4, kwargs={"lengths": [3]})

    chunk = made.update()
    masks = chunk.arrays["/masks"].copy()
    made.close()

    np.testing.assert_array_equal(masks, [[0, 1, 1, 1, 0]] * 3)
    assert chunk.meta == (9, 9, 3, 4)


def test_the_last_row_of_a_chunk_is_the_first_of_the_next() -> None:
    made = started(kwargs={"lengths": [3, 4]})

    first = copied(made.update())
    second = copied(made.update())
    made.close()

    for key in ("/observations/observation", "/masks"):
        np.testing.assert_array_equal(first[key][:, -1], second[key][:, 0])


def test_what_the_actor_said_lies_in_the_row_it_was_said_at() -> None:
    made = started(kwargs={"lengths": [9]})

    arrays = copied(made.update())
    made.close()

    np.testing.assert_array_equal(arrays["/agents/agent/artifacts/values"][0], [0, 1, 2, 3, 0])
    np.testing.assert_array_equal(arrays["/agents/agent/artifacts/log_probs"][0], [0, -1, -2, -3, 0])
    np.testing.assert_array_equal(arrays["/agents/agent/actions"][0], [0, 1, 0, 1, 0])
    np.testing.assert_array_equal(arrays["/rewards"][0], [1, 3, 1, 3, 0])


def test_a_recurrent_policy_finds_the_hidden_state_before_acting() -> None:
    made = started(actor=Counter(), kwargs={"lengths": [2]})

    first, second = copied(made.update()), copied(made.update())
    made.close()

    # Episodes of 2 steps: observations 0, 1, 2 and the next episode's 0; the state runs one behind the mask.
    np.testing.assert_array_equal(first["/agents/agent/artifacts/count"][0, :4], [0, 1, 2, 0])
    np.testing.assert_array_equal(first["/agents/agent/hidden_state/steps"][0], [0, 1, 2, 3, 1])
    np.testing.assert_array_equal(second["/agents/agent/hidden_state/steps"][0, 0], 1)
    np.testing.assert_array_equal(second["/agents/agent/artifacts/count"][0, :4], [1, 2, 0, 1])


@pytest.mark.parametrize("name", ["CartPole-v1", "FrozenLake-v1", "Pendulum-v1"])
def test_workers_change_no_bit_of_real_environments(name: str) -> None:
    class Fixed(Follower):
        def act(self, observations: Any, *rest: Any, **options: Any) -> ActorOutput:
            n = len(observations["observation"])
            actions = np.full((n, 1), 0.3, np.float32) if name.startswith("Pendulum") else np.arange(n) % 2
            return ActorOutput({"": actions}, {"log_probs": np.zeros(n), "values": np.zeros(n)})

    chunks = []
    for num_workers in (0, 2):
        made = started(name, actor=Fixed(), num_workers=num_workers, n_steps=40)
        chunks.append([copied(made.update()) for _ in range(2)])
        made.close()

    for one, other in zip(*chunks, strict=True):
        assert_equal(one, other)


def test_episodes_are_told_once_with_their_raw_returns() -> None:
    made = started(kwargs={"lengths": [2]})

    made.update()
    told, again = made.episodes(), made.episodes()
    made.close()

    assert [(e.env, e.number, e.return_, e.length) for e in told] == [(0, 0, 4.0, 2), (1, 0, 4.0, 2), (2, 0, 4.0, 2)]
    assert told[0].metrics == {"height": 1.0, "is_success": 1.0}
    assert all(episode.seed is not None for episode in told)
    assert again == []


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize(
    ("fault", "key", "index"), [("nan", "/observations/observation", 1), ("inf reward", "/rewards", 0)]
)
def test_a_number_that_is_none_is_found_where_it_is(num_workers: int, fault: str, key: str, index: int) -> None:
    made = started(num_workers=num_workers, kwargs={"lengths": [3], "fault": fault, "fault_at": 5})

    with pytest.raises(NonFiniteError) as raised:
        for _ in range(3):
            made.update()
    made.close()

    # The fifth step of an environment is the second of its second episode.
    text = str(raised.value)
    assert text.startswith("environment 0 (Script-v0, worker 0, seed ")
    assert f"episode 1, step 2): expected finite numbers in {key}, found" in text
    assert text.endswith(f"(first bad index {index})")


class BadActor(Follower):
    def __init__(self, value: float, *, bad_from: int = 0) -> None:
        super().__init__(kind="box")
        self.value, self.bad_from = value, bad_from

    def act(self, *arguments: Any, **options: Any) -> ActorOutput:
        output = super().act(*arguments, **options)
        if len(self.calls) > self.bad_from:
            output.actions[""][1, 1] = self.value
        return output


def test_an_action_that_is_no_number_never_reaches_the_environment() -> None:
    made = started("Box-v0", actor=BadActor(float("nan"), bad_from=2))

    with pytest.raises(NonFiniteError) as raised:
        made.update()
    steps = made._vec.tick
    made.close()

    assert steps == 2
    assert str(raised.value).startswith(
        "agent 'agent': expected a finite number in /agents/agent/actions of environment 1"
    )
    assert "(first bad index (1,))" in str(raised.value)


def test_a_choice_that_does_not_exist_never_reaches_the_environment() -> None:
    class Negative(Follower):
        def act(self, *arguments: Any, **options: Any) -> ActorOutput:
            output = super().act(*arguments, **options)
            return output._replace(actions={"": np.array([0, 1, -1])})

    made = started(actor=Negative())

    with pytest.raises(NonFiniteError, match="expected one of 0 to 1 in /agents/agent/actions of environment 2"):
        made.update()
    made.close()


def test_boxes_are_clipped_at_the_door_and_kept_raw_in_the_slab() -> None:
    made = started("Box-v0", actor=Follower(kind="box"))

    arrays = copied(made.update())
    made.close()

    np.testing.assert_array_equal(arrays["/agents/agent/actions"][:, :4], 4.0)
    np.testing.assert_array_equal(arrays["/observations/observation"][:, 1:], 1.0)
    assert arrays["/observations/observation"].dtype == np.float32


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("shape", "shape"),
        ("dtype", "dtype|float64"),
        ("type", "array|list"),
        ("reward", r"reward: expected a number, found an array of shape \(1,\)"),
        ("no reward", "reward: expected a number, found NoneType"),
        ("flag", "terminated: expected a bool, found str 'yes'"),
        ("info", "info: expected a dict, found NoneType"),
        ("metrics", r"info\['metrics'\]\['height'\]: expected a number, found str 'tall'"),
        ("step", "KeyError: 'torque'"),
    ],
)
def test_an_environment_that_breaks_its_word_is_named(fault: str, message: str) -> None:
    made = started(kwargs={"lengths": [3], "fault": fault, "fault_at": 5})

    with pytest.raises(EnvironmentFailure, match=message) as raised:
        for _ in range(3):
            made.update()
    made.close()

    text = str(raised.value)
    assert text.startswith("environment 0 (Script-v0, worker 0, seed ")
    assert "episode 1, step 2): " in text
    assert "\n" not in text
    assert raised.value.exit_code == 7
    assert "Traceback" in raised.value.traceback_text  # type: ignore[attr-defined]


def test_a_failing_first_reset_is_one_line() -> None:
    made = explorer(kwargs={"fault": "reset", "fault_at": 0})
    made.set_actors({"agent": Follower()})

    with pytest.raises(EnvironmentFailure, match=r"episode 0, step 0\): ValueError: the world is not there"):
        made.reset()
    made.close()


def test_an_actor_that_breaks_its_word_is_named() -> None:
    class Flat(Follower):
        def act(self, *arguments: Any, **options: Any) -> ActorOutput:
            output = super().act(*arguments, **options)
            return output._replace(artifacts={**output.artifacts, "values": np.zeros((3, 1), np.float32)})

    made = started(actor=Flat())

    with pytest.raises(ShapeError, match=r"artifacts\['values'\]: expected shape \(3,\), found \(3, 1\)"):
        made.update()
    made.close()


def test_exactly_one_agent_acts_and_its_artifacts_stay() -> None:
    made = started()
    other = Follower()
    other.artifacts = {"values": ArraySpec("box", (), "float32")}

    with pytest.raises(UsageError, match="found 2: \\['a', 'b'\\]"):
        made.set_actors({"a": Follower(), "b": Follower()})
    with pytest.raises(UsageError, match="make a new explorer"):
        made.set_actors({"agent": other})
    made.close()


def test_progress_is_handed_on() -> None:
    made = started()

    made.set_progress(Progress(frame=7, epoch=2, fraction=0.5))
    heard = [env.unwrapped.progress for env in made._vec._stepper._envs]  # type: ignore[attr-defined]
    made.close()

    assert heard == [[{"frame": 7, "epoch": 2, "fraction": 0.5}]] * 3


def test_phases_of_the_loop_are_counted_once_a_step() -> None:
    made = started()
    reset_timers()

    made.update()
    children = get_timer_root().children
    counts = {name: children[name].count for name in ("act", "store", "envstep")}
    reset_timers()
    made.close()

    assert counts == {"act": 4, "store": 4, "envstep": 4}


def test_training_episodes_are_written_to_the_monitor_file(tmp_path: Path) -> None:
    made = started(monitor_dir=tmp_path, kwargs={"lengths": [3]})

    made.update()
    lengths = made.sync()
    made.close()

    path = tmp_path / "train" / "0.monitor.csv"
    lines = path.read_text().splitlines()
    assert lengths == {"monitor/train/0.monitor.csv": path.stat().st_size}
    assert json.loads(lines[0][1:])["env_id"] == "Script-v0"
    assert lines[1] == "r,l,t,env,is_success,height"
    assert [line.split(",")[:2] + line.split(",")[3:] for line in lines[2:]] == [
        ["5.0", "3", str(env), "1.0", "1.5"] for env in range(3)
    ]
