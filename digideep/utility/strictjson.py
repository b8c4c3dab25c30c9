"""JSON as the standard says it: no key twice, no NaN, no infinity, no bottomless nesting."""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

from digideep.errors import UsageError, one_line

__all__ = ["MAX_DEPTH", "loads_json"]

MAX_DEPTH = 100

# A string, ended or not. An unended string takes the rest of the text, which keeps the scan linear.
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)
_NO_BRACKET = re.compile(r"[^\[\]{}]+")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class _Refused(ValueError):
    """What JSON readers usually let pass."""


def loads_json(text: str, *, where: str, max_depth: int = MAX_DEPTH) -> Any:
    """Return the value that `text` holds.

    Stricter than `json.loads`: a key that stands twice in one object, NaN, infinity, a number too large for a float and
    half of a surrogate pair are refused, as is nesting deeper than `max_depth`, which could end in a RecursionError.

    Args:
        text: one JSON value.
        where: what the text is, for the message: a file name or an option.
        max_depth: how deep lists and objects may be nested.

    Raises:
        UsageError: one line that says where, what is wrong, and at which place.
    """
    where = one_line(where)
    if _depth_exceeds(text, max_depth):
        raise UsageError(f"{where}: expected at most {max_depth} nested levels, found more; flatten the value")
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}"
        found = error.msg.removesuffix(" at")
        raise UsageError(f"{where}: expected JSON, found {found} at {place}; correct it there") from error
    except _Refused as error:
        raise UsageError(f"{where}: {one_line(error, limit=300)}") from error
    except UnicodeEncodeError as error:
        raise UsageError(f"{where}: expected text, found half of a surrogate pair; write both halves") from error
    except ValueError as error:  # more digits than an integer may have in text
        found = one_line(error, limit=120)
        raise UsageError(f"{where}: expected JSON numbers of reasonable length, found {found}; shorten it") from error
    return value


def _depth_exceeds(text: str, max_depth: int) -> bool:
    if text.count("[") + text.count("{") <= max_depth:
        return False
    # Millions of brackets: every step runs at the speed of C. Each round takes the innermost level away.
    brackets = _NO_BRACKET.sub("", _STRING.sub("", text))
    for _ in range(max_depth):
        inner = brackets.replace("[]", "").replace("{}", "")
        if inner == brackets:  # what is left does not match, which the parser will tell, unless it is a deep beginning
            return len(inner) > max_depth
        brackets = inner
    return bool(brackets)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise _Refused(f"expected every key once, found {twice!r} twice; keep one of the two")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise _Refused(f"expected a finite number, found {name}; JSON has no such number")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise _Refused(f"expected a number below 1.8e308, found {one_line(digits, limit=40)}; write a smaller one")
    return value
