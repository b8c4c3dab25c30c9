"""Configurations of the runner and of the serial engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from digideep.errors import ConfigError
from digideep.utility.node import Config, setting

__all__ = ["EngineConfig", "RunnerConfig", "SerialEngineConfig"]


@dataclass(frozen=True)
class RunnerConfig(Config):
    """The lifecycle of a run: goals, budgets, and when to test and save."""

    builds: ClassVar[str] = "digideep.pipeline.runner:Runner"

    seed: int = setting(1, "from which every generator is derived", low=0)
    n_epochs: int = setting(0, "goal; 0 where total_frames is the goal", unit="epochs", low=0)
    n_cycles: int = setting(1, "cycles (chunks) an epoch", unit="cycles", low=1)
    total_frames: int = setting(0, "goal; 0 where number_epochs is the goal", unit="frames", low=0)
    stop_return: float | None = setting(None, "mean return of a test at which to end")
    save_int: int = setting(10, "between saves; 0: only at the end", unit="epochs", low=0)
    save_every_s: float = setting(0.0, "between saves; 0: by epochs only", unit="s", low=0.0)
    keep_last: int = setting(3, "newest checkpoints that are kept", low=1)
    keep_best: int = setting(1, "best checkpoints that are kept", low=0)
    keep_every: int = setting(0, "checkpoints kept for good: every so many cycles; 0: none", unit="cycles", low=0)
    test_act: bool = setting(True, "whether tests are run in training")
    test_int: int = setting(10, "between tests", unit="epochs", low=1)
    max_time: float = setting(0.0, "budget of this process; 0: none", unit="h", low=0.0)
    max_iter: int = setting(0, "budget of this process; 0: none", unit="epochs", low=0)
    on_sigusr1: Literal["continue", "stop"] = setting("continue", "what follows the save that SIGUSR1 asks for")
    grace_s: float = setting(20.0, "from SIGTERM or SIGHUP to the exit", unit="s", above=0.0)
    init_from: str | None = setting(None, "checkpoint whose policies and normalisers a new session starts from")
    on_epoch: str | None = setting(None, "`module:function`, called with the runner after each epoch, before saving")

    def __post_init__(self) -> None:
        """Check that there is exactly one goal."""
        super().__post_init__()
        if (self.n_epochs > 0) == (self.total_frames > 0):
            advice = "set the one that is not your goal to 0" if self.n_epochs else "set one of them"
            raise ConfigError(
                f"RunnerConfig/n_epochs: expected exactly one of number_epochs (/runner/n_epochs) and total_frames "
                f"(/runner/total_frames) above 0, found {self.n_epochs} and {self.total_frames}; {advice}"
            )


@dataclass(frozen=True)
class EngineConfig(Config):
    """What stands at `/engine`: how sampling and learning are scheduled."""


@dataclass(frozen=True)
class SerialEngineConfig(EngineConfig):
    """Sampling and learning in turn, in one process."""

    builds: ClassVar[str] = "digideep.pipeline.engine:SerialEngine"

    num_threads: int | Literal["auto"] = setting("auto", "torch threads; auto: by network class and size", low=1)
    chosen: dict[str, Any] = setting({}, "what the first start chose by rule; reused by every resume")
