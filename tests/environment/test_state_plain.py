from __future__ import annotations

import random
from collections import OrderedDict, deque
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import pytest
from gymnasium.wrappers.utils import RunningMeanStd

from digideep.environment.state_plain import NotPlainError, pack, unpack
from digideep.utility.codec import decode, encode
from digideep.utility.differences import first_difference


def round_trip(value: Any) -> Any:
    return unpack(decode(*encode(pack(value, path="x"))))


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        2**127,
        0.1,
        float("nan"),
        "text",
        b"bytes",
        np.float32(0.1),
        np.int64(-3),
        np.bool_(True),
        np.str_("H"),
        [1, (2.0, [None])],
        {"a": {"b": 1}, "c": ()},
        {1: "x", (2, "y"): "z"},
        np.array([[1.5, -2.0]], np.float32),
        np.array([True, False]),
        np.array([[b"S", b"F"]]),
        np.array(["ab", "c"]),
        np.array(5.0),
    ],
)
def test_plain_values_come_back_with_their_types(value: Any) -> None:
    back = round_trip(value)

    assert type(back) is type(value)
    assert first_difference(value, back) == ""


def test_a_queue_comes_back_with_its_limit() -> None:
    back = round_trip(deque([np.zeros(2), 1], maxlen=2))

    back.append(7)
    assert (back.maxlen, list(back)) == (2, [1, 7])


def test_running_moments_come_back() -> None:
    moments = RunningMeanStd(shape=(2,))  # type: ignore[no-untyped-call]
    moments.update(np.array([[1.0, 2.0], [3.0, 5.0]]))

    back = round_trip(moments)

    assert first_difference([moments.mean, moments.var, moments.count], [back.mean, back.var, back.count]) == ""


@pytest.mark.parametrize(
    "rng",
    [np.random.default_rng(1), np.random.Generator(np.random.MT19937(1)), np.random.Generator(np.random.SFC64(1))],
)
def test_a_generator_goes_on_inside_the_one_that_is_there(rng: np.random.Generator) -> None:
    rng.random(3)
    packed = pack(rng, path="x")
    expected = rng.random(3).tolist()
    there = np.random.Generator(type(rng.bit_generator)(9))

    back = unpack(packed, into=there)

    assert back is there
    assert back.random(3).tolist() == expected
    assert unpack(packed).random(3).tolist() == expected


def test_older_generators_go_on_too() -> None:
    legacy, python = np.random.RandomState(4), random.Random(4)
    legacy.standard_normal()
    python.gauss(0.0, 1.0)
    packed = decode(*encode(pack([legacy, python], path="x")))
    expected = [legacy.standard_normal(3).tolist(), python.gauss(0.0, 1.0)]

    other_legacy, other_python = unpack(packed)

    assert [other_legacy.standard_normal(3).tolist(), other_python.gauss(0.0, 1.0)] == expected


class Pair(NamedTuple):
    a: int


class Colour(IntEnum):
    RED = 1


class Array(np.ndarray[Any, Any]):
    pass


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (object(), "^x: a builtins.object is not plain data$"),
        ({"a": [1, {2, 3}]}, "^x/a/1: a builtins.set is not plain data$"),
        (Pair(1), "Pair is not plain data"),
        (Colour.RED, "Colour is not plain data"),
        (OrderedDict(a=1), "OrderedDict is not plain data"),
        (np.zeros(2).view(Array), "Array is not plain data"),
        (np.array([object()]), "^x: an array of object is not plain data"),
        (np.zeros(2, np.complex128), "complex128"),
        (np.zeros(2, ">f8"), ">f8"),
        ({Colour.RED: 1}, "a key is a Colour"),
        ({"~deque": 1}, "are taken"),
        (lambda: 0, "function is not plain data"),
    ],
)
def test_what_would_come_back_as_something_else_is_refused_with_its_path(value: Any, message: str) -> None:
    with pytest.raises(NotPlainError, match=message):
        pack(value, path="x")


def test_what_is_packed_shares_nothing() -> None:
    array, queue = np.zeros(2), deque([[1]])
    packed = pack({"a": array, "q": queue}, path="x")

    array[0] = 5.0
    queue[0].append(2)
    back = unpack(packed)
    back["a"][1] = 7.0

    assert unpack(packed)["a"].tolist() == [0.0, 0.0]
    assert list(unpack(packed)["q"]) == [[1]]
