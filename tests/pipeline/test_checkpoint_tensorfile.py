from __future__ import annotations

import io
import json
import struct
import time
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from digideep.errors import CheckpointError
from digideep.pipeline.tensorfile import read_safetensors, write_safetensors
from digideep.utility.codec import CodecError


class Stream:
    """Bytes that are read as a file is."""

    def __init__(self, content: bytes) -> None:
        self._file = io.BytesIO(content)

    def read(self, count: int) -> bytes:
        return self._file.read(count)

    def readinto(self, target: memoryview) -> int:
        return self._file.readinto(target)


ARRAYS = {
    "weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "flag": np.array([True, False, True]),
    "count": np.array(2**63, dtype=np.uint64),
    "empty": np.zeros((0, 4), dtype=np.int16),
    "half": np.array([0.5, np.inf], dtype=np.float16),
    "névé/0": np.array([-1, 1], dtype=np.int8),
}


def content(arrays: dict[str, np.ndarray]) -> bytes:
    return b"".join(write_safetensors(arrays))


def read(raw: bytes) -> dict[str, np.ndarray]:
    return read_safetensors(Stream(raw), size=len(raw))


def with_header(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype: str = "F32", shape: Any = (1,), offsets: Any = (0, 4)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def test_arrays_come_back_writable_and_owning_their_memory() -> None:
    back = read(content(ARRAYS))

    assert back.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert back[name].dtype == array.dtype, name
        assert back[name].shape == array.shape, name
        assert back[name].tobytes() == array.tobytes(), name
        assert back[name].flags.writeable, name
        assert back[name].flags.owndata, name


def test_the_safetensors_package_reads_what_is_written_here() -> None:
    back = safetensors.numpy.load(content(ARRAYS))

    assert {name: array.tolist() for name, array in back.items()} == {n: a.tolist() for n, a in ARRAYS.items()}


def test_what_the_safetensors_package_writes_is_read_here() -> None:
    back = read(safetensors.numpy.save(ARRAYS, metadata={"format": "np"}))

    assert {name: array.tolist() for name, array in back.items()} == {n: a.tolist() for n, a in ARRAYS.items()}


def test_bytes_do_not_depend_on_the_order_of_the_mapping() -> None:
    reordered = dict(reversed(ARRAYS.items()))

    assert content(ARRAYS) == content(reordered)


def test_arrays_are_written_from_their_own_memory() -> None:
    array = np.arange(3.0)
    pieces = write_safetensors({"a": array})
    next(pieces)

    array[0] = 9.0

    assert np.frombuffer(next(pieces)).tolist() == [9.0, 1.0, 2.0]


def test_a_view_is_refused_when_writing() -> None:
    with pytest.raises(ValueError, match="contiguous"):
        content({"a": np.zeros((2, 3)).T})


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"1234567",
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 100) + b"{}",
        with_header([]),
        with_header(b"{"),
        with_header(b"\xff\xfe"),
        with_header(b'{"a": NaN}'),
        with_header(b'{"a": {}, "a": {}}'),
        with_header(b'{"a": ' + b"[" * 50_000),
        with_header({"a": 1}),
        with_header({"a": {}}),
        with_header({"a": {**entry(), "x": 1}}, bytes(4)),
        with_header({"a": entry("F31")}, bytes(4)),
        with_header({"a": entry(dtype=["F32"])}, bytes(4)),  # type: ignore[arg-type]
        with_header({"a": entry(shape=1)}, bytes(4)),
        with_header({"a": entry(shape=[-1])}, bytes(4)),
        with_header({"a": entry(shape=[True])}, bytes(4)),
        with_header({"a": entry(shape=[1.0])}, bytes(4)),
        with_header({"a": entry(shape=[2**62])}, bytes(4)),
        with_header({"a": entry(shape=[2**61, 8])}, bytes(4)),
        with_header({"a": entry(shape=[0, 2**61, 2**61], offsets=[0, 0])}),
        with_header({"a": entry(shape=[1] * 100)}, bytes(4)),
        with_header({"a": entry(shape=[2])}, bytes(8)),
        with_header({"a": entry(offsets=[4, 8])}, bytes(8)),
        with_header({"a": entry(offsets=[0, 4]), "b": entry(offsets=[0, 4])}, bytes(4)),
        with_header({"a": entry(offsets=[0, 4]), "b": entry(offsets=[2, 6])}, bytes(6)),
        with_header({"a": entry(offsets=[4, 0])}, bytes(4)),
        with_header({"a": entry(offsets=[-4, 0])}, bytes(4)),
        with_header({"a": entry()}, bytes(3)),
        with_header({"a": entry()}, bytes(5)),
    ],
)
def test_a_header_that_does_not_describe_the_file_is_refused(raw: bytes) -> None:
    with pytest.raises(CheckpointError):
        read(raw)


def test_a_huge_header_is_refused_before_it_is_read() -> None:
    started = time.monotonic()

    with pytest.raises(CheckpointError, match="expected a header"):
        read_safetensors(Stream(struct.pack("<Q", 100 << 20)), size=1 << 40)

    assert time.monotonic() - started < 5.0


def test_a_file_that_ends_early_is_refused() -> None:
    raw = content(ARRAYS)

    with pytest.raises(CheckpointError, match="found the end"):
        read_safetensors(Stream(raw[:-1]), size=len(raw))


def test_what_the_reader_would_refuse_is_refused_before_anything_is_written() -> None:
    with pytest.raises(CodecError, match=r"at most 20000 arrays.*found 20001 in"):
        write_safetensors({str(number): np.zeros(1) for number in range(20_001)})
    with pytest.raises(CodecError, match=r"found 1 in \d+ bytes"):
        write_safetensors({"n" * (4 << 20): np.zeros(1)})
