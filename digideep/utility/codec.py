"""State trees as JSON plus arrays, and back, to the same bits and the same types.

What a tree may hold is a closed list: None, bool, int, float, str, bytes, list, tuple, dict, `numpy.ndarray` and numpy
scalars of the dtypes below. Exact types only: a subclass (NamedTuple, OrderedDict, IntEnum) would come back as
something else and is refused with its path in the tree. One object in two places comes back as two equal objects.

A leaf that JSON lacks becomes an object with one key:

    $array   name of an array that is stored beside the JSON
    $ndarray [dtype, shape, base64]     an array inside the JSON, only with `inline=True`
    $scalar  [dtype, hex]               a numpy scalar: its type matters to what is computed with it
    $tuple   [items]
    $map     [[key, value], ...]        a dict with keys other than str
    $int     hex                        an int outside 64 bits
    $float   hex of the IEEE 754 bytes  NaN and infinity; all other floats are exact as JSON numbers
    $bytes   base64
    $str     hex of UTF-16              text with half of a surrogate pair

A key of the user's that begins with `$` gets a second one. Arrays are named by their path, as in a JSON pointer
(`/policy/0/weight`; `~` and `/` inside a key are `~0` and `~1`).
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, NamedTuple, NoReturn

import numpy as np

from digideep.errors import CheckpointError, DigideepError, one_line

__all__ = ["DTYPES", "MAX_JSON_DEPTH", "CodecError", "Encoded", "StateTree", "decode", "encode"]

# None | bool | int | float | str | bytes | list | tuple | dict | np.ndarray | np.generic, nested
StateTree = Any

DTYPES = {
    name: np.dtype(name)
    for name in (
        *("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"),
        *("float16", "float32", "float64"),
    )
}
_MAX_DEPTH = 64
MAX_JSON_DEPTH = 4 * _MAX_DEPTH  # a `$map` spends three levels of JSON on one of the tree
_INT64 = range(-(2**63), 2**63)
_INT_TEXT = re.compile(r"-?0x[0-9a-f]+")


class CodecError(DigideepError):
    """A state holds something that cannot be stored; the message gives its path in the tree."""


class _RefusedError(Exception):
    """Where and why, on its way from the leaf to `encode`."""


class Encoded(NamedTuple):
    """A tree in the two forms that files have."""

    json: Any
    arrays: dict[str, np.ndarray]


def encode(
    tree: StateTree,
    *,
    inline: bool = False,
    buffers: MutableMapping[str, np.ndarray] | None = None,
    where: str = "state",
) -> Encoded:
    """Return the tree as JSON and arrays, which share no memory with it.

    Args:
        tree: see the list at the top of this module.
        inline: put the arrays into the JSON too.
        buffers: arrays of an earlier call, by name. One of the same shape and dtype is written into and returned again,
            since fresh memory costs more than the copy; new ones are added.
        where: whose state it is, for the message.

    Returns:
        JSON without NaN or infinity; arrays in native byte order, C-contiguous.

    Raises:
        CodecError: the tree holds something else, or is nested more than 64 levels deep.
    """
    encoder = _Encoder(inline=inline, buffers={} if buffers is None else buffers)
    try:
        value = encoder.value(tree, (), 0)
    except _RefusedError as error:
        raise CodecError(one_line(f"{where} {error}; store it in another form")) from error
    return Encoded(json=value, arrays=encoder.arrays)


def _pointer(path: tuple[str, ...]) -> str:
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in path)


class _Encoder:
    def __init__(self, *, inline: bool, buffers: MutableMapping[str, np.ndarray]) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self._inline = inline
        self._buffers = buffers

    def value(self, tree: Any, path: tuple[str, ...], depth: int) -> Any:
        kind = type(tree)
        if tree is None or kind is bool:
            return tree
        if kind is int:
            return tree if tree in _INT64 else {"$int": hex(tree)}
        if kind is float:
            return tree if abs(tree) < float("inf") else {"$float": struct.pack(">d", tree).hex()}
        if kind is str:
            return _text(tree)
        if kind is bytes:
            return {"$bytes": base64.b64encode(tree).decode("ascii")}
        if kind is np.ndarray:
            return self._array(tree, path)
        if isinstance(tree, np.generic):
            return {"$scalar": [_dtype(tree, path).name, _little(tree).tobytes().hex()]}
        if kind in (list, tuple, dict):
            if depth >= _MAX_DEPTH:
                _refuse(path[:8], f"at most {_MAX_DEPTH} nested levels", "more (or a list that holds itself)")
            return self._container(tree, path, depth + 1)
        _refuse(path, "plain data or a numpy array", f"{kind.__module__}.{kind.__qualname__}")

    def _container(self, tree: Any, path: tuple[str, ...], depth: int) -> Any:
        if type(tree) is dict:
            if all(type(key) is str and _is_text(key) for key in tree):
                return {_escape(key): self.value(item, (*path, key), depth) for key, item in tree.items()}
            return {"$map": [self._pair(pair, (*path, str(i)), depth) for i, pair in enumerate(tree.items())]}
        items = [self.value(item, (*path, str(index)), depth) for index, item in enumerate(tree)]
        return items if type(tree) is list else {"$tuple": items}

    def _pair(self, pair: tuple[Any, Any], path: tuple[str, ...], depth: int) -> list[Any]:
        key, item = pair
        _check_key(key, path)
        return [self.value(key, path, depth), self.value(item, path, depth)]

    def _array(self, array: np.ndarray, path: tuple[str, ...]) -> Any:
        dtype, name = _dtype(array, path), _pointer(path)
        if self._inline:
            content = base64.b64encode(_little(array).tobytes()).decode("ascii")
            return {"$ndarray": [dtype.name, list(array.shape), content]}
        kept = self._buffers.get(name)
        if kept is None or kept.shape != array.shape or kept.dtype != dtype:
            kept = self._buffers[name] = np.empty(array.shape, dtype)
        np.copyto(kept, array)
        self.arrays[name] = kept
        return {"$array": name}


def _refuse(path: tuple[str, ...], expected: str, found: str) -> NoReturn:
    raise _RefusedError(f"at {_pointer(path) or 'the top'}: expected {expected}, found {found}")


def _dtype(array: np.ndarray | np.generic, path: tuple[str, ...]) -> np.dtype[Any]:
    """Return the dtype in native byte order."""
    dtype = DTYPES.get(array.dtype.name)
    if dtype is None:
        _refuse(path, f"one of the dtypes {', '.join(DTYPES)}", f"dtype {array.dtype}")
    return dtype


def _little(array: np.ndarray | np.generic) -> np.ndarray:
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"))


def _is_text(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _text(text: str) -> Any:
    return text if _is_text(text) else {"$str": text.encode("utf-16-le", "surrogatepass").hex()}


def _escape(key: str) -> str:
    return "$" + key if key.startswith("$") else key


def _check_key(key: Any, path: tuple[str, ...]) -> None:
    if type(key) is tuple:
        for part in key:
            _check_key(part, path)
    elif key is not None and type(key) not in (str, int, bool, float, bytes):
        _refuse(path, "a key of plain data", f"a key of type {type(key).__qualname__}")


def decode(json: Any, arrays: Mapping[str, np.ndarray]) -> StateTree:
    """Return the tree that `encode` was given; the arrays in it are those handed in, not copies.

    Raises:
        CheckpointError: an unknown or malformed tag, or arrays that are missing or left over, all named in one line.
    """
    decoder = _Decoder(arrays)
    try:
        tree = decoder.value(json)
    except (ValueError, TypeError, KeyError, struct.error, binascii.Error, RecursionError) as error:
        raise CheckpointError(f"state: expected what digideep writes, found {one_line(error, limit=200)}") from error
    surplus = [name for name in arrays if name not in decoder.used]
    if decoder.missing or surplus:
        missing, left = ", ".join(decoder.missing[:5]) or "none", ", ".join(surplus[:5]) or "none"
        raise CheckpointError(one_line(f"state: expected its arrays, found missing: {missing}; left over: {left}"))
    return tree


class _Decoder:
    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.used: set[str] = set()
        self.missing: list[str] = []
        self._arrays = arrays

    def value(self, json: Any) -> Any:
        if isinstance(json, list):
            return [self.value(item) for item in json]
        if not isinstance(json, dict):
            return json
        if len(json) == 1:
            ((key, content),) = json.items()
            if key.startswith("$") and not key.startswith("$$"):
                return self._tagged(key, content)
        return {_unescape(key): self.value(item) for key, item in json.items()}

    def _tagged(self, tag: str, content: Any) -> Any:
        if tag == "$array":
            return self._array(content)
        if tag == "$tuple":
            return tuple(self.value(item) for item in content)
        if tag == "$map":
            return {self.value(key): self.value(item) for key, item in content}
        if tag not in _LEAVES:
            raise ValueError(f"the unknown tag {tag!r}")
        return _LEAVES[tag](content)

    def _array(self, name: Any) -> Any:
        if not isinstance(name, str):
            raise ValueError("an array whose name is no text")
        if name in self.used:
            raise ValueError(f"the array {name} used twice")
        self.used.add(name)
        if name not in self._arrays:
            self.missing.append(name)
            return None
        return self._arrays[name]


def _unescape(key: str) -> str:
    if not key.startswith("$"):
        return key
    if not key.startswith("$$"):
        raise ValueError(f"the tag {key!r} beside other keys")
    return key[1:]


def _int(content: str) -> int:
    if not _INT_TEXT.fullmatch(content):
        raise ValueError("a malformed $int")
    return int(content, 16)


def _float(content: str) -> float:
    (value,) = struct.unpack(">d", bytes.fromhex(content))
    return float(value)


def _ndarray(content: Any) -> np.ndarray:
    name, shape, text = content
    dtype = DTYPES[name]
    flat = np.frombuffer(base64.b64decode(text, validate=True), dtype=dtype.newbyteorder("<"))
    return flat.reshape(shape).astype(dtype)  # astype copies: the result owns its memory and can be written to


def _scalar(content: Any) -> np.generic:
    name, text = content
    dtype = DTYPES[name]
    values = np.frombuffer(bytes.fromhex(text), dtype=dtype.newbyteorder("<")).astype(dtype)
    if values.shape != (1,):
        raise ValueError("a $scalar of another size than its type")
    scalar: np.generic = values[0]
    return scalar


_LEAVES: dict[str, Callable[[Any], Any]] = {
    "$int": _int,
    "$float": _float,
    "$bytes": lambda content: base64.b64decode(content, validate=True),
    "$str": lambda content: bytes.fromhex(content).decode("utf-16-le", "surrogatepass"),
    "$ndarray": _ndarray,
    "$scalar": _scalar,
}
