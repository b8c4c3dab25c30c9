"""Numbers that are none are found where they stand, also before the first step."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from digideep.environment.finite import Bad, first_bad


def slab(**arrays: np.ndarray) -> SimpleNamespace:
    return SimpleNamespace(observations={"observation": arrays["observations"]}, rewards=arrays["rewards"])


def test_a_bad_number_in_the_first_reset_is_found_before_any_step() -> None:
    observations = np.zeros((3, 2, 4), np.float32)
    observations[0, 1, 2] = np.inf

    found = first_bad(slab(observations=observations, rewards=np.zeros((3, 2), np.float32)), rows=0)

    assert found == Bad(key="/observations/observation", row=0, env=1, position=2, value=float("inf"))


def test_the_earlier_of_two_bad_numbers_is_told() -> None:
    observations, rewards = np.zeros((3, 2, 4), np.float32), np.zeros((3, 2), np.float32)
    rewards[0, 1] = observations[2, 0, 0] = -np.inf

    found = first_bad(slab(observations=observations, rewards=rewards), rows=2)

    assert found == Bad(key="/rewards", row=0, env=1, position=0, value=float("-inf"))
