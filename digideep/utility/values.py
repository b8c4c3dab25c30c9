"""Plain data against annotations: which values a configuration field takes, in the words of whoever wrote them."""

from __future__ import annotations

import difflib
import itertools
import math
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from digideep.errors import ConfigError, one_line

__all__ = [
    "annotation_of",
    "check_range",
    "check_value",
    "closest",
    "nearest",
    "plain",
    "shown",
    "type_name",
    "unknown",
]

_INT_LIMIT = 2**63
_SHOWN = 60  # characters of a value in a message
_MAX_DEPTH = 40  # below what the readers of YAML and JSON take, so that what is written reads back
_KNOWN = 60  # names that are listed where none is near


def nearest(name: str, names: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` for the nearest of `names`, or a list of them if none is near."""
    known = list(names)
    close = closest(name, known)
    if close is not None:
        return f"; did you mean {close!r}?"
    rest = f" and {len(known) - _KNOWN} more" if len(known) > _KNOWN else ""
    return f"; known: {', '.join(sorted(known)[:_KNOWN])}{rest}"


def unknown(name: object, names: Iterable[str], *, what: str = "key") -> str:
    """Return what is said of a name that is none of `names`: what was expected, what was found, and the nearest one."""
    known = nearest(str(name), names)
    return f"expected a {what} that exists, found the unknown {what} {one_line(name, limit=80)!r}{known}"


def closest(name: str, names: Iterable[str]) -> str | None:
    """Return the one of `names` that is nearest to `name`; of equally near ones that with the most alike beginning.

    Capitals and small letters, and dashes and underscores, are as good as equal.
    """
    spelt = {candidate: _spelling(candidate) for candidate in names}
    name = _spelling(name[:200])
    close = difflib.get_close_matches(name, list(spelt.values()), n=5, cutoff=0.6)
    if not close:
        return None
    ratios = {candidate: difflib.SequenceMatcher(None, name, candidate).ratio() for candidate in close}
    best = [candidate for candidate, ratio in ratios.items() if ratio > max(ratios.values()) - 0.01]
    chosen = max(best, key=lambda candidate: _shared_beginning(name, candidate))
    return next(candidate for candidate, spelling in spelt.items() if spelling == chosen)


def _spelling(name: str) -> str:
    return name.lower().replace("_", "-")


def _shared_beginning(left: str, right: str) -> int:
    pairs = zip(left, right, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def check_value(value: Any, annotation: Any, *, where: str) -> Any:
    """Return `value` as the annotated type: an integer becomes a float where a float is expected, nothing else does.

    Raises:
        ConfigError: `value` has another type, or is an integer beyond 64 bits; the message names both types.
    """
    matched, result = _match(value, annotation)
    if not matched:
        raise ConfigError(f"{where}: expected {type_name(annotation)}, found {shown(value)}; write such a value")
    return result


def shown(value: Any) -> str:
    """Return type and beginning of a value, for messages: `string 'abc'`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return f"boolean {str(value).lower()}"
    if isinstance(value, int) and abs(value) >= _INT_LIMIT:
        return "an integer beyond 64 bits"
    text = one_line(value, limit=_SHOWN)
    return f"{_found_type(value)} {text!r}" if isinstance(value, str) else f"{_found_type(value)} {text}"


def type_name(annotation: Any) -> str:
    """Return an annotation in the words of JSON users: `integer`, `number or null`, `list of integer`."""
    simple = {int: "integer", float: "number", bool: "boolean", str: "string", type(None): "null", Any: "anything"}
    if annotation in simple:
        return simple[annotation]
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return "one of " + ", ".join(repr(a) for a in arguments) if len(arguments) > 1 else repr(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return " or ".join(type_name(a) for a in arguments)
    if origin is tuple:
        return "list" if arguments[0] is Any else f"list of {type_name(arguments[0])}"
    return "mapping"


def annotation_of(default: Any) -> Any:
    """Return the annotation that a value which no field declares stands for: that of its own type."""
    if default is None:
        return Any
    if isinstance(default, list | tuple):
        return tuple[Any, ...]
    if isinstance(default, Mapping):
        return dict[str, Any]
    return type(default)


def check_range(value: Any, limits: Mapping[str, Any], *, where: str) -> None:
    """Check the numbers in `value` against `low <= x`, `x <= high` and `x > above`; every number has to be finite.

    Raises:
        ConfigError: a number lies outside.
    """
    low, high, above = (limits.get(key) for key in ("low", "high", "above"))
    for number in value if isinstance(value, list | tuple) else (value,):
        if isinstance(number, bool) or not isinstance(number, int | float):
            continue
        inside = (
            math.isfinite(number)
            and (low is None or number >= low)
            and (high is None or number <= high)
            and (above is None or number > above)
        )
        if not inside:
            expected = _range_text(low, high=high, above=above)
            raise ConfigError(f"{where}: expected {expected}, found {number}; choose one in that range")


def plain(value: Any, *, where: str) -> Any:
    """Return a copy of `value` that JSON and YAML give back unchanged: tuples become lists.

    Raises:
        ConfigError: something in it is neither a mapping with text keys, a list, a finite number, text, a boolean
            nor null, or it is nested too deeply, as what contains itself is.
    """
    return _plain(value, where=where, depth=0)


def _plain(value: Any, *, where: str, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise ConfigError(
            f"{one_line(where, limit=80)}: expected at most {_MAX_DEPTH} nested levels, found more; flatten the value"
        )
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value, where=where)
    if isinstance(value, int) and abs(value) < _INT_LIMIT:
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if isinstance(value, list | tuple):
        return [_plain(element, where=f"{where}/{index}", depth=depth + 1) for index, element in enumerate(value)]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {
            _text(key, where=where): _plain(element, where=f"{where}/{one_line(key, limit=_SHOWN)}", depth=depth + 1)
            for key, element in value.items()
        }
    found = f"{type(value).__name__} {one_line(value, limit=_SHOWN)!r}"
    raise ConfigError(f"{where}: expected plain data, found {found}; use text, finite numbers, lists and mappings")


def _text(value: str, *, where: str) -> str:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise ConfigError(
            f"{where}: expected text, found half of a surrogate pair; write the whole character"
        ) from None
    return str(value)


def _match(value: Any, annotation: Any) -> tuple[bool, Any]:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is Any:
        return True, value
    if origin is Literal:
        return any(value == a and type(value) is type(a) for a in arguments), value
    if origin in (typing.Union, types.UnionType):
        matches = (_match(value, argument) for argument in arguments)
        return next((match for match in matches if match[0]), (False, value))
    if origin is tuple:
        if not isinstance(value, list | tuple):
            return False, value
        pairs = [_match(element, arguments[0]) for element in value]
        return all(matched for matched, _ in pairs), tuple(result for _, result in pairs)
    if annotation is float:
        is_number = isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool))
        return is_number, _as_float(value) if is_number else value
    if annotation is int:
        return type(value) is int and abs(value) < _INT_LIMIT, value
    if annotation in (bool, str):
        return type(value) is annotation, value
    if annotation is type(None):
        return value is None, value
    if isinstance(value, Mapping):
        return all(isinstance(key, str) for key in value), dict(value)
    return False, value


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _found_type(value: Any) -> str:
    kinds = ((int, "integer"), (float, "number"), (str, "string"), (list | tuple, "list"))
    known = next((name for kind, name in kinds if isinstance(value, kind)), None)
    return known or ("mapping" if isinstance(value, Mapping) else type(value).__name__)


def _range_text(low: float | None, *, high: float | None, above: float | None) -> str:
    bounds = (("at least", low), ("above", above), ("at most", high))
    parts = [f"{word} {bound}" for word, bound in bounds if bound is not None]
    return "a finite number " + " and ".join(parts) if parts else "a finite number"
