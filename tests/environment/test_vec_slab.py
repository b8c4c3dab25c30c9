"""The slab, the search for NaN in it, and what a step may return."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from digideep.environment.finite import Bad, first_bad, is_finite, not_finite
from digideep.environment.vec.outcome import check_info, episode_metrics, flag, number
from digideep.environment.vec.slab import Slab, slab_bytes
from digideep.errors import EnvironmentFailure
from digideep.spec import ArraySpec, EnvSpec

SPEC = EnvSpec(
    id="Made-v0",
    observations={
        "camera": ArraySpec("box", (2, 2), "uint8", (0.0,), (255.0,)),
        "joints": ArraySpec("box", (3,), "float32"),
    },
    actions={"": ArraySpec("discrete", (), "int64", n=(4,))},
)


def test_arrays_are_time_major_and_of_the_dtype_that_the_spec_has() -> None:
    slab = Slab(SPEC, num_envs=3, n_steps=5)

    assert slab.observations["camera"].shape == (6, 3, 2, 2)
    assert slab.observations["camera"].dtype == np.uint8
    assert slab.observations["joints"].dtype == np.float32
    assert slab.actions[""].shape == slab.rewards.shape == slab.masks.shape == (6, 3)
    assert not slab.observations["joints"].any()


def test_two_slabs_on_one_memory_are_the_same_and_no_field_touches_another() -> None:
    memory = bytearray(slab_bytes(SPEC, num_envs=3, n_steps=5, num_workers=2))
    one = Slab(SPEC, num_envs=3, n_steps=5, num_workers=2, buffer=memory)
    other = Slab(SPEC, num_envs=3, n_steps=5, num_workers=2, buffer=memory)
    fields = [one.masks, one.rewards, one.terminations, one.signals, one.seeds, one.actions[""], one.modes, one.born]

    for value, array in enumerate((*fields, *one.observations.values()), start=1):
        array.fill(value)

    assert [int(array.max()) for array in fields] == [int(array.min()) for array in fields] == list(range(1, 9))
    np.testing.assert_array_equal(other.observations["joints"], 10)
    assert other.signals.shape == (2, 16)
    assert all(array.ctypes.data % 8 == 0 for array in fields)


def filled() -> Slab:
    slab = Slab(SPEC, num_envs=2, n_steps=4)
    slab.masks.fill(1)
    slab.numbers.fill(5)
    slab.seeds.fill(77)
    return slab


def test_finite_numbers_raise_no_alarm_even_where_their_sum_overflows() -> None:
    slab = filled()
    slab.observations["joints"].fill(3e38)

    assert first_bad(slab, rows=4) is None
    assert is_finite(np.full(10, 1e308))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_the_first_bad_number_is_named_with_its_place(value: float) -> None:
    slab = filled()
    slab.observations["joints"][3, 1, 2] = value
    slab.observations["joints"][4, 0, 0] = value
    slab.rewards[3, 0] = value

    bad = first_bad(slab, rows=4)

    assert bad is not None
    assert bad[:4] == ("/observations/joints", 3, 1, 2)


def test_infinities_that_cancel_are_found() -> None:
    slab = filled()
    slab.rewards[0] = [np.inf, -np.inf]

    bad = first_bad(slab, rows=4)

    assert bad == Bad("/rewards", 0, 0, 0, np.inf)


def test_rows_that_were_not_made_are_not_looked_at() -> None:
    slab = filled()
    slab.observations["joints"][3] = np.nan

    assert first_bad(slab, rows=2) is None


@pytest.mark.parametrize(
    ("row", "opened", "episode", "step"),
    [
        (2, [], 5, 12),  # the episode that ran at row 0, which was 10 steps long then
        (3, [2], 5, 1),  # the one that began at row 2
        (1, [3], 4, 11),  # one that has ended since
        (3, [1, 4], 4, 2),
    ],
)
def test_the_message_counts_episodes_and_steps_back(row: int, opened: list[int], episode: int, step: int) -> None:
    slab = filled()
    slab.masks[opened, 1] = 0

    error = not_finite(Bad("/observations/joints", row, 1, 2, float("nan")), slab, rows=4, worker=0, length=10)

    assert str(error) == (
        f"environment 1 (Made-v0, worker 0, seed 77, episode {episode}, step {step}): "
        f"expected finite numbers in /observations/joints, found nan (first bad index 2)"
    )


@pytest.mark.parametrize("value", [1, 1.5, True, np.float32(1.5), np.int64(2), np.bool_(True)])
def test_numbers_of_every_kind_are_numbers(value: Any) -> None:
    assert type(number(value, "reward")) is float


@pytest.mark.parametrize("value", [None, "1", [1.0], np.zeros(()), np.zeros(1), 1j, np.complex64(1)])
def test_everything_else_is_no_number(value: Any) -> None:
    with pytest.raises(EnvironmentFailure, match="reward: expected a number, found"):
        number(value, "reward")


def test_flags_are_booleans() -> None:
    assert flag(np.bool_(True), "terminated") is True
    with pytest.raises(EnvironmentFailure, match="truncated: expected a bool, found int 1"):
        flag(1, "truncated")


def test_metrics_are_the_numbers_of_the_last_info_and_the_keys_asked_for() -> None:
    info = {"metrics": {"speed": np.float32(1.5)}, "is_success": np.bool_(True), "other": "text"}

    assert episode_metrics(info, ("is_success", "absent")) == {"speed": 1.5, "is_success": 1.0}
    assert episode_metrics({"metrics": {"a\udc80b": 1}}, ()) == {"a?b": 1.0}  # files cannot hold half a character
    with pytest.raises(EnvironmentFailure, match=r"info\['other'\]: expected a number, found str 'text'"):
        episode_metrics(info, ("other",))
    with pytest.raises(EnvironmentFailure, match=r"info\['metrics'\]: expected a dict of numbers, found list"):
        episode_metrics({"metrics": [1]}, ())
    with pytest.raises(EnvironmentFailure, match="info: expected a dict, found list"):
        check_info([])
