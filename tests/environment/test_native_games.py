"""Vector environments that other packages bring: ale-py's for Atari games, and EnvPool's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from fakes_native import Array, copied, env_config, explorer

from digideep.environment.vec.native import NativeVecEnv
from digideep.environment.wrappers.config import AtariPreprocessingConfig, ClipRewardConfig, FrameStackConfig
from digideep.errors import UsageError
from digideep.types import ActorOutput
from digideep.utility.node import node

PREPROCESSED = node(AtariPreprocessingConfig)
STACKED = (PREPROCESSED, node(FrameStackConfig, n=4), node(ClipRewardConfig))


class Still:
    """Takes action 0, or the box of zeros."""

    def __init__(self, shape: tuple[int, ...] = (), dtype: str = "int64") -> None:
        self.artifacts: Mapping[str, Any] = {}
        self.policy_version = self.statistics_version = 0
        self._shape, self._dtype = shape, dtype

    def initial_state(self, num_envs: int) -> None:
        return None

    def act(self, observations: Mapping[str, Array], hidden: Any, masks: Array, **_: Any) -> ActorOutput:
        return ActorOutput({"": np.zeros((len(masks), *self._shape), self._dtype)}, {})


@pytest.fixture(params=["native", "envpool"])
def backend(request: pytest.FixtureRequest) -> str:
    for package in ("ale_py", "cv2", *(["envpool"] if request.param == "envpool" else [])):
        pytest.importorskip(package, reason=f"the extra that brings {package} is not installed")
    return str(request.param)


def test_a_game_shows_what_single_environments_show(backend: str) -> None:
    specs, chunks = [], []
    for kind in ("single", backend):
        sampler = explorer("ALE/Pong-v5", num_envs=2, n_steps=5, backend=kind, env={"wrappers": STACKED})
        sampler.set_actors({"agent": Still()})
        specs.append(sampler.spec)
        chunks.append(copied(sampler.update()))
        sampler.close()

    single, other = (chunk["/observations/observation"] for chunk in chunks)
    assert specs[0] == specs[1]
    assert other.dtype == np.uint8 and other.shape == single.shape == (2, 6, 4, 84, 84)
    assert abs(float(single.mean()) - float(other.mean())) < 1.0  # the same picture, give or take where the ball is
    np.testing.assert_array_equal(other[:, 1:, 0], other[:, :-1, 1])  # the newest frame comes last


def test_one_picture_is_no_stack(backend: str) -> None:
    sampler = explorer("ALE/Pong-v5", num_envs=2, backend=backend, env={"wrappers": (PREPROCESSED,)})
    sampler.set_actors({"agent": Still()})

    arrays = copied(sampler.update())
    sampler.close()

    assert arrays["/observations/observation"].shape == (2, 7, 84, 84)


def test_no_state_can_be_saved_and_that_is_said(backend: str) -> None:
    sampler = explorer("ALE/Pong-v5", num_envs=2, backend=backend, env={"wrappers": STACKED})
    sampler.set_actors({"agent": Still()})
    sampler.update()
    state = sampler.state_dict()
    exactness = sampler.exactness
    sampler.load_state_dict(state)
    arrays = copied(sampler.update())
    sampler.close()

    assert exactness.startswith("resume starts new episodes: ALE/Pong-v5 has no state to save")
    np.testing.assert_array_equal(arrays["/masks"][:, 0], 0.0)


def test_two_seeds_give_two_games_and_one_gives_one(backend: str) -> None:
    chunks = []
    for seed in (1, 1, 2):
        sampler = explorer("ALE/Pong-v5", num_envs=2, n_steps=30, seed=seed, backend=backend, env={"wrappers": STACKED})
        sampler.set_actors({"agent": Still()})
        chunks.append(copied(sampler.update())["/observations/observation"])
        sampler.close()

    np.testing.assert_array_equal(chunks[0], chunks[1])
    assert (chunks[0] != chunks[2]).any()
    assert (chunks[0][0] != chunks[0][1]).any()


@pytest.mark.parametrize(
    ("wrappers", "kwargs", "told"),
    [
        ((), {}, "needs AtariPreprocessingConfig"),
        (STACKED, {"mode": 1}, "takes no mode"),
        (STACKED, {"frameskip": 2}, "expected no 'frameskip' beside AtariPreprocessingConfig"),
    ],
)
def test_what_a_game_cannot_take_is_one_line(wrappers: tuple[Any, ...], kwargs: dict[str, Any], told: str) -> None:
    pytest.importorskip("ale_py", reason="the extra atari is not installed")

    with pytest.raises(UsageError, match=told):
        NativeVecEnv(env_config("ALE/Pong-v5", wrappers=wrappers, kwargs=kwargs), num_envs=2)


def test_auto_takes_a_vector_form_of_a_game_only_where_exactness_is_not_asked_for(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ale_py", reason="the extra atari is not installed")
    pytest.importorskip("cv2", reason="the extra atari is not installed")
    monkeypatch.setattr("digideep.environment.vec.choose.granted_cores", lambda: 1)
    found = []

    with caplog.at_level("INFO"):
        for exact in (True, False):
            fields: dict[str, Any] = {"backend": "auto", "num_workers": "auto", "exact": exact}
            sampler = explorer("ALE/Pong-v5", num_envs=4, env={"wrappers": STACKED}, **fields)
            found.append(sampler.backend)
            sampler.close()

    assert found == ["single", "native"]
    assert "backend auto: single, since ALE/Pong-v5 has no state to save" in caplog.text


@pytest.mark.parametrize(("name", "shape", "dtype"), [("CartPole-v1", (), "int64"), ("Pendulum-v1", (1,), "float32")])
def test_envpool_steps_by_the_rule_of_episodes(name: str, shape: tuple[int, ...], dtype: str) -> None:
    pytest.importorskip("envpool", reason="the extra envpool is not installed")
    sampler = explorer(name, n_steps=40, backend="envpool", env={"max_episode_steps": 6})
    sampler.set_actors({"agent": Still(shape, dtype)})

    arrays = copied(sampler.update())
    episodes = sampler.episodes()
    sampler.close()

    np.testing.assert_array_equal(arrays["/masks"], np.tile([0, 1, 1, 1, 1, 1, 1], (3, 6))[:, :41])
    np.testing.assert_array_equal(arrays["/terminations"], 0.0)
    np.testing.assert_array_equal(arrays["/rewards"][:, 6::7], 0.0)
    assert {episode.length for episode in episodes} == {6}


def test_what_envpool_does_not_have_or_take_is_one_line() -> None:
    pytest.importorskip("envpool", reason="the extra envpool is not installed")

    for name, kwargs, told in (
        ("NativeBox-v0", {}, "'envpool' can step, found that EnvPool has no NativeBox-v0; use 'single'"),
        ("CartPole-v1", {"sutton_barto_reward": True}, "EnvPool's CartPole-v1 takes no sutton_barto_reward"),
    ):
        with pytest.raises(UsageError, match=told):
            explorer(name, backend="envpool", kwargs=kwargs)
