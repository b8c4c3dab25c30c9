from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from digideep.errors import CheckpointError
from digideep.types import LiveSegments, Segment
from digideep.utility.differences import check_parts, first_difference


@pytest.mark.parametrize(
    ("left", "right", "difference"),
    [
        (1, 1.0, "/: 1 of type int, 1.0 of type float"),
        ({"a": [1, 2]}, {"a": [1, 3]}, "/a/1: 2, 3"),
        ({"a": 1}, {"b": 1}, "/: keys ['a'], ['b']"),
        ({"a": {"b": 1}}, {"a": {}}, "/a: keys ['b'], []"),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, ""),
        ([1], [1, 2], "/: 1 elements, 2 elements"),
        ([1], (1,), "/: [1] of type list, (1,) of type tuple"),
        (np.zeros(1), np.zeros(1, np.float32), "/: array([0.]), array([0.], dtype=float32)"),
        (np.zeros((1, 2)), np.zeros((2, 1)), "/: array([[0., 0.]]), array([[0.], [0.]])"),
        (np.array([0.0]), np.array([-0.0]), "/: array([0.]), array([-0.])"),
        (float("nan"), float("nan"), ""),
        (np.array([np.nan]), np.array([np.nan]), ""),
        ({"a": (1, np.ones(2))}, {"a": (1, np.ones(2))}, ""),
    ],
)
def test_the_first_difference_is_told_with_its_path(left: Any, right: Any, difference: str) -> None:
    assert first_difference(left, right) == difference


def test_the_path_begins_with_what_the_trees_are_called() -> None:
    assert first_difference({"a": [1, 2]}, {"a": [1, 3]}, path="agents.agent") == "agents.agent/a/1: 2, 3"


def test_long_values_are_shortened() -> None:
    difference = first_difference({"a": "x" * 1000}, {"a": "y" * 1000})

    assert len(difference) < 200


def test_segments_are_compared_by_names_and_then_one_by_one() -> None:
    def segments(*values: float) -> LiveSegments:
        return LiveSegments([Segment(f"{i}-1", {"/rows": np.full(2, value)}) for i, value in enumerate(values)])

    assert first_difference({"s": segments(1.0, 2.0)}, {"s": segments(1.0, 2.0)}) == ""
    assert first_difference({"s": segments(1.0, 2.0)}, {"s": segments(1.0, 3.0)}).startswith("/s/1-1//rows: ")
    assert first_difference({"s": segments(1.0)}, {"s": segments(1.0, 2.0)}).startswith("/s: segments ")


@pytest.mark.parametrize("state", [{"a": 1}, {"a": 1, "b": 2, "c": 3}])
def test_a_part_that_is_missing_or_surplus_is_refused_with_the_advice_of_whoever_asks(state: dict[str, int]) -> None:
    check_parts({"b": 2, "a": 1}, ("a", "b"), where="memory.main", advice="look")

    with pytest.raises(CheckpointError) as plain:
        check_parts(state, ("a", "b"), where="agent")
    with pytest.raises(CheckpointError) as advised:
        check_parts(state, ("a", "b"), where="memory.main", advice="look")

    assert str(plain.value) == f"agent: expected the parts ['a', 'b'], found {sorted(state)}"
    assert str(advised.value) == f"memory.main: expected the parts ['a', 'b'], found {sorted(state)}; look"
