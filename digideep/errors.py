"""Every error that digideep raises on purpose, one class for each way of reacting to it.

    DigideepError                        1   a fault of ours, unless a subclass says otherwise
    ├── UsageError                       2   options, parameters or files that the user can correct
    │   ├── ConfigError                  2   a key, a type or a range in parameters
    │   ├── SpaceError                   2   a space that a method cannot do
    │   └── MissingExtraError            2   an optional dependency that is not installed
    ├── ShapeError                       1   an array that breaks the contract between two parts
    ├── SessionDoneError                 3   the session has reached its goal already
    ├── SessionLockedError               4   the session is open in another process
    ├── CheckpointError                  5   checkpoints exist and none of them is usable
    ├── TrustError                       6   the session needs code that is not trusted
    ├── EnvironmentFailure               7   an environment raised, hung or broke its own declaration
    │   └── WorkerError                  7   the process that held environments died or hung
    ├── NumbersError                     8   what was computed cannot be used
    │   ├── NonFiniteError               8   NaN or infinity
    │   └── NotReproducibleError         8   two runs that had to be equal were not
    ├── StorageError                     9   what had to be durable could not be written
    └── StoppedError               128 + n   signal n asked for an end before anything had begun

The number is the exit code of the program. Messages follow one form: `<where>: <expected>, <found>; <what to do>`.
"""

from __future__ import annotations

import re
import signal

__all__ = [
    "EXIT_PREEMPTED",
    "CheckpointError",
    "ConfigError",
    "DigideepError",
    "EnvironmentFailure",
    "MissingExtraError",
    "NonFiniteError",
    "NotReproducibleError",
    "NumbersError",
    "SessionDoneError",
    "SessionLockedError",
    "ShapeError",
    "SpaceError",
    "StoppedError",
    "StorageError",
    "TrustError",
    "UsageError",
    "WorkerError",
    "one_line",
    "without_controls",
]

EXIT_PREEMPTED = 75  # stopped early on purpose, with a durable save


class DigideepError(Exception):
    """Base of all errors of this package; `exit_code` is what the program ends with."""

    exit_code = 1
    details = ""  # a traceback that no file keeps; the program prints it above the line


class UsageError(DigideepError):
    """Something the user typed or wrote can be corrected by the user."""

    exit_code = 2


class ConfigError(UsageError):
    """A configuration key is unknown, has another type, or is out of range."""


class UserCodeError(DigideepError):
    """Code of the user raised an error in a run; unlike after a refusal what the run has made stays."""

    exit_code = 2


class SpaceError(UsageError):
    """A method cannot work with an observation or action space."""


class MissingExtraError(UsageError):
    """An optional dependency is needed; the message names the extra to install."""


class ShapeError(DigideepError):
    """An array has another shape than the contract between two parts says."""


class SessionDoneError(DigideepError):
    """The session has reached its goal; nothing is left to do."""

    exit_code = 3


class SessionLockedError(DigideepError):
    """The session is open in another process."""

    exit_code = 4


class CheckpointError(DigideepError):
    """Checkpoints exist, but the one asked for (or every one) is missing or damaged."""

    exit_code = 5


class TrustError(DigideepError):
    """The session needs code that nobody has vouched for."""

    exit_code = 6


class EnvironmentFailure(DigideepError):
    """An environment raised an exception or broke what it declared."""

    exit_code = 7


class WorkerError(EnvironmentFailure):
    """A worker process died, hung, or answered out of turn."""


class NumbersError(DigideepError):
    """Numbers that must not be used."""

    exit_code = 8


class NonFiniteError(NumbersError):
    """NaN or infinity where a finite number is required."""


class NotReproducibleError(NumbersError):
    """Two runs that had to give the same bits did not."""


class StorageError(DigideepError):
    """Something that had to be durable could not be written."""

    exit_code = 9


class StoppedError(DigideepError):
    """A signal asked for an end before a run had begun; `exit_code` is 128 plus its number."""

    def __init__(self, message: str = "", number: int = signal.SIGTERM) -> None:
        super().__init__(message)
        self.exit_code = 128 + number


# Control characters, ends of lines, and what changes the direction of text or is not seen at all.
_CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]+"
)


def without_controls(text: object) -> str:
    """Return `text` line by line as it is, each without control characters: for text of several lines."""
    return "\n".join(_CONTROL.sub(" ", line.replace("\t", "    ")) for line in str(text).split("\n"))


def one_line(text: object, *, limit: int = 2000) -> str:
    """Return `text` on one line without control characters, so that names cannot forge output.

    Of an object whose own text cannot be had, the name of its type.
    """
    try:
        shown = str(text)
    except Exception:  # code of the user; what is being told must be told all the same
        shown = f"{type(text).__name__} (its text cannot be had)"
    line = _CONTROL.sub(" ", shown).strip()
    return line if len(line) <= limit else line[: limit - 3] + "..."
