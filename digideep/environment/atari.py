"""Atari games on the plain interface of the Arcade Learning Environment, preprocessed as networks take them.

The same as Gymnasium's `AtariPreprocessing` around ale-py's environment, with three differences. Every game begins as
after switching on (that environment does so only where it is given a seed), so that an episode is a function of the
generator and the actions. The next episode after a lost life shows where the game stands, and no frame passes. And the
stickiness of actions is drawn here, since what ALE draws it from is in no state that can be saved.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec as Registration

from digideep.environment.wrappers.config import AtariPreprocessingConfig
from digideep.errors import CheckpointError, MissingExtraError, UsageError, one_line

__all__ = ["AtariEnv", "preprocessed", "silence_games"]

Array: TypeAlias = np.ndarray[Any, Any]

_ENTRY = "ale_py."
_KEPT = ("game", "mode", "difficulty", "full_action_space", "max_num_frames_per_episode")
_INSTEAD = {"frameskip": "frame_skip", "repeat_action_probability": "stickiness"}
_GREY_ONLY = ("obs_type", "sound_obs", "continuous", "continuous_action_threshold")
_STATE = ("ale", "screens", "lives", "last_action", "score", "goes_on")


def preprocessed(
    registered: Registration,
    config: AtariPreprocessingConfig,
    *,
    kwargs: Mapping[str, Any],
    where: str = "/env/wrappers",
) -> Registration:
    """Return the registration of the same game as an `AtariEnv`.

    Args:
        registered: by ale-py.
        config: of the preprocessing.
        kwargs: what the user has given the environment beside it.
        where: path of the list of wrappers, for messages.

    Raises:
        UsageError: it is no game of ale-py, or an argument is wrong, or one that the preprocessing decides.
    """
    entry = registered.entry_point
    if not (isinstance(entry, str) and entry.startswith(_ENTRY)):
        raise UsageError(
            f"{where}/0: expected a game of ale-py such as 'ALE/Pong-v5' below AtariPreprocessingConfig, found "
            f"{registered.id!r}; leave that wrapper out"
        )
    own = {field.name for field in dataclasses.fields(config)}
    for name in kwargs:
        if name in _INSTEAD or name in own:
            raise UsageError(
                f"/env/env_kwargs: expected no {name!r} beside AtariPreprocessingConfig, found one; "
                f"set {_INSTEAD.get(name, name)!r} in {where}"
            )
        if name in _GREY_ONLY:
            raise UsageError(
                f"/env/env_kwargs: expected no {name!r} beside AtariPreprocessingConfig, which shows grey pictures and "
                f"takes discrete actions, found one; leave one of the two out"
            )
    _check_arguments(kwargs)
    kept = {name: value for name, value in registered.kwargs.items() if name in _KEPT}
    entry_point: Any = AtariEnv
    return dataclasses.replace(
        registered, entry_point=entry_point, vector_entry_point=None, kwargs={**kept, **dataclasses.asdict(config)}
    )


def _check_arguments(kwargs: Mapping[str, Any]) -> None:
    if "game" in kwargs:
        raise UsageError("/env/env_kwargs: expected the game in the id, found 'game' beside it; set model_name instead")
    for name, kind, expected in (
        ("mode", int, "an integer from 0"),
        ("difficulty", int, "an integer from 0"),
        ("max_num_frames_per_episode", int, "an integer from 0"),
        ("full_action_space", bool, "true or false"),
    ):
        value = kwargs.get(name)
        if name not in kwargs or (value is None and name in ("mode", "difficulty")):
            continue
        if type(value) is not kind or not 0 <= value < 2**31:
            raise UsageError(
                f"/env/env_kwargs: expected {expected} as {name!r}, found {one_line(repr(value), limit=60)}; "
                f"write such a value"
            )


class AtariEnv(gymnasium.Env[Any, Any]):
    """One Atari game: grey uint8 pictures `[screen_size, screen_size]`, the game's own set of actions.

    Args:
        game: name of the game in ale-py, in snake case.
        noop_max, frame_skip, screen_size, terminal_on_life_loss, stickiness: see `AtariPreprocessingConfig`.
        mode, difficulty: of the game; None is its own default.
        full_action_space: all 18 actions instead of those that do something in this game.
        max_num_frames_per_episode: after which a game is truncated; 0 is never.
        render_mode: "rgb_array", "human" or None.

    Attributes:
        goes_on: whether the next reset without a seed goes on with the game, since only a life was lost.

    Raises:
        MissingExtraError: opencv is not installed.
        UsageError: the game has no such mode or difficulty.
    """

    metadata = {"render_modes": ["human", "rgb_array"], "render_fps": 15}  # noqa: RUF012

    def __init__(
        self,
        game: str,
        *,
        noop_max: int = 30,
        frame_skip: int = 4,
        screen_size: int = 84,
        terminal_on_life_loss: bool = False,
        stickiness: float = 0.0,
        mode: int | None = None,
        difficulty: int | None = None,
        full_action_space: bool = False,
        max_num_frames_per_episode: int = 108_000,
        render_mode: str | None = None,
    ) -> None:
        self.render_mode = render_mode
        self._resize = _resizer()
        self._ale = _emulator(
            game, mode=mode, difficulty=difficulty, max_frames=max_num_frames_per_episode, shows=render_mode == "human"
        )
        self._actions = self._ale.getLegalActionSet() if full_action_space else self._ale.getMinimalActionSet()
        self._start = self._ale.cloneState(include_rng=True)
        self._noop_max, self._frame_skip = noop_max, frame_skip
        self._ends_with_life, self._stickiness = terminal_on_life_loss, stickiness
        self._size = (screen_size, screen_size)
        height, width = self._ale.getScreenDims()
        self._first_screen = self._ale.getScreenGrayscale()
        self._screens = np.zeros((2, height, width), np.uint8)
        self._newest, self._former = self._screens
        self._lives, self._last_action, self._score = 0, 0, 0.0
        self.goes_on = False
        self.action_space = spaces.Discrete(len(self._actions))
        self.observation_space = spaces.Box(0, 255, self._size, np.uint8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Begin a game; after a lost life, and without a seed, go on with the one that is running."""
        super().reset(seed=seed)
        if not self.goes_on or seed is not None:
            self._switch_on()
            for _ in range(int(self.np_random.integers(1, self._noop_max + 1)) if self._noop_max else 0):
                self._ale.act(self._actions[0])
                if self._ale.game_over():
                    self._switch_on()
                else:
                    self._ale.getScreenGrayscale(self._newest)
            self._lives = self._ale.lives()
        self.goes_on = False
        return self._observation(), self._info()

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Hold an action for `frame_skip` frames, or until the episode ends."""
        ale, last = self._ale, self._frame_skip - 1
        sticks = self.np_random.random(last + 1) < self._stickiness if self._stickiness else None
        chosen = int(action)
        reward = 0.0
        is_over = False
        for frame in range(last + 1):
            if sticks is None or not sticks[frame]:
                self._last_action = chosen
            reward += ale.act(self._actions[self._last_action])
            if ale.game_over() or (self._ends_with_life and ale.lives() < self._lives):
                is_over = True
                break
            if frame == last:
                ale.getScreenGrayscale(self._newest)
            elif frame == last - 1:
                ale.getScreenGrayscale(self._former)
        self._score += reward
        if not is_over:
            self._lives = ale.lives()
            return self._observation(), reward, False, False, self._info()
        return self._end(reward)

    def render(self) -> Any:
        """Return the screen in colours; with "human" it is shown as the game goes."""
        return self._ale.getScreenRGB() if self.render_mode == "rgb_array" else None

    def get_action_meanings(self) -> list[str]:
        """Return the names of the actions."""
        return [action.name for action in self._actions]

    def get_state(self) -> dict[str, Any]:
        """Return all that the next step depends on, but for the generator."""
        values = (
            self._ale.cloneState(include_rng=True).serialize(),
            self._screens.copy(),
            self._lives,
            self._last_action,
            self._score,
            self.goes_on,
        )
        return dict(zip(_STATE, values, strict=True))

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `get_state` returned.

        Raises:
            CheckpointError: it is of another form.
        """
        if sorted(state) != sorted(_STATE) or np.shape(state["screens"]) != self._screens.shape:
            raise CheckpointError("environment state: expected that of an Atari game, found another")
        from ale_py import ALEState

        self._ale.restoreState(ALEState(bytes(state["ale"])))
        self._screens[:] = state["screens"]
        self._lives, self._last_action = int(state["lives"]), int(state["last_action"])
        self._score, self.goes_on = float(state["score"]), bool(state["goes_on"])

    def _switch_on(self) -> None:
        self._ale.restoreState(self._start)
        self._last_action, self._score = 0, 0.0
        # ALE draws nothing before the next frame.
        self._newest[:] = self._first_screen
        self._former.fill(0)

    def _end(self, reward: float) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Return the last step of an episode; the score of a game is told where the whole game is over."""
        ale = self._ale
        is_over, is_truncated = bool(ale.game_over(with_truncation=False)), bool(ale.game_truncated())
        lost_life = self._ends_with_life and ale.lives() < self._lives
        self._lives = ale.lives()
        self.goes_on = not (is_over or is_truncated)
        info = self._info()
        observation = self._observation()
        if self.goes_on:  # with the screen of now, whichever frame this is
            ale.getScreenGrayscale(self._newest)
            self._former.fill(0)
        else:
            info["metrics"] = {"score": self._score}
        return observation, reward, is_over or lost_life, is_truncated, info

    def _observation(self) -> Array:
        if self._frame_skip > 1:
            np.maximum(self._newest, self._former, out=self._newest)
        return np.asarray(self._resize(self._newest, self._size))

    def _info(self) -> dict[str, Any]:
        return {"lives": self._lives}


def silence_games() -> None:
    """Have ALE write its errors only: it would write to stderr, past the log, which version it is."""
    import ale_py

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)


def _emulator(game: str, *, mode: int | None, difficulty: int | None, max_frames: int, shows: bool) -> Any:
    """Return ALE with a game switched on, whose generator nothing draws from."""
    import ale_py
    from ale_py import roms

    silence_games()
    ale = ale_py.ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)
    ale.setInt("max_num_frames_per_episode", max_frames)
    ale.setInt("random_seed", 0)  # else it comes from the clock
    ale.setBool("display_screen", shows)
    ale.setBool("sound", shows)
    ale.loadROM(roms.get_rom_path(game))
    for name, value, known, choose in (
        ("mode", mode, ale.getAvailableModes, ale.setMode),
        ("difficulty", difficulty, ale.getAvailableDifficulties, ale.setDifficulty),
    ):
        if value is None:
            continue
        if value not in known():
            told = ", ".join(str(one) for one in sorted(known()))
            raise UsageError(
                f"/env/env_kwargs: expected a {name} that {game} has, found {value}; write one of {told}, or leave it "
                f"out"
            )
        choose(value)
    ale.reset_game()
    return ale


def _resizer() -> Any:
    """Return the function that makes a picture of another size: each pixel is the mean of the area it covers."""
    try:
        import cv2
    except ImportError as error:
        raise MissingExtraError(
            f"/env/wrappers/0: expected that opencv is installed, found {type(error).__name__}: {error}; "
            f'pip install "digideep[atari]"'
        ) from error
    resize, area = cv2.resize, cv2.INTER_AREA
    return lambda picture, size: resize(picture, size, interpolation=area)
