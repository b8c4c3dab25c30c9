"""What a session is asked to do: the command line, or the keywords of `digideep.run`, as one value."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum
from typing import Any, Literal

__all__ = ["Mode", "SessionOptions"]


class Mode(Enum):
    """What a session is opened for."""

    TRAIN = "train"
    RESUME = "resume"
    PLAY = "play"
    CUSTOM = "custom"
    CREATE = "create"


@dataclasses.dataclass(frozen=True)
class SessionOptions:
    """Every option of the command line, checked for form and for forbidden combinations, and nothing imported yet."""

    mode: Mode = Mode.TRAIN
    params: str | None = None
    cpanel: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # of --cpanel
    repeal: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # of --repeal
    cpanel_from_file: bool = False  # @file.json: then module names in it are nobody's consent
    repeal_from_file: bool = False
    assignments: tuple[tuple[str, str], ...] = ()  # of --set, values unread
    session_path: str | None = None
    session_name: str | None = None
    autoresume: bool = False
    lock_wait_s: float | None = None  # None: 120 with autoresume, 0 without
    save_modules: tuple[str, ...] = ()
    load_checkpoint: str | None = None
    checkpoint: str | int = "last"  # last, best or a number
    checkpoint_named: bool = False  # whether the user named one: then nothing falls back
    episodes: int | None = None
    seed: int | None = None
    stochastic: bool = False
    render: bool = False
    record: bool = False
    output: str | None = None
    dry_run: bool = False
    code: Literal["session", "installed"] | None = None
    trust_session: bool = False
    device: str | None = None  # None: auto, not asked for
    tensorboard: bool = False
    tensorboard_host: str = "127.0.0.1"
    monitor_cpu: bool = True
    monitor_gpu: bool = True
    log_level: str = "info"
    profiler_level: int = -1
    message: str = ""
    check_resume: int | None = None
    command_line: tuple[str, ...] = ()
    from_python: bool = False  # digideep.run: never reads argv, never replaces the process, never prints to stdout
