"""The rows that a vector environment writes: the rule of episodes, and the same bits as single environments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import pytest
from fakes_native import ALLOWED, COUNTING, Array, copied, env_config, explorer, started

from digideep.environment.vec.native import NativeVecEnv
from digideep.environment.vec.native_arrays import info_of
from digideep.environment.vec.slab import RESET, RUN
from digideep.errors import EnvironmentFailure, UsageError
from digideep.testing import CountingActor, CountingVectorEnv
from digideep.types import ActorOutput, Episode, Progress

LENGTHS = {
    "of one step": [1],
    "that end at T-1": [6],
    "that end at T-2, so that the reset row is the last": [5],
    "of many lengths": [1, 1, 3, 2, 7, 1, 13],
}


def counted(name: str, lengths: list[int], **fields: Any) -> tuple[list[dict[str, Array]], list[Episode]]:
    sampler = explorer(name, kwargs={"lengths": lengths, "ends": "alternate"}, **fields)
    try:
        sampler.set_actors({"agent": CountingActor()})
        chunks = [copied(sampler.update()) for _ in range(5)]
        return chunks, sampler.episodes()
    finally:
        sampler.close()


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
def test_every_row_holds_the_next_integer_through_episodes(lengths: list[int]) -> None:
    chunks, episodes = counted(COUNTING, lengths)

    rows = np.concatenate([chunk["/observations/observation"][:, :-1, 0] for chunk in chunks], axis=1)
    np.testing.assert_array_equal(rows, np.tile(np.arange(30, dtype=np.float32), (3, 1)))
    found = [episode.length for episode in episodes if episode.env == 0]
    assert found == (lengths * 30)[: len(found)]
    assert len(found) >= 2


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
def test_environments_with_a_generator_each_give_the_bits_of_single_ones(lengths: list[int]) -> None:
    single = counted("NativeCounting-v0", lengths, backend="single")
    native = counted("NativeCounting-v0", lengths)

    for found, expected in zip(native[0], single[0], strict=True):
        assert found.keys() == expected.keys()
        for key in expected:
            np.testing.assert_array_equal(found[key], expected[key], err_msg=key)
    assert native[1] == single[1]


def test_an_ended_episode_has_return_length_number_seed_and_metrics() -> None:
    _, episodes = counted(COUNTING, [2, 4], seed=3)

    first, second = [episode for episode in episodes if episode.env == 1][:2]
    assert (first.number, first.return_, first.length, first.metrics) == (0, 1.0 + 2.0, 2, {"last_count": 2.0})
    assert (second.number, second.return_, second.length, second.metrics) == (
        1,
        4.0 + 5 + 6 + 7,
        4,
        {"last_count": 7.0},
    )
    assert first.seed is not None and second.seed is None


def test_cartpole_rows_are_those_of_gymnasiums_vector_environment() -> None:
    steps, envs = 40, 8
    actions = np.random.default_rng(1).integers(0, 2, (4, steps, envs))
    theirs = gymnasium.make_vec("CartPole-v1", num_envs=envs, vectorization_mode="vector_entry_point")
    expected, _ = theirs.reset(seed=7)
    opened = np.ones(envs, bool)
    vec = started("CartPole-v1", num_envs=envs, n_steps=steps)
    slab = vec.slab
    assert slab is not None

    np.testing.assert_array_equal(slab.observations["observation"][steps], expected)
    for block in actions:
        slab.actions[""][:steps] = block
        for t in range(steps):
            vec.step(t)
            over = theirs.unwrapped.prev_done.copy()  # type: ignore[attr-defined]
            expected, rewards, terminated, _, _ = theirs.step(block[t])
            np.testing.assert_array_equal(slab.observations["observation"][t + 1], expected)
            np.testing.assert_array_equal(slab.rewards[t], rewards)
            np.testing.assert_array_equal(slab.terminations[t], terminated)
            np.testing.assert_array_equal(slab.masks[t + 1], ~over)
            opened |= over
    vec.close()
    assert opened.all()


def test_a_time_limit_of_the_configuration_truncates() -> None:
    vec = started("CartPole-v1", max_episode_steps=3, n_steps=4)
    slab = vec.slab
    assert slab is not None

    for t in range(4):
        vec.step(t)
    finished = vec.collect()
    vec.close()

    assert vec.spec.max_episode_steps == 3
    assert [done.length for done in finished] == [3, 3, 3]
    np.testing.assert_array_equal(slab.terminations, 0.0)
    np.testing.assert_array_equal(slab.masks[:, 0], [0, 1, 1, 1, 0])


class Fixed:
    """Takes one action, whatever it sees."""

    def __init__(self, actions: Mapping[str, Any]) -> None:
        self.artifacts: dict[str, Any] = {}
        self.policy_version = self.statistics_version = 0
        self.actions = actions

    def initial_state(self, num_envs: int) -> None:
        return None

    def act(self, observations: Mapping[str, Array], *_: Any, **__: Any) -> ActorOutput:
        return ActorOutput({slot: np.stack([value] * 3) for slot, value in self.actions.items()}, {})


@pytest.mark.parametrize("backend", ["single", "native"])
@pytest.mark.parametrize(
    ("transform", "given", "shown"),
    [("clip", [4.0, -0.5], [1.0, -0.5]), ("rescale", [3.0, -0.5], [1.0, -0.5]), ("none", [4.0, -0.5], [4.0, -0.5])],
)
def test_box_actions_are_brought_to_the_environment(
    backend: str, transform: str, given: list[float], shown: list[float]
) -> None:
    sampler = explorer("NativeBox-v0", backend=backend, env={"action_transform": transform})
    sampler.set_actors({"agent": Fixed({"": np.array(given, np.float32)})})

    arrays = copied(sampler.update())
    sampler.close()

    np.testing.assert_array_equal(arrays["/observations/observation"][:, 1:], np.tile(np.float32(shown), (3, 6, 1)))
    np.testing.assert_array_equal(arrays["/rewards"], np.full((3, 6), 0.25, np.float32))


def test_nested_spaces_come_through_as_from_single_environments() -> None:
    chunks = {}
    for backend in ("single", "native"):
        sampler = explorer("NativeNested-v0", backend=backend)
        sampler.set_actors({"agent": Fixed({"0": np.int64(1), "1": np.array([0.5, 7.0], np.float32)})})
        sampler.update()
        chunks[backend] = copied(sampler.update()), sampler.episodes(), sampler.spec
        sampler.close()

    assert chunks["native"][2].observations.keys() == {"box", "level", "pair/0", "pair/1"}
    assert chunks["native"][2] == chunks["single"][2]
    assert chunks["native"][1] == chunks["single"][1] and chunks["native"][1]
    for key, expected in chunks["single"][0].items():
        np.testing.assert_array_equal(chunks["native"][0][key], expected, err_msg=key)
    assert set(np.unique(chunks["native"][0]["/observations/level"])) == {0, 1}


def test_a_form_that_can_be_told_to_reset_in_the_next_step_is() -> None:
    chunks, _ = counted("NativeTurned-v0", [3])

    np.testing.assert_array_equal(chunks[0]["/masks"][0], [0, 1, 1, 1, 0, 1, 1])


def test_one_that_resets_in_the_same_step_is_refused_in_one_line() -> None:
    with pytest.raises(UsageError) as caught:
        NativeVecEnv(env_config("NativeSameStep-v0"), num_envs=2, allowed=ALLOWED)

    assert str(caught.value) == (
        "/explorer/train/backend: expected an environment that 'native' can step, found that SameStepVectorEnv "
        "declares SAME_STEP as metadata['autoreset_mode'], which is not NEXT_STEP; use 'single'"
    )


def test_one_that_says_nothing_of_resets_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fakes_native.StatelessVectorEnv.metadata", {})

    with pytest.raises(UsageError, match="declares none as metadata"):
        NativeVecEnv(env_config("NativeStateless-v0"), num_envs=2, allowed=ALLOWED)


@pytest.mark.parametrize("name", ["num_envs", "single_observation_space", "single_action_space"])
def test_one_that_lacks_what_its_class_only_annotates_is_told(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Without(CountingVectorEnv):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            delattr(self, name)

    monkeypatch.setattr(gymnasium.spec("CountingVector-v0"), "vector_entry_point", Without)

    with pytest.raises(EnvironmentFailure, match=f"expected '{name}' in its vector form, found none; set it in its"):
        NativeVecEnv(env_config(COUNTING), num_envs=2, allowed=ALLOWED)


def test_only_all_environments_can_be_reset_together() -> None:
    vec = started(COUNTING)
    slab = vec.slab
    assert slab is not None
    slab.modes[:] = [RUN, RESET, RUN]

    with pytest.raises(UsageError, match="expected a reset of all, found one of some"):
        vec.reset(4)
    vec.close()


def test_progress_reaches_the_vector_environment() -> None:
    vec = started(COUNTING)

    vec.set_progress(Progress(frame=5, epoch=1, fraction=0.5))
    found = vec._form.env.progress if vec._form is not None else None
    vec.close()

    assert found == [{"frame": 5, "epoch": 1, "fraction": 0.5}]


def test_progress_reaches_the_environments_inside_a_vector_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, Any]] = []
    monkeypatch.setattr("fakes_vec.BoxEnv.set_progress", lambda self, progress: told.append(progress), raising=False)
    vec = started("NativeBox-v0")

    vec.set_progress(Progress(frame=5, epoch=1, fraction=0.5))
    vec.close()

    assert told == [{"frame": 5, "epoch": 1, "fraction": 0.5}] * 3


@pytest.mark.parametrize(
    ("infos", "expected"),
    [
        ({}, {}),
        ({"x": np.array([1, 2]), "_x": np.array([True, False])}, {}),
        ({"x": np.array([1, 2]), "_x": np.array([False, True])}, {"x": 2}),
        ({"lives": np.array([3, 4])}, {"lives": 4}),
        (
            {"m": {"a": np.array([1.0, 2.0]), "_a": np.array([True, True])}, "_m": np.array([True, True])},
            {"m": {"a": 2.0}},
        ),
        ({"n": 3, "short": np.array([1]), "long": [1, 2, 3], "scalar": np.array(7)}, {}),
    ],
)
def test_the_info_of_one_environment_is_taken_from_those_of_all(infos: Any, expected: Any) -> None:
    assert info_of(infos, 1, num_envs=2) == expected
