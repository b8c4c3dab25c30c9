"""Evaluation: exactly n episodes, each with its own seed, whatever plays them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes_vec import ALLOWED, Counter, Follower, explorer

from digideep.environment import history
from digideep.environment.config import EnvConfig
from digideep.environment.crash import read_crash, replay_crash, write_crash
from digideep.errors import EnvironmentFailure, NonFiniteError, UsageError
from digideep.types import ActorOutput, Episode
from digideep.utility.seeding import derive, generator


class Balancer(Follower):
    """Plays CartPole for some forty steps, and notes what it was asked."""

    def act(self, observations: Any, hidden_state: Any = None, masks: Any = None, **options: Any) -> ActorOutput:
        shown = observations["observation"]
        self.calls.append(options["deterministic"])
        if options["deterministic"]:
            actions = (shown[:, 2] > 0).astype(np.int64)
        else:
            actions = np.array([rng.integers(0, 2) for rng in options["generators"]])
        zeros = np.zeros(len(shown), np.float32)
        return ActorOutput({"": actions}, {"log_probs": zeros, "values": zeros})


def played(actor: Any = None, *, stochastic: bool | None = None, n: int = 5, **fields: Any) -> list[Episode]:
    made = explorer(fields.pop("name", "CartPole-v1"), mode=fields.pop("mode", "test"), **fields)
    try:
        made.set_actors({"agent": actor or Balancer()})
        return made.evaluate(n, stochastic=stochastic)
    finally:
        made.close()


@pytest.mark.parametrize("stochastic", [False, True])
def test_environments_and_workers_change_nothing(stochastic: bool) -> None:
    reference = played(num_envs=1, stochastic=stochastic)

    others = [played(num_envs=n, num_workers=w, stochastic=stochastic) for n, w in ((3, 0), (3, 2), (8, 0))]

    assert [episode.number for episode in reference] == [0, 1, 2, 3, 4]
    assert [episode.seed for episode in reference] == [derive(1, "test", k) for k in range(5)]
    assert len({episode.return_ for episode in reference}) > 1
    for other in others:
        assert other == reference


def test_short_episodes_are_not_favoured() -> None:
    # Two environments; an episode's length follows from its place in the environment that plays it.
    episodes = played(Follower(), name="Script-v0", num_envs=2, n=4, kwargs={"lengths": [10, 1, 2]})

    assert [episode.length for episode in episodes] == [10, 10, 1, 1]


def test_a_second_evaluation_gives_the_same_again() -> None:
    made = explorer("CartPole-v1", mode="test")
    made.set_actors({"agent": Balancer()})

    first, second = made.evaluate(4), made.evaluate(4)
    made.close()

    assert first == second


def test_the_first_episode_can_be_chosen() -> None:
    made = explorer("CartPole-v1", mode="eval")
    made.set_actors({"agent": Balancer()})

    all_of_them, later = made.evaluate(4), made.evaluate(2, first_episode=2)
    made.close()

    assert later == all_of_them[2:]


def test_the_configuration_says_how_many_and_whether_actions_are_sampled() -> None:
    sampled, likely, overridden = Balancer(), Balancer(), Balancer()

    count = len(played(sampled, n=None, n_episodes=2))  # type: ignore[arg-type]
    played(likely, deterministic=True, n=1)
    played(overridden, deterministic=True, stochastic=True, n=1)

    assert count == 2
    assert set(sampled.calls) == {False}
    assert set(likely.calls) == {True}
    assert set(overridden.calls) == {False}


def test_a_policy_with_hidden_state_begins_each_episode_anew() -> None:
    seen: list[tuple[float, float]] = []

    class Watching(Counter):
        def act(self, observations: Any, hidden_state: Any = None, masks: Any = None, **options: Any) -> ActorOutput:
            output = super().act(observations, hidden_state, masks, **options)
            seen.append((float(observations["observation"][0, 1]), float(output.artifacts["count"][0])))
            return output

    played(Watching(), name="Script-v0", num_envs=2, n=5, kwargs={"lengths": [3, 1]})

    assert seen
    assert all(step == count for step, count in seen)


def test_each_frame_is_shown_with_the_number_of_its_episode() -> None:
    made = explorer(mode="eval", num_envs=1, kwargs={"lengths": [2]})
    made.set_actors({"agent": Follower()})
    made._vec.render = lambda env: "picture"  # type: ignore[method-assign]
    frames: list[tuple[int, Any]] = []

    made.evaluate(2, on_frame=lambda episode, frame: frames.append((episode, frame)))
    made.close()

    assert frames == [(0, "picture")] * 3 + [(1, "picture")] * 3


def test_evaluations_write_their_own_monitor_file_in_order(tmp_path: Path) -> None:
    played(Follower(), name="Script-v0", monitor_dir=tmp_path, num_envs=2, n=4, kwargs={"lengths": [10, 1, 2]})

    rows = (tmp_path / "test" / "0.monitor.csv").read_text().splitlines()[2:]
    assert [row.split(",")[1] for row in rows] == ["10", "10", "1", "1"]


def test_faults_are_named_as_in_training() -> None:
    with pytest.raises(EnvironmentFailure, match=r"environment 0 \(Script-v0, .*, step 2\): KeyError: 'torque'"):
        played(Follower(), name="Script-v0", kwargs={"lengths": [3], "fault": "step"})
    with pytest.raises(NonFiniteError, match=r"step 2\): expected finite numbers in /observations/observation"):
        played(Follower(), name="Script-v0", kwargs={"lengths": [3], "fault": "nan"})


def test_an_evaluation_that_is_stopped_returns_what_has_ended() -> None:
    made = explorer(mode="test", num_envs=2, kwargs={"lengths": [2, 50]})
    made.set_actors({"agent": Follower()})
    steps: list[int] = []

    def should_stop() -> bool:
        steps.append(0)
        return len(steps) > 10

    stopped = made.evaluate(4, should_stop=should_stop)
    again = made.evaluate(1)
    made.close()

    assert [(episode.number, episode.length) for episode in stopped] == [(0, 2), (1, 2)]
    assert len(again) == 1


def test_an_evaluation_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="expected at least 1 episode, found 0"):
        played(n=0)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_failure_carries_what_leads_to_it_as_in_training(num_workers: int, tmp_path: Path) -> None:
    # Three environments play the same lengths: the first fails in the second step of the second episode it plays.
    kwargs: dict[str, Any] = {"lengths": [3], "fault": "step", "fault_at": 5}

    with pytest.raises(EnvironmentFailure) as raised:
        played(Follower(), name="Script-v0", n=9, num_workers=num_workers, kwargs=kwargs)

    crash = raised.value.crash  # type: ignore[attr-defined]
    assert (crash["phase"], crash["mode"], crash["env_index"], crash["step"]) == ("step", "test", 0, 2)
    assert (crash["seed"], crash["rng"]) == (derive(1, "test", 3), None)
    rng = generator(1, "test-actions", 3)
    np.testing.assert_array_equal(crash["actions"][""], [rng.integers(0, 2), rng.integers(0, 2)])
    config = EnvConfig(model_name="Script-v0", from_module="fakes_vec", env_kwargs={**kwargs, "fault_at": 2})
    write_crash(tmp_path, config, error=raised.value, **crash)
    with pytest.raises(KeyError, match="torque"):
        replay_crash(read_crash(tmp_path), allowed=ALLOWED)


def test_a_failing_reset_of_an_evaluation_has_no_actions() -> None:
    with pytest.raises(EnvironmentFailure) as raised:
        played(Follower(), name="Script-v0", kwargs={"fault": "reset", "fault_at": 1})

    crash = raised.value.crash  # type: ignore[attr-defined]
    assert (crash["phase"], crash["step"], crash["actions"][""].shape) == ("reset", 0, (0,))


def test_workers_of_an_evaluation_tell_their_time() -> None:
    made = explorer(mode="test", num_workers=2)
    made.set_actors({"agent": Follower()})
    made.evaluate(4)
    timings, again = made.timings(), made.timings()
    made.close()

    assert sorted(timings) == ["worker0", "worker1"]
    assert all(node.children["step"].count > 0 for node in timings.values())
    assert all(node.children["step"].count == 0 for node in again.values())


def test_actions_of_an_endless_episode_are_not_kept_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "_LIMIT_BYTES", 3 * 8 * 10)  # ten actions of three environments

    with pytest.raises(EnvironmentFailure) as raised:
        played(Follower(), name="Script-v0", kwargs={"lengths": [50], "fault": "step", "fault_at": 11})

    assert not hasattr(raised.value, "crash")
