"""Files of named arrays in the safetensors format, with reproducible bytes and a reader that trusts nothing.

The format: 8 bytes with the length of a JSON header, the header `{name: {"dtype", "shape", "data_offsets"}}`, then the
content of the arrays, little-endian, without gaps. Other programs read these files with the `safetensors` package. They
are written here and not there because the content is hashed on its way to the disk, without a second copy of a large
memory, and read here because every size is compared with that of the file before anything is allocated.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from digideep.errors import CheckpointError, UsageError, one_line
from digideep.utility.codec import DTYPES, CodecError
from digideep.utility.strictjson import loads_json

__all__ = ["Readable", "read_safetensors", "write_safetensors"]

_CODES = {
    **{"bool": "BOOL", "float16": "F16", "float32": "F32", "float64": "F64"},
    **{f"{sign}int{bits}": f"{'U' if sign else 'I'}{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
_DTYPES = {code: DTYPES[name] for name, code in _CODES.items()}
_MAX_HEADER = 4 << 20  # 20,000 arrays; larger ones take long to read, whatever they hold
_MAX_DIMENSIONS = 32
_MAX_ARRAYS = 20_000  # of one component; decoding takes time for each


class Readable(Protocol):
    """A file that is read from its beginning."""

    def read(self, count: int) -> bytes:
        """Return the next `count` bytes, fewer only at the end."""
        ...

    def readinto(self, target: memoryview) -> int:
        """Fill `target` and return the number of bytes, fewer only at the end."""
        ...


def write_safetensors(arrays: Mapping[str, np.ndarray]) -> Iterator[bytes | memoryview]:
    """Return the content of the file piece by piece: the header, then each array, whose memory is not copied.

    The same names, dtypes, shapes and values give the same bytes, in whatever order the mapping has them.

    Args:
        arrays: name to C-contiguous array of a dtype that `codec` knows; the name `__metadata__` is taken.

    Raises:
        ValueError: an array is not contiguous, has another dtype, or the name that is taken.
        CodecError: there are more arrays, or longer names, than the reader takes.
    """
    header: dict[str, Any] = {}
    ordered = sorted(arrays.items(), key=lambda item: (-item[1].dtype.itemsize, item[0]))  # widest first aligns all
    end = 0
    for name, array in ordered:
        if name == "__metadata__" or array.dtype.name not in _CODES or not array.flags.c_contiguous:
            raise ValueError(f"array {name!r}: expected a contiguous array of a known dtype, found {array.dtype}")
        begin, end = end, end + array.nbytes
        code = _CODES[array.dtype.name]
        header[name] = {"dtype": code, "shape": list(array.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    if len(header) > _MAX_ARRAYS or len(text) > _MAX_HEADER:
        limits = f"at most {_MAX_ARRAYS} arrays, described in {_MAX_HEADER} bytes"
        raise CodecError(f"expected {limits}, found {len(header)} in {len(text)} bytes; put them into fewer arrays")
    return _pieces(struct.pack("<Q", len(text)) + text, [array for _, array in ordered])


def _pieces(header: bytes, arrays: Sequence[np.ndarray]) -> Iterator[bytes | memoryview]:
    yield header
    for array in arrays:
        if array.nbytes:
            little = array.astype(array.dtype.newbyteorder("<"), copy=False)
            yield little.reshape(-1).view(np.uint8).data


class _Entry(NamedTuple):
    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    begin: int
    end: int


def read_safetensors(source: Readable, *, size: int) -> dict[str, np.ndarray]:
    """Return the arrays in a file of `size` bytes; they own their memory and can be written to.

    Raises:
        CheckpointError: the header is malformed, names an unknown dtype, or does not describe exactly `size` bytes.
    """
    if size < 8:
        raise CheckpointError(f"expected at least 8 bytes, found {size}")
    (length,) = struct.unpack("<Q", _exactly(source, 8))
    if length > min(size - 8, _MAX_HEADER):
        raise CheckpointError(f"expected a header within the file and below {_MAX_HEADER} bytes, found {length} bytes")
    arrays = {}
    for entry in _parse(_exactly(source, length), data_bytes=size - 8 - length):
        array = np.empty(entry.shape, entry.dtype)
        if array.nbytes:
            target = array.reshape(-1).view(np.uint8).data
            if source.readinto(target) != array.nbytes:
                raise CheckpointError(f"expected {array.nbytes} bytes of {one_line(entry.name)!r}, found the end")
        if sys.byteorder == "big":
            array.byteswap(inplace=True)
        arrays[entry.name] = array
    return arrays


def _exactly(source: Readable, count: int) -> bytes:
    content = source.read(count)
    if len(content) != count:
        raise CheckpointError(f"expected {count} bytes, found the end of file after {len(content)}")
    return content


def _parse(text: bytes, *, data_bytes: int) -> list[_Entry]:
    """Return the entries in the order of their content, which must fill the data part without gap or overlap."""
    try:
        header = loads_json(text.decode("utf-8"), where="header", max_depth=8)
    except (UsageError, UnicodeDecodeError) as error:
        raise CheckpointError(f"expected a JSON header, found {one_line(error, limit=200)}") from error
    if not isinstance(header, dict):
        raise CheckpointError("expected an object as header, found something else")
    header.pop("__metadata__", None)
    if len(header) > _MAX_ARRAYS:
        raise CheckpointError(f"expected at most {_MAX_ARRAYS} arrays in a file, found {len(header)}")
    entries = sorted(
        (_entry(name, value) for name, value in header.items()), key=lambda entry: (entry.begin, entry.end)
    )
    position = 0
    for entry in entries:
        if entry.begin != position:
            raise CheckpointError(f"expected {one_line(entry.name)!r} at offset {position}, found it at {entry.begin}")
        position = entry.end
    if position != data_bytes:
        raise CheckpointError(f"expected {position} bytes of data, found {data_bytes}")
    return entries


def _is_size(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**62


def _entry(name: str, value: Any) -> _Entry:
    where = one_line(repr(name), limit=100)
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise CheckpointError(f"expected dtype, shape and data_offsets for {where}, found something else")
    code, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(code, str) or code not in _DTYPES:
        raise CheckpointError(f"expected a known dtype for {where}, found {one_line(repr(code), limit=40)}")
    if not isinstance(shape, list) or len(shape) > _MAX_DIMENSIONS or not all(map(_is_size, shape)):
        raise CheckpointError(f"expected a shape for {where}, found {one_line(repr(shape), limit=80)}")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_size, offsets)):
        raise CheckpointError(f"expected two offsets for {where}, found {one_line(repr(offsets), limit=80)}")
    dtype, count, extent = _DTYPES[code], 1, 1
    for length in shape:
        count *= length
        extent *= max(length, 1)
    # Beside a 0 the other lengths cost no memory, but numpy refuses what their product could not address.
    if count * dtype.itemsize != offsets[1] - offsets[0] or extent * dtype.itemsize >= 2**63:
        raise CheckpointError(f"expected {count * dtype.itemsize} bytes for {where}, found {offsets[1] - offsets[0]}")
    return _Entry(name=name, dtype=dtype, shape=tuple(shape), begin=offsets[0], end=offsets[1])
