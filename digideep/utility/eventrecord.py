"""TensorBoard's records of scalars, written and read without its package and protobuf's, which take long to import.

An event file is a row of records: length, masked checksum of the length, an `Event` message, masked checksum of the
message. The few fields of that message which scalars need are written here, byte for byte as protobuf would.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

__all__ = ["ScalarEvent", "crc32c", "file_record", "parse_event", "scalars_record"]

_FILE_VERSION = b"brain.Event:2"
# Keys of the fields in use: number << 3 | wire type (0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes).
_WALL_TIME = b"\x09"
_STEP = b"\x10"
_VERSION = b"\x1a"
_SUMMARY = b"\x2a"
_VALUE = b"\x0a"
_TAG = b"\x0a"
_SIMPLE_VALUE = b"\x15"
_LENGTHS = {1: 8, 5: 4}  # of wire types with a fixed one
_MASK = 0xA282EAD8
_POLYNOMIAL = 0x82F63B78  # Castagnoli's, its bits reversed


class ScalarEvent(NamedTuple):
    """What is read of an event: seconds since 1970, step, and the tags that have a value there."""

    wall_s: float = 0.0
    step: int = 0
    tags: tuple[str, ...] = ()


def file_record(wall_s: float) -> bytes:
    """Return the record that every event file begins with; `wall_s` are seconds since 1970."""
    return _record(_WALL_TIME + struct.pack("<d", wall_s) + _VERSION + _sized(_FILE_VERSION))


def scalars_record(wall_s: float, *, step: int, values: Mapping[str, float]) -> bytes:
    """Return the record of one event with all of `values`, finite numbers by tag, at `step` (not negative)."""
    parts = []
    for tag, value in values.items():
        entry = _TAG + _sized(tag.encode()) + _SIMPLE_VALUE + struct.pack("<f", value)
        parts.append(_VALUE + _sized(entry))
    at = _STEP + _varint(step) if step else b""  # protobuf leaves out what is zero
    return _record(_WALL_TIME + struct.pack("<d", wall_s) + at + _SUMMARY + _sized(b"".join(parts)))


def parse_event(message: bytes) -> ScalarEvent:
    """Return what an `Event` message says; fields that scalars do not have are passed over.

    Raises:
        ValueError: it is no such message.
    """
    event, tags = ScalarEvent(), list[str]()
    for key, value in _fields(message):
        if key == _WALL_TIME and isinstance(value, bytes):
            event = event._replace(wall_s=struct.unpack("<d", value)[0])
        elif key == _STEP and isinstance(value, int):
            event = event._replace(step=value - (value >> 63 << 64))  # negative ones are written as complements
        elif key == _SUMMARY and isinstance(value, bytes):
            entries = [entry for inner, entry in _fields(value) if inner == _VALUE and isinstance(entry, bytes)]
            tags += [_tag_of(entry) for entry in entries]
    return event._replace(tags=tuple(tags))


def crc32c(content: bytes) -> int:
    """Return the CRC-32 of `content` with Castagnoli's polynomial, which `zlib.crc32` has not."""
    crc = 0xFFFFFFFF
    table = _TABLE
    for byte in content:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _table() -> tuple[int, ...]:
    entries = []
    for entry in range(256):
        for _ in range(8):
            entry = entry >> 1 ^ (_POLYNOMIAL if entry & 1 else 0)
        entries.append(entry)
    return tuple(entries)


_TABLE = _table()


def _record(message: bytes) -> bytes:
    length = struct.pack("<Q", len(message))
    return length + _masked(length) + message + _masked(message)


def _masked(content: bytes) -> bytes:
    crc = crc32c(content)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF)


def _sized(content: bytes) -> bytes:
    return _varint(len(content)) + content


def _varint(value: int) -> bytes:
    """Return a number in groups of seven bits, the lowest first, each but the last with its eighth bit set."""
    result = bytearray()
    while value > 0x7F:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    result.append(value)
    return bytes(result)


def _tag_of(entry: bytes) -> str:
    """Return the tag of one value. Raises ValueError."""
    found = [value for key, value in _fields(entry) if key == _TAG and isinstance(value, bytes)]
    return found[-1].decode() if found else ""


def _fields(message: bytes) -> Iterator[tuple[bytes, int | bytes]]:
    """Give key and value of each field; a number for wire type 0, else bytes. Raises ValueError."""
    at = 0
    while at < len(message):
        start = at
        key, at = _read_varint(message, at)
        kind, name = key & 7, message[start:at]
        if key >> 3 == 0:
            raise ValueError(f"expected the number of a field, found 0 at byte {start}")
        if kind == 0:
            number, at = _read_varint(message, at)
            yield name, number
            continue
        if kind == 2:
            length, at = _read_varint(message, at)
        elif kind in _LENGTHS:
            length = _LENGTHS[kind]
        else:
            raise ValueError(f"expected a wire type, found {kind} at byte {start}")
        if length > len(message) - at:
            raise ValueError(f"expected {length} bytes, found {len(message) - at} at byte {at}")
        yield name, message[at : at + length]
        at += length


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    """Return a number of at most 64 bits, and where it ends. Raises ValueError."""
    value = 0
    for index, byte in enumerate(message[at : at + 10]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at + index + 1
    raise ValueError(f"expected a number, found none that ends at byte {at}")
