"""YAML with the core schema of version 1.2, read strictly and written so that it reads back equal.

`1e-4` is a float, `NO` a string, `0o17` an integer. Refused: anchors and aliases (and with them the bombs made of
them), tags, a key that stands twice, keys that are not text, several documents, deep nesting and large files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from digideep.errors import UsageError, one_line

__all__ = ["LIMIT_BYTES", "dumps_yaml", "loads_yaml", "read_scalar", "read_yaml"]

LIMIT_BYTES = 1 << 20
_MAX_DEPTH = 50

_NULLS = frozenset(("", "~", "null", "Null", "NULL"))
_TRUE, _FALSE = frozenset(("true", "True", "TRUE")), frozenset(("false", "False", "FALSE"))
_INT = re.compile(r"[-+]?[0-9]+", re.ASCII)
_OCTAL, _HEXADECIMAL = re.compile(r"0o[0-7]+", re.ASCII), re.compile(r"0x[0-9a-fA-F]+", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_SPECIAL = re.compile(r"([-+]?)\.(inf|Inf|INF)|\.(?:nan|NaN|NAN)", re.ASCII)

# Strings that stand unquoted: nothing that any reader of any version takes for a number, a boolean or syntax.
_UNQUOTED = re.compile(r"[A-Za-z_/][\w./-]*(?::[A-Za-z_][\w./-]*)*", re.ASCII)
_WORDS = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null"))
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def read_scalar(text: str) -> Any:
    """Return what an unquoted scalar stands for: null, a boolean, a number, or the text itself.

    Raises:
        ValueError: an integer has more digits than can be read.
    """
    if text in _NULLS:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if _INT.fullmatch(text):
        return int(text)
    if _OCTAL.fullmatch(text) or _HEXADECIMAL.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    special = _SPECIAL.fullmatch(text)
    if special:
        return float(f"{special[1]}inf" if special[2] else "nan")
    return text


def loads_yaml(text: str, *, where: str) -> Any:
    """Return the one document that `text` holds.

    Args:
        text: at most `LIMIT_BYTES` characters.
        where: what the text is, for the message: a file name or an option.

    Raises:
        UsageError: one line that says where, what is wrong, and in which line.
    """
    import yaml

    if len(text) > LIMIT_BYTES:
        raise UsageError(f"{where}: expected at most {LIMIT_BYTES} bytes, found {len(text)}; shorten the file")
    try:
        # The parser in C reads the same and several times faster; not every installation of PyYAML has it.
        parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        return _Reader(yaml.parse(text, Loader=parser), where=where).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f" in line {mark.line + 1} column {mark.column + 1}" if mark else ""
        problem = one_line(error.problem or error.context, limit=200).removeprefix("found ")
        raise UsageError(f"{where}: expected YAML, found {problem}{place}; correct it there") from error
    except yaml.YAMLError as error:
        raise UsageError(f"{where}: expected YAML, found {one_line(error, limit=200)}; correct it there") from error


def read_yaml(path: Path | str) -> Any:
    """Return the document in a YAML file.

    Raises:
        UsageError: no such file, not a regular file, too large, not UTF-8, or not YAML as `loads_yaml` takes it.
    """
    where, path = one_line(path), Path(path)
    try:
        if path.exists() and not path.is_file():
            raise UsageError(f"{where}: expected a regular file, found another kind; check the path")
        with path.open("rb") as file:
            content = file.read(LIMIT_BYTES + 1)
    except OSError as error:
        found = one_line(error.strerror or error)
        raise UsageError(f"{where}: expected a readable YAML file, found {found}; check the path") from error
    try:
        return loads_yaml(content.decode("utf-8"), where=where)
    except UnicodeDecodeError as error:
        if len(content) > LIMIT_BYTES:
            raise UsageError(f"{where}: expected at most {LIMIT_BYTES} bytes, found more; shorten the file") from error
        found = f"byte {content[error.start]:#04x} at offset {error.start}"
        raise UsageError(f"{where}: expected UTF-8 text, found {found}; save the file as UTF-8") from error


def dumps_yaml(tree: Mapping[str, Any]) -> str:
    """Return plain data as YAML in block style, keys in their order; `loads_yaml` gives it back equal."""
    return "".join(f"{line}\n" for line in _block(tree, indent="")) if tree else "{}\n"


class _Reader:
    """Makes values of the events of one parsed text."""

    def __init__(self, events: Iterator[Any], *, where: str) -> None:
        self._events = events
        self._where = where

    def document(self) -> Any:
        event = self._next()  # the start of the stream
        event = self._next()
        if type(event).__name__ == "StreamEndEvent":
            return None
        value = self._value(self._next(), depth=0)
        self._next()  # the end of the document
        event = self._next()
        if type(event).__name__ != "StreamEndEvent":
            self._refuse(event, "expected one document, found another", "keep one of the two")
        return value

    def _next(self) -> Any:
        return next(self._events)

    def _value(self, event: Any, *, depth: int) -> Any:
        kind = type(event).__name__
        if kind == "AliasEvent" or event.anchor is not None:
            self._refuse(event, "expected values, found an anchor or alias", "write the value out")
        if event.tag is not None:
            self._refuse(event, f"expected no tags, found {one_line(event.tag, limit=80)!r}", "leave it out")
        if depth > _MAX_DEPTH:
            self._refuse(event, f"expected at most {_MAX_DEPTH} nested levels, found more", "flatten the value")
        if kind == "ScalarEvent":
            return self._scalar(event)
        return self._list(depth) if kind == "SequenceStartEvent" else self._mapping(depth)

    def _scalar(self, event: Any) -> Any:
        if event.style:  # quoted, or a block of text
            return event.value
        try:
            return read_scalar(event.value)
        except ValueError:
            self._refuse(event, "expected numbers of reasonable length, found a longer one", "shorten it")

    def _list(self, depth: int) -> list[Any]:
        values = []
        while type(event := self._next()).__name__ != "SequenceEndEvent":
            values.append(self._value(event, depth=depth + 1))
        return values

    def _mapping(self, depth: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        while type(event := self._next()).__name__ != "MappingEndEvent":
            key = self._value(event, depth=depth + 1)
            if not isinstance(key, str):
                self._refuse(event, f"expected text as a key, found {one_line(key, limit=60)}", "put it in quotes")
            if key in values:
                self._refuse(
                    event, f"expected every key once, found {one_line(key, limit=80)!r} twice", "keep one of the two"
                )
            values[key] = self._value(self._next(), depth=depth + 1)
        return values

    def _refuse(self, event: Any, problem: str, advice: str) -> NoReturn:
        raise UsageError(f"{self._where}: {problem} in line {event.start_mark.line + 1}; {advice}")


def _block(tree: Mapping[str, Any], *, indent: str) -> Iterator[str]:
    for key, value in tree.items():
        name = indent + _text(key)
        if isinstance(value, Mapping) and value:
            yield f"{name}:"
            yield from _block(value, indent=indent + "  ")
        else:
            yield f"{name}: {_flow(value)}"


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_text(key)}: {_flow(element)}" for key, element in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_flow, value)) + "]"
    writers: dict[type, Callable[[Any], str]] = {str: _text, float: _float, int: str, bool: _boolean}
    return "null" if value is None else writers[type(value)](value)


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _float(value: float) -> str:
    """Return the shortest text that reads back, with a point, without which older readers see a string."""
    digits, mark, exponent = repr(value).partition("e")
    return f"{digits}.0e{exponent}" if mark and "." not in digits else f"{digits}{mark}{exponent}"


def _text(value: str) -> str:
    if _UNQUOTED.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return '"' + "".join(_ESCAPES.get(c) or (c if _printable(c) else _escape(c)) for c in value) + '"'


def _printable(character: str) -> bool:
    return character.isprintable() and ord(character) < 0x10000


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
