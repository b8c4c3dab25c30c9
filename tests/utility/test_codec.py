from __future__ import annotations

import json
import math
import struct
from collections import OrderedDict
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import pytest

from digideep.errors import CheckpointError
from digideep.utility.codec import MAX_JSON_DEPTH, CodecError, decode, encode
from digideep.utility.strictjson import loads_json


class Point(NamedTuple):
    x: int


class Colour(IntEnum):
    RED = 1


def round_trip(tree: Any, *, inline: bool = False) -> Any:
    encoded = encode(tree, inline=inline)
    text = json.dumps(encoded.json, allow_nan=False)
    return decode(loads_json(text, where="state", max_depth=MAX_JSON_DEPTH), encoded.arrays)


def same(first: Any, second: Any) -> bool:
    """Equal in type and in every bit, all the way down."""
    if type(first) is not type(second):
        return False
    if isinstance(first, np.ndarray):
        return bool(first.dtype == second.dtype and first.shape == second.shape) and first.tobytes() == second.tobytes()
    if isinstance(first, np.generic):
        return bool(first.tobytes() == second.tobytes())
    if isinstance(first, float):
        return struct.pack(">d", first) == struct.pack(">d", second)
    if isinstance(first, dict):
        return same(list(first.items()), list(second.items()))
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(same, first, second))
    return bool(first == second)


@pytest.mark.parametrize(
    "tree",
    [
        *(None, True, False, 0, -1, 1, 2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 2**128 - 1, 10**4000, -(10**4000)),
        *(0.0, -0.0, 0.1, 5e-324, 1.7976931348623157e308, 1e22, math.pi, math.inf, -math.inf, math.nan, -math.nan),
        *("", "text", "\x00\n\x1b", "\U0001f600", "\ud800", "$array", b"", b"\x00\xff", [], (), {}, [[]], ((),), [()]),
        *((1,), (1, [2, (3,)]), {"a": {"b": (None,)}}, {"b": 1, "a": 2}, {"": 1}, {"\udfff": [1]}),
        *({1: "a", "1": "b"}, {(0, 1): [1], None: 2, b"k": 3, 2.5: 4, True: 5}, {0: {"exp_avg": 1.5}}, {2**70: (1,)}),
        *({"$tuple": [1]}, {"$array": "/x"}, {"$": 1}, {"$$": 1}, {"$$tuple": [1]}, {"$int": "0x1", "x": 1}),
    ],
    ids=lambda tree: repr(tree)[:30].encode("ascii", "backslashreplace").decode(),
)
def test_plain_data_comes_back_with_the_same_bits_and_types(tree: Any) -> None:
    assert same(round_trip(tree), tree)
    assert same(round_trip({"nested": [tree]}), {"nested": [tree]})


def test_nan_keeps_its_payload() -> None:
    (value,) = struct.unpack(">d", bytes.fromhex("fff8000000000123"))

    assert struct.pack(">d", round_trip(value)).hex() == "fff8000000000123"


DTYPES = ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]
DTYPES += ["float16", "float32", "float64"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("inline", [False, True])
def test_arrays_and_scalars_of_every_dtype_come_back(dtype: str, inline: bool) -> None:
    array = np.frombuffer(np.random.default_rng(0).bytes(48 * 8), dtype="uint8")[:48]
    array = (array % 2).astype("bool") if dtype == "bool" else array.view(dtype)
    tree = {"array": array, "zero_d": array[:1].reshape(()), "empty": array[:0].reshape(0, 3), "scalar": array[1]}

    assert same(round_trip(tree, inline=inline), tree)


def test_views_come_back_as_the_numbers_they_show() -> None:
    base = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    views = {"transposed": base.T, "sliced": base[:, ::2, 1:3], "reversed": base[::-1], "broadcast": base[:1, :1] + 0}
    views["stretched"] = np.broadcast_to(base[0, 0], (5, 4))

    back = round_trip(views)

    for name, view in views.items():
        assert np.array_equal(back[name], view), name
        assert back[name].flags.c_contiguous, name


def test_foreign_byte_order_becomes_native_with_the_same_numbers() -> None:
    big = np.array([1, 256, -2], dtype=">i4")

    back = round_trip([big, big[1]])

    assert back[0].dtype == np.dtype("int32")
    assert back[0].dtype.isnative
    assert back[0].tolist() == [1, 256, -2]
    assert back[1] == 256


def test_decoded_arrays_can_be_written_to() -> None:
    for inline in (False, True):
        back = round_trip({"a": np.zeros(2)}, inline=inline)

        back["a"][0] = 1.0

        assert back["a"].tolist() == [1.0, 0.0]


def test_encoding_copies_so_that_later_changes_do_not_reach_it() -> None:
    array = np.ones(3)
    encoded = encode({"a": array})

    array[:] = 7

    assert encoded.arrays["/a"].tolist() == [1.0, 1.0, 1.0]


def test_kept_buffers_are_written_again_where_they_fit() -> None:
    buffers: dict[str, np.ndarray] = {}
    first = encode({"a": np.zeros(3), "b": np.zeros(2)}, buffers=buffers).arrays

    second = encode({"a": np.ones(3), "b": np.ones(4)}, buffers=buffers).arrays

    assert second["/a"] is first["/a"]
    assert second["/b"] is not first["/b"]
    assert second["/a"].tolist() == [1.0, 1.0, 1.0]


def test_arrays_are_named_by_their_path_and_never_clash() -> None:
    array = np.zeros(1)
    tree = {"a/b": array, "a": {"b": array, "0": array}, "a~1b": array, "l": [array, (array,)], "": array, 3: array}

    names = set(encode(tree).arrays)
    plain = set(encode({"a/b": array, "a": {"b": [array]}, "a~1b": array, "": array}).arrays)

    assert len(names) == 8
    assert plain == {"/a~1b", "/a/b/0", "/a~01b", "/"}


@pytest.mark.parametrize(
    ("leaf", "found"),
    [
        (Point(1), "test_codec.Point"),
        (OrderedDict(), "collections.OrderedDict"),
        (Colour.RED, "test_codec.Colour"),
        ({1, 2}, "builtins.set"),
        (object(), "builtins.object"),
        (1j, "builtins.complex"),
        (bytearray(b"x"), "builtins.bytearray"),
        (np.zeros(1, dtype=complex), "dtype complex128"),
        (np.array(["a"]), "dtype <U1"),
        (np.array([None]), "dtype object"),
        (np.zeros(1, dtype=[("a", "i4")]), "found dtype"),
        (np.datetime64("2026-01-01"), "dtype datetime64"),
        (np.ma.masked_array([1]), "numpy.ma.MaskedArray"),
        ({Point(1): 1}, "a key of type Point"),
        ({frozenset(): 1}, "a key of type frozenset"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_anything_else_is_refused_with_its_path(leaf: Any, found: str) -> None:
    with pytest.raises(CodecError) as caught:
        encode({"agent": [1, {"policy": leaf}]}, where="agents.agent")

    assert str(caught.value).startswith("agents.agent at /agent/1/policy")
    assert found in str(caught.value)


def test_a_list_that_holds_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)

    with pytest.raises(CodecError, match="at most 64 nested levels"):
        encode(endless)


def test_the_deepest_allowed_tree_comes_back() -> None:
    deepest: Any = np.float32(1.5)
    for _ in range(64):
        deepest = {0: deepest}

    assert same(round_trip(deepest), deepest)


def test_missing_and_left_over_arrays_are_reported_together() -> None:
    encoded = encode({"a": np.zeros(1), "b": np.zeros(1), "c": np.zeros(1)})
    arrays = {"/b": encoded.arrays["/b"], "/d": np.zeros(1)}

    with pytest.raises(CheckpointError, match=r"missing: /a, /c; left over: /d"):
        decode(encoded.json, arrays)


@pytest.mark.parametrize(
    "value",
    [
        {"$unknown": 1},
        {"$tuple": 1},
        {"$tuple": [], "x": 1},
        {"$map": [[1]]},
        {"$map": [[[1], 2]]},
        {"$int": "10"},
        {"$int": 10},
        {"$float": "00"},
        {"$bytes": "?"},
        {"$scalar": ["float32", ""]},
        {"$scalar": ["object", "00"]},
        {"$ndarray": ["float64", [3], ""]},
        {"$ndarray": ["float64", [-1, 0], ""]},
        {"$array": 3},
        {"$array": "/a"},
    ],
    ids=str,
)
def test_malformed_tags_are_refused_as_damage(value: Any) -> None:
    with pytest.raises(CheckpointError):
        decode(value, {})


def test_integers_longer_than_text_may_have_digits_come_back() -> None:
    assert round_trip([1 << 20_000]) == [1 << 20_000]
