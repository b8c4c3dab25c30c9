"""What the value of each option may look like; nothing is imported or looked up here.

Every function takes the text behind an option and returns the value, or raises `argparse.ArgumentTypeError` with
`<expected>, <found>; <what to do>`, to which the parser adds the option.
"""

from __future__ import annotations

import math
import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from digideep.errors import UsageError, one_line
from digideep.pipeline.places import NAME_PATTERN, NAME_RULE, new_place, typed_path
from digideep.utility.logging import level_name
from digideep.utility.strictjson import loads_json
from digideep.utility.values import closest

__all__ = [
    "TEMPLATE_KEY",
    "JsonArgument",
    "assignment",
    "checkpoint",
    "device",
    "integer",
    "json_mapping",
    "log_level",
    "module_name",
    "one_of",
    "path",
    "place",
    "seconds",
    "session_name",
    "text",
]

TEMPLATE_KEY = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}", re.ASCII)

_DEVICE = re.compile(r"auto|cpu|cuda(:(0|[1-9][0-9]{0,3}))?", re.ASCII)
_INTEGER = re.compile(r"[-+]?[0-9]{1,18}", re.ASCII)
_SECONDS = re.compile(r"\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]{1,3})?", re.ASCII)
_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*", re.ASCII)
_JSON_FILE_BYTES = 1 << 20


class JsonArgument(NamedTuple):
    """A JSON object, and whether it was read from a file."""

    value: dict[str, Any]
    from_file: bool


def _shown(value: str) -> str:
    return repr(one_line(value, limit=60))


def text(value: str) -> str:
    """Return a value that is not empty and can stand in one line."""
    if not value:
        raise ArgumentTypeError("expected text, found ''; give a value")
    if value != one_line(value, limit=len(value)):
        raise ArgumentTypeError(
            f"expected text in one line, found control characters or blanks around {_shown(value)}; rename it"
        )
    return value


def place(value: str) -> str:
    """Return the path of a directory that may be made, as it was typed."""
    return _told_here(new_place, text(value))


def path(value: str) -> str:
    """Return a path as it was typed."""
    return _told_here(typed_path, text(value))


def _told_here(check: Callable[..., object], value: str) -> str:
    try:
        check(value, option="")
    except UsageError as error:
        raise ArgumentTypeError(str(error).removeprefix(": ")) from error
    return value


def integer(*, low: int) -> Callable[[str], int]:
    """Return a reader of integers from `low`."""

    def read(value: str) -> int:
        if not _INTEGER.fullmatch(value) or int(value) < low:
            raise ArgumentTypeError(f"expected an integer from {low}, found {_shown(value)}; give such a number")
        return int(value)

    return read


def seconds(value: str) -> float:
    """Return a finite number of seconds from 0."""
    if not _SECONDS.fullmatch(value) or not math.isfinite(number := float(value)):
        raise ArgumentTypeError(f"expected seconds from 0, found {_shown(value)}; give such a number")
    return number


def one_of(*choices: str) -> Callable[[str], str]:
    """Return a reader of one of `choices`; others get the nearest."""

    def read(value: str) -> str:
        if value not in choices:
            raise ArgumentTypeError(f"expected {' or '.join(choices)}, found {_shown(value)}{_near(value, choices)}")
        return value

    return read


def log_level(value: str) -> str:
    """Return the name of a log level, given as name or as number 0 to 4."""
    try:
        return level_name(value)
    except UsageError as error:
        raise ArgumentTypeError(str(error).partition(": ")[2]) from error


def checkpoint(value: str) -> str | int:
    """Return `last`, `best`, or the number of a checkpoint."""
    if value in ("last", "best"):
        return value
    if not _INTEGER.fullmatch(value) or int(value) < 0:
        raise ArgumentTypeError(f"expected last, best or a number, found {_shown(value)}; 'sessions show' lists them")
    return int(value)


def device(value: str) -> str:
    """Return the name of a device, without looking whether it is there."""
    if not _DEVICE.fullmatch(value):
        raise ArgumentTypeError(f"expected auto, cpu, cuda or cuda:N, found {_shown(value)}; give one of them")
    return value


def module_name(value: str) -> str:
    """Return a dotted module name."""
    if not _MODULE.fullmatch(value):
        raise ArgumentTypeError(f"expected the dotted name of a package, found {_shown(value)}; check its spelling")
    return value


def session_name(value: str) -> str:
    """Return a session name or a template of one, `tug-lr{lr}-s{seed}`."""
    if not NAME_PATTERN.fullmatch(TEMPLATE_KEY.sub("x", value)):
        raise ArgumentTypeError(f"expected {NAME_RULE}, found {_shown(value)}; choose such a name")
    return value


def assignment(value: str) -> tuple[str, str]:
    """Return (key, text of the value) of `KEY=VALUE`."""
    key, separator, content = value.partition("=")
    if not separator or not key:
        raise ArgumentTypeError(
            f"expected KEY=VALUE, found {_shown(value)}; write it like seed=3 or /runner/n_epochs=9"
        )
    return key, content


def json_mapping(value: str) -> JsonArgument:
    """Return the JSON object that the text holds, or the one in the file behind an `@`."""
    from_file = value.startswith("@")
    try:
        content = _read_file(value[1:]) if from_file else loads_json(value, where="")
    except UsageError as error:
        raise ArgumentTypeError(str(error).removeprefix(": ")) from error
    if not isinstance(content, dict):
        found = _shown(value)
        raise ArgumentTypeError(f"expected a JSON object, found {found}; write it like '{{\"seed\": 3}}'")
    return JsonArgument(content, from_file)


def _read_file(name: str) -> Any:
    from digideep.pipeline.fsio import read_json

    return read_json(name, limit_bytes=_JSON_FILE_BYTES, follow_links=True)


def _near(value: str, choices: Sequence[str]) -> str:
    near = closest(value, choices)
    return f"; did you mean {near!r}?" if near else "; give one of them"
