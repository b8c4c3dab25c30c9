"""Configurations of environments, explorers and their statistics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from digideep.errors import ConfigError
from digideep.utility.node import FLOAT32_LIMIT, Config, setting

__all__ = ["EnvConfig", "ExplorerConfig", "StatisticsConfig"]


@dataclass(frozen=True)
class EnvConfig(Config):
    """Which environment, and what stands between it and the agent."""

    model_name: str = setting("CartPole-v1", "Gymnasium id, `module:id` allowed")
    from_module: str | None = setting(None, "module imported first, which registers the environment")
    env_kwargs: dict[str, Any] = setting({}, "keyword arguments of the environment")
    play_env_kwargs: dict[str, Any] | None = setting(None, "keyword arguments instead, in test and play")
    wrappers: tuple[dict[str, Any], ...] = setting((), "nodes of the wrappers around it, innermost first")
    play_wrappers: tuple[dict[str, Any], ...] | None = setting(None, "nodes of wrappers instead, in test and play")
    info_keys: tuple[str, ...] = setting(("is_success",), "keys of the last info that are metrics of the episode")
    max_episode_steps: int | None = setting(None, "time limit instead of the registered one", unit="steps", low=1)
    action_transform: Literal["clip", "rescale", "none"] = setting(
        "clip", "box actions at the environment's door: clipped to its bounds, or mapped from [-1, 1] to them"
    )

    @property
    def wrappers_path(self) -> str:
        """Path of the list in `wrappers`, for messages: in tests and plays that of `play_wrappers` stands there."""
        return "/env/play_wrappers" if self.wrappers == self.play_wrappers else "/env/wrappers"


@dataclass(frozen=True)
class StatisticsConfig(Config):
    """Running statistics of observations and rewards, and how they normalise."""

    builds: ClassVar[str] = "digideep.utility.statistics:Statistics"

    observations: bool = setting(False, "whether box observations are normalised to mean 0 and variance 1")
    rewards: bool = setting(False, "whether rewards are divided by the deviation of the discounted return")
    gamma: float = setting(0.99, "discount of that return", low=0.0, high=1.0)
    clip_observation: float = setting(10.0, "bound of a normalised observation", above=0.0, high=FLOAT32_LIMIT)
    clip_reward: float = setting(10.0, "bound of a normalised reward", above=0.0, high=FLOAT32_LIMIT)
    epsilon: float = setting(1e-8, "added to a variance before its root", above=0.0, high=FLOAT32_LIMIT)


@dataclass(frozen=True)
class ExplorerConfig(Config):
    """How many environments are stepped, where, and what happens when one fails."""

    builds: ClassVar[str] = "digideep.environment.explorer:Explorer"

    env: dict[str, Any] = setting({}, "node of the environment; filled in from /env")
    statistics: dict[str, Any] = setting({}, "node of the running statistics; train only")
    num_envs: int = setting(1, "environments", low=1, high=65536)
    num_workers: int | Literal["auto"] = setting(
        0, "processes that step them; 0: this one; auto: by measurement", low=0, high=4096
    )
    parent_steps: bool | Literal["auto"] = setting(
        "auto", "whether this process steps a share beside its workers; auto: where their number is measured"
    )
    backend: Literal["auto", "single", "native", "envpool"] = setting(
        "auto", "single environments, or one vector environment, the environment's own or EnvPool's; train only"
    )
    act_groups: Literal[1, 2] = setting(
        1, "2: one half acts while workers step the other; may change numbers; train only"
    )
    n_steps: int = setting(0, "steps of each environment in a chunk; train only", unit="steps", low=0)
    n_episodes: int = setting(0, "episodes of an evaluation; test and eval only", unit="episodes", low=0)
    deterministic: bool = setting(False, "the most likely action instead of a sample")
    exact: bool = setting(True, "only what can resume to the same bits is chosen automatically")
    step_timeout_s: float = setting(300.0, "longest time that one step may take", unit="s", above=0.0)
    on_env_error: Literal["stop", "reset"] = setting("stop", "what follows when an environment raises")
    on_nonfinite: Literal["stop", "reset"] = setting("stop", "what follows when an environment gives NaN or infinity")
    env_error_budget: int = setting(10, "errors that `reset` forgives in training and tests together", low=0)

    def __post_init__(self) -> None:
        """Check that the explorer knows when to end."""
        super().__post_init__()
        if (self.n_steps > 0) == (self.n_episodes > 0):
            raise ConfigError(
                f"ExplorerConfig/n_steps: expected exactly one of n_steps and n_episodes above 0, "
                f"found {self.n_steps} and {self.n_episodes}; set the other one to 0"
            )
        if self.act_groups == 2 and self.num_envs % 2:
            raise ConfigError(
                f"ExplorerConfig/num_envs: expected an even number for act_groups 2, found {self.num_envs}; "
                f"use an even one, or act_groups 1"
            )
