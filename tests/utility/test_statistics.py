from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from digideep.environment.config import StatisticsConfig
from digideep.errors import CheckpointError
from digideep.spec import ArraySpec, EnvSpec
from digideep.types import Chunk, ChunkMeta
from digideep.utility.statistics import Normalizer, Statistics

SPEC = EnvSpec(
    "Made-v0",
    {
        "position": ArraySpec("box", (2,), "float32"),
        "pixels": ArraySpec("box", (2,), "uint8"),
        "gear": ArraySpec("discrete", (), "int64", n=(3,)),
    },
    {"": ArraySpec("discrete", (), "int64", n=(2,))},
)


def made(*, num_envs: int = 3, **fields: Any) -> Statistics:
    fields = {"observations": True, "rewards": True, **fields}
    return Statistics(StatisticsConfig(**fields), spec=SPEC, num_envs=num_envs)


def chunk_of(rng: np.random.Generator, *, num_envs: int = 3, steps: int = 10, masks: Any = None) -> Chunk:
    rows = (steps + 1, num_envs)
    slab = {
        "/observations/position": (rng.standard_normal((*rows, 2)) * 3.0 + 5.0).astype(np.float32),
        "/observations/pixels": rng.integers(0, 255, (*rows, 2), dtype=np.uint8),
        "/observations/gear": rng.integers(0, 3, rows),
        "/rewards": rng.standard_normal(rows).astype(np.float32),
        "/masks": (rng.random(rows) > 0.2).astype(np.float32) if masks is None else np.array(masks, np.float32).T,
    }
    return Chunk({key: value.swapaxes(0, 1) for key, value in slab.items()}, ChunkMeta(0, 0, 0, 0))


def slow_returns(chunks: list[Chunk], gamma: float) -> list[float]:
    """Discounted returns of every real transition, one environment after the other."""
    found = []
    for env in range(len(chunks[0].arrays["/masks"])):
        running = 0.0
        for chunk in chunks:
            masks, rewards = chunk.arrays["/masks"][env], chunk.arrays["/rewards"][env]
            for t in range(len(masks) - 1):
                running = (0.0 if masks[t] == 0.0 else running * gamma) + float(rewards[t])
                if masks[t + 1] == 1.0:
                    found.append(running)
    return found


def test_observations_have_mean_zero_and_variance_one_over_the_real_rows_of_all_chunks() -> None:
    statistics, rng = made(), np.random.default_rng(0)
    chunks = [chunk_of(rng) for _ in range(4)]

    for chunk in chunks:
        statistics.merge(chunk)

    real = [c.arrays["/observations/position"][:, :-1][c.arrays["/masks"][:, 1:] == 1.0] for c in chunks]
    rows = np.concatenate(real).astype(np.float64)
    scaled = statistics.snapshot().observations({"position": np.concatenate(real)})["position"]
    np.testing.assert_allclose(scaled, (rows - rows.mean(0)) / rows.std(0), rtol=1e-5, atol=1e-6)
    assert scaled.dtype == np.float32


def test_rewards_are_divided_by_the_deviation_of_the_discounted_return_across_chunks() -> None:
    statistics, rng = made(gamma=0.9, clip_reward=1e9), np.random.default_rng(1)
    chunks = [chunk_of(rng) for _ in range(4)]

    for chunk in chunks:
        statistics.merge(chunk)

    factor = statistics.snapshot().rewards(np.ones((1,), np.float32))[0]
    assert factor == pytest.approx(1.0 / np.std(slow_returns(chunks, 0.9)), rel=1e-6)


def test_the_running_return_has_one_number_an_environment_and_starts_anew_with_each_episode() -> None:
    statistics = made(num_envs=2, gamma=0.5, observations=False)
    masks = [[0.0, 1.0, 1.0, 1.0], [0.0, 1.0, 0.0, 1.0]]
    chunk = chunk_of(np.random.default_rng(0), num_envs=2, steps=3, masks=masks)
    chunk.arrays["/rewards"][:] = [[1.0, 1.0, 1.0, 0.0], [1.0, 0.0, 4.0, 0.0]]

    statistics.merge(chunk)

    state = statistics.state_dict()
    np.testing.assert_array_equal(state["running"], [1.75, 4.0])
    assert state["returns"]["rows"] == 5  # five of six transitions are real
    assert state["returns"]["mean"] == pytest.approx((1.0 + 1.5 + 1.75 + 1.0 + 4.0) / 5)


def test_statistics_do_not_depend_on_the_layout_of_the_slab() -> None:
    one, other, chunk = made(), made(), chunk_of(np.random.default_rng(0))
    copied = Chunk({key: np.ascontiguousarray(value) for key, value in chunk.arrays.items()}, chunk.meta)

    one.merge(chunk)
    other.merge(copied)

    for key, value in one.state_dict()["observations"]["position"].items():
        np.testing.assert_array_equal(other.state_dict()["observations"]["position"][key], value)


def test_a_snapshot_is_frozen_and_carries_its_version() -> None:
    statistics, rng = made(), np.random.default_rng(0)
    statistics.merge(chunk_of(rng))
    raw = {"position": rng.standard_normal((4, 2)).astype(np.float32)}
    snapshot = statistics.snapshot()
    before = snapshot.observations(raw)["position"].copy()

    statistics.merge(chunk_of(rng))

    np.testing.assert_array_equal(snapshot.observations(raw)["position"], before)
    assert not np.array_equal(statistics.snapshot().observations(raw)["position"], before)
    assert (snapshot.version, statistics.version) == (1, 2)


def test_images_and_integers_pass_untouched() -> None:
    statistics, chunk = made(), chunk_of(np.random.default_rng(0))
    statistics.merge(chunk)
    raw = {slot: chunk.arrays[f"/observations/{slot}"][:, 0] for slot in SPEC.observations}

    scaled = statistics.snapshot().observations(raw)

    assert scaled["pixels"] is raw["pixels"] and scaled["gear"] is raw["gear"]
    assert list(scaled) == list(raw)


def test_switched_off_statistics_change_nothing() -> None:
    statistics, chunk = made(observations=False, rewards=False), chunk_of(np.random.default_rng(0))
    statistics.merge(chunk)
    normalizer = statistics.snapshot()

    assert normalizer.observations(chunk.arrays) is chunk.arrays
    assert normalizer.rewards(chunk.arrays["/rewards"]) is chunk.arrays["/rewards"]
    assert Normalizer().observations(chunk.arrays) is chunk.arrays


@pytest.mark.parametrize(
    "case", ["constant observations", "equal rewards", "one row", "no row", "episodes of length 1"]
)
def test_degenerate_chunks_stay_finite_and_unscaled(case: str) -> None:
    statistics = made(num_envs=1, gamma=0.0)
    masks = {"one row": [[0.0, 1.0, 0.0]], "no row": [[1.0, 0.0, 0.0]], "episodes of length 1": [[0.0, 1.0, 0.0]]}
    chunk = chunk_of(np.random.default_rng(0), num_envs=1, steps=2, masks=masks.get(case, [[1.0, 1.0, 1.0]]))
    chunk.arrays["/observations/position"][:] = [2.0, -3.0]
    chunk.arrays["/rewards"][:] = 5.0

    statistics.merge(chunk)

    normalizer = statistics.snapshot()
    scaled = normalizer.observations({"position": np.array([[2.5, -3.0]], np.float32)})["position"]
    mean = [0.0, 0.0] if case == "no row" else [2.0, -3.0]
    np.testing.assert_array_equal(scaled, [[2.5 - mean[0], -3.0 - mean[1]]])
    np.testing.assert_array_equal(normalizer.rewards(np.array([5.0], np.float32)), [5.0])


def test_normalised_numbers_stay_within_their_bounds() -> None:
    statistics = made(clip_observation=2.0, clip_reward=0.5)
    statistics.merge(chunk_of(np.random.default_rng(0)))
    normalizer = statistics.snapshot()

    scaled = normalizer.observations({"position": np.array([[1e30, -1e30]], np.float32)})["position"]

    np.testing.assert_array_equal(scaled, [[2.0, -2.0]])
    np.testing.assert_array_equal(normalizer.rewards(np.array([1e30, -1e30], np.float32)), [0.5, -0.5])


def test_loaded_statistics_go_on_as_if_never_stopped() -> None:
    rng = np.random.default_rng(0)
    chunks = [chunk_of(rng) for _ in range(4)]
    straight, first, second = made(), made(), made()
    for chunk in chunks:
        straight.merge(chunk)
    for chunk in chunks[:2]:
        first.merge(chunk)

    second.load_state_dict(first.state_dict())
    for chunk in chunks[2:]:
        second.merge(chunk)

    expected, found = straight.state_dict(), second.state_dict()
    assert found["version"] == expected["version"] == 4
    np.testing.assert_array_equal(found["running"], expected["running"])
    for part in ("mean", "m2", "rows"):
        np.testing.assert_array_equal(found["returns"][part], expected["returns"][part])
        np.testing.assert_array_equal(
            found["observations"]["position"][part], expected["observations"]["position"][part]
        )


@pytest.mark.parametrize("part", ["running", "returns", "observations"])
def test_leaving_a_part_out_of_the_state_would_be_noticed(part: str) -> None:
    rng = np.random.default_rng(0)
    chunks = [chunk_of(rng) for _ in range(3)]
    straight, resumed = made(), made()
    for chunk in chunks[:2]:
        straight.merge(chunk)

    resumed.load_state_dict({**straight.state_dict(), part: made().state_dict()[part]})
    straight.merge(chunks[2])
    resumed.merge(chunks[2])

    raw = {"position": np.ones((1, 2), np.float32)}
    one, other = straight.snapshot(), resumed.snapshot()
    same = np.array_equal(one.observations(raw)["position"], other.observations(raw)["position"])
    assert not (same and one.reward_factor == other.reward_factor)


def test_a_state_is_not_touched_by_later_merges() -> None:
    statistics, rng = made(), np.random.default_rng(0)
    statistics.merge(chunk_of(rng))
    state = statistics.state_dict()
    mean, running = state["observations"]["position"]["mean"].copy(), state["running"].copy()

    statistics.merge(chunk_of(rng))

    np.testing.assert_array_equal(state["observations"]["position"]["mean"], mean)
    np.testing.assert_array_equal(state["running"], running)


def test_a_state_with_other_slots_is_refused() -> None:
    with pytest.raises(CheckpointError, match=r"statistics: expected normalised slots \{\}, found \{'position'"):
        made(observations=False).load_state_dict(made().state_dict())
