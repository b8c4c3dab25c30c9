"""The tree of sums draws in proportion to its leaves, and depends on them alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from digideep.memory.sumtree import SumTree

Array = np.ndarray[Any, Any]

SIZES = [1, 2, 3, 7, 2047, 2048, 2049, 4097, 10_001]


def made(priorities: Array) -> SumTree:
    tree = SumTree(len(priorities))
    tree.fill(0, priorities)
    return tree


def sums(tree: SumTree) -> list[bytes]:
    return [level.tobytes() for level in tree._levels]


@pytest.mark.parametrize("size", SIZES)
def test_a_tree_has_the_same_bits_however_its_priorities_came(size: int) -> None:
    rng = np.random.default_rng(size)
    tree = SumTree(size)

    for _ in range(50):
        places = rng.integers(size, size=20)
        tree.put(places, rng.random(20) ** 9)
        start = int(rng.integers(size))
        tree.fill(start, rng.random(min(size - start, int(rng.integers(40)))) * 1e9)

    assert sums(tree) == sums(made(tree.leaves.copy()))
    assert tree.total == pytest.approx(tree.leaves.sum(), rel=1e-12)


@pytest.mark.parametrize("size", SIZES)
def test_draws_are_those_of_a_search_through_all_running_sums(size: int) -> None:
    rng = np.random.default_rng(size)
    priorities = rng.integers(0, 4, size=size) / 4.0  # sums of these are exact, in whatever order
    priorities[-1] = 1.0
    tree = made(priorities)

    for batch in (1, 7, 64):
        points = np.arange(1.0, batch + 1.0) - np.random.default_rng(batch).random(batch)
        expected = np.searchsorted(np.cumsum(priorities), points * (priorities.sum() / batch))
        np.testing.assert_array_equal(tree.draw(batch, np.random.default_rng(batch)), expected)


@pytest.mark.parametrize("size", [3, 3000, 10_001])
def test_a_place_without_priority_is_never_drawn_whatever_is_rounded(size: int) -> None:
    rng = np.random.default_rng(size)
    for exponent in (1, 20, 90):
        priorities = 10.0 ** rng.uniform(-exponent, exponent, size) * (rng.random(size) < 0.3)
        priorities[size // 2] = 1.0
        tree = made(priorities)
        for _ in range(50):
            assert (priorities[tree.draw(256, rng)] > 0.0).all()


def test_the_ends_of_the_range_lead_to_places_with_priority() -> None:
    class Fixed:
        def __init__(self, value: float) -> None:
            self._value = value

        def random(self, size: int) -> Array:
            return np.full(size, self._value)

    priorities = np.zeros(5000)
    priorities[[1000, 1001, 3999]] = [0.1, 0.2, 0.7]
    tree = made(priorities)

    for value in (0.0, 1.0 - 2.0**-53):
        drawn = tree.draw(10, Fixed(value))  # type: ignore[arg-type]
        assert set(drawn.tolist()) <= {1000, 1001, 3999}
    assert tree.draw(1, Fixed(0.0)).tolist() == [3999]  # type: ignore[arg-type]
    assert tree.draw(1, Fixed(1.0 - 2.0**-53)).tolist() == [1000]  # type: ignore[arg-type]


def test_of_a_place_that_comes_twice_the_last_priority_counts() -> None:
    tree = SumTree(3000)

    tree.put(np.array([5, 2000, 5]), np.array([1.0, 2.0, 4.0]))

    assert tree.leaves[[5, 2000]].tolist() == [4.0, 2.0] and tree.total == 6.0


def test_places_are_drawn_in_proportion_to_their_priorities() -> None:
    priorities = np.repeat([0.0, 1.0, 2.0, 5.0, 0.25], 1000)
    tree, rng = made(priorities), np.random.default_rng(0)

    counts = np.bincount(np.concatenate([tree.draw(256, rng) for _ in range(2000)]), minlength=5000)

    expected = 256 * 2000 * priorities / priorities.sum()
    drawn = expected > 0
    statistic = float(((counts[drawn] - expected[drawn]) ** 2 / expected[drawn]).sum())
    assert counts[~drawn].sum() == 0
    # Of 3,999 degrees of freedom; equal parts leave a little less noise than independent draws.
    assert 3400 < statistic < 4400
    uniform = np.full(4000, counts.sum() / 4000)
    assert ((counts[drawn] - uniform) ** 2 / uniform).sum() > 100_000


def test_each_equal_part_of_the_sum_gives_one_place() -> None:
    tree = made(np.ones(4096))

    drawn = tree.draw(64, np.random.default_rng(3))

    np.testing.assert_array_equal(drawn // 64, np.arange(64))
