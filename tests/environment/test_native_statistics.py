"""Episodes have the same distribution of returns and lengths, whichever back end steps them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from fakes_native import Array, Noisy, explorer

from digideep.environment.wrappers.config import AtariPreprocessingConfig, ClipRewardConfig, FrameStackConfig
from digideep.types import ActorOutput, Episode
from digideep.utility.node import node

BACKENDS: Mapping[str, dict[str, Any]] = {
    "single": {"backend": "single"},
    "2 workers": {"backend": "single", "num_workers": 2},
    "native": {"backend": "native"},
}
GAME = (
    node(AtariPreprocessingConfig, terminal_on_life_loss=True, frame_skip=8),
    node(FrameStackConfig, n=2),
    node(ClipRewardConfig),
)


def distance(first: Array, second: Array) -> float:
    """Return the largest difference of two empirical distribution functions."""
    points = np.concatenate([first, second])
    below = [np.searchsorted(np.sort(sample), points, side="right") / len(sample) for sample in (first, second)]
    return float(np.abs(below[0] - below[1]).max())


def assert_alike(first: list[Episode], second: list[Episode]) -> None:
    """Two samples of one distribution are further apart than this once in a thousand times."""
    limit = 1.95 * np.sqrt(1 / len(first) + 1 / len(second))
    for name in ("return_", "length"):
        a, b = (np.array([getattr(episode, name) for episode in episodes]) for episodes in (first, second))
        assert distance(a, b) < limit, (name, a.mean(), b.mean(), len(a), len(b))
        error = np.sqrt(a.var() / len(a) + b.var() / len(b))
        assert abs(a.mean() - b.mean()) <= 3.3 * error, (name, a.mean(), b.mean(), error)


class AnyAction:
    """Acts at random."""

    def __init__(self, actions: int, *, seed: int) -> None:
        self.artifacts: Mapping[str, Any] = {}
        self.policy_version = self.statistics_version = 0
        self._actions, self._rng = actions, np.random.default_rng(seed)

    def initial_state(self, num_envs: int) -> None:
        return None

    def act(self, observations: Mapping[str, Array], hidden: Any, masks: Array, **_: Any) -> ActorOutput:
        return ActorOutput({"": self._rng.integers(0, self._actions, len(masks))}, {})


def played(name: str, actor: Any, *, chunks: int, **fields: Any) -> list[Episode]:
    sampler = explorer(name, **fields)
    try:
        sampler.set_actors({"agent": actor})
        for _ in range(chunks):
            sampler.update()
        return sampler.episodes()
    finally:
        sampler.close()


@pytest.mark.parametrize(("noise", "chunks"), [(1.0, 10), (0.75, 16)], ids=["random", "better"])
def test_cartpole_gives_the_same_distribution_through_every_back_end(noise: float, chunks: int) -> None:
    episodes = {}
    for i, (name, fields) in enumerate(BACKENDS.items()):
        actor = Noisy(noise=noise, seed=17)
        episodes[name] = played(
            "CartPole-v1", actor, chunks=chunks, seed=5 + (i == 2), num_envs=8, n_steps=128, **fields
        )

    assert episodes["single"] == episodes["2 workers"]
    assert len(episodes["single"]) > 200
    assert np.mean([episode.length for episode in episodes["native"]]) > (20 if noise == 1.0 else 30)
    assert_alike(episodes["single"], episodes["native"])


def test_two_distributions_that_differ_are_told_apart() -> None:
    samples = [
        played("CartPole-v1", Noisy(noise=noise, seed=2), chunks=8, num_envs=8, n_steps=128) for noise in (1.0, 0.85)
    ]

    with pytest.raises(AssertionError):
        assert_alike(*samples)


def played_game(backend: str, *, seed: int) -> list[Episode]:
    fields: dict[str, Any] = {"num_envs": 8, "n_steps": 128, "env": {"wrappers": GAME}, "backend": backend}
    return played("ALE/Breakout-v5", AnyAction(4, seed=seed), chunks=2, **fields)


@pytest.fixture(scope="module")
def single_games() -> list[Episode]:
    for package in ("ale_py", "cv2"):
        pytest.importorskip(package, reason=f"the extra that brings {package} is not installed")
    return played_game("single", seed=3)


@pytest.mark.parametrize("backend", ["native", "envpool"])
def test_an_atari_game_gives_the_same_distribution_through_every_back_end(
    backend: str, single_games: list[Episode]
) -> None:
    if backend == "envpool":
        pytest.importorskip("envpool", reason="the extra envpool is not installed")

    other = played_game(backend, seed=4)

    assert len(single_games) > 80
    assert_alike(single_games, other)
