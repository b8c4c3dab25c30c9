"""Products of matrices take more threads while they are asked to; those of an update while that pays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from digideep.agent.continuous import networks
from digideep.model.flat import FlatParameters
from digideep.model.packed_towers import bits_of
from digideep.model.towers import Towers
from digideep.types import Counters
from digideep.utility import products
from digideep.utility.products import ProductThreads, SpreadWhileItPays, set_product_threads
from digideep.utility.statistics import Normalizer
from tests.agent.made_agents import METHODS, fill, made


def now() -> list[int]:
    """Return how many threads each OpenBLAS of this process takes."""
    return [library.get() for library in products._loaded()]


@pytest.fixture
def three_threads() -> Iterator[None]:
    """Let torch have three threads, on any machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(threads)


def test_more_threads_are_taken_while_they_are_asked_for_even_after_an_error() -> None:
    before = now()

    with pytest.raises(ValueError, match="within"), ProductThreads(3) as threads:
        assert threads.count == 3
        assert now() == [3 for _ in before]
        raise ValueError("within")

    assert before and now() == before


def test_more_threads_than_are_wanted_stay() -> None:
    before = now()
    set_product_threads(4)
    try:
        with ProductThreads(2):
            assert now() == [4 for _ in before]
        assert now() == [4 for _ in before]
    finally:
        for library, count in zip(products._loaded(), before, strict=True):
            library.set(count)


def test_what_cannot_be_told_takes_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_NAMES", ())

    with ProductThreads(3) as threads:
        assert threads.count == 1
    assert not set_product_threads(3)


def blocks(times: Callable[[bool, int], float], *, count: int, threads: int = 2) -> str:
    """Return which of `count` blocks took several threads, as 1 and 0; `times` says how long each takes."""
    clock = [0.0]
    spread = SpreadWhileItPays(ProductThreads(threads), clock=lambda: clock[0])
    found = ""
    for i in range(count):
        with spread:
            found += str(int(spread.is_spread))
            clock[0] += times(spread.is_spread, i)
    return found


def test_several_threads_are_kept_while_they_are_quicker() -> None:
    assert blocks(lambda is_spread, i: 0.5 if is_spread else 1.0, count=300) == "0" * 16 + "1" * 284


def test_a_few_late_blocks_are_not_enough_to_give_them_up() -> None:
    assert blocks(lambda is_spread, i: 3.0 if is_spread and i % 4 else 1.0, count=50) == "0" * 16 + "1" * 34


def test_what_has_lost_four_times_in_a_row_is_tried_again_after_ever_longer_pauses() -> None:
    found = blocks(lambda is_spread, i: 3.0 if is_spread else 1.0, count=100_000)

    pauses = [len(pause) for pause in found.split("1111")]
    assert pauses[:11] == [16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768]
    assert pauses[11] == 32768


def test_what_takes_much_longer_is_given_up_at_once() -> None:
    assert (
        blocks(lambda is_spread, i: 4.1 if is_spread else 1.0, count=150) == "0" * 16 + "1" + "0" * 64 + "1" + "0" * 68
    )


def test_they_are_taken_again_when_the_cores_are_free_and_what_was_lost_is_forgotten() -> None:
    def times(is_spread: bool, i: int) -> float:
        is_busy = i < 200 or 3000 <= i < 3004
        return (3.0 if is_busy else 0.5) if is_spread else 1.0

    found = blocks(times, count=3200)

    assert found.startswith("0" * 16 + "1111" + "0" * 64 + "1111" + "0" * 128 + "1")
    assert found[300:3000] == "1" * 2700
    assert found[3000:] == "1111" + "0" * 64 + "1" * 132


def test_nobody_is_timed_where_there_is_one_thread() -> None:
    assert blocks(lambda is_spread, i: 0.0, count=10, threads=1) == "0" * 10


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("layer_norm", [False, True])
def test_an_update_takes_the_threads_of_torch_where_they_change_no_bit(
    monkeypatch: pytest.MonkeyPatch, three_threads: None, method: str, layer_norm: bool
) -> None:
    before = now()
    monkeypatch.setattr(networks, "bits_of", lambda *args, **options: [])
    agent = made(method, model={"layer_norm": layer_norm})
    fill(agent)
    found = []
    make_batch = agent.make_batch

    def seen(transitions: Any) -> Any:
        found.append(now())
        return make_batch(transitions)

    monkeypatch.setattr(agent, "make_batch", seen)
    monkeypatch.setattr(agent._products, "_clock", lambda: 0.0)
    for _ in range(18):
        agent.update(Normalizer(), Counters(env_steps=64))

    assert agent.learner_threads == 3
    assert found[0] == before and found[-1] == [3 for _ in before]
    assert now() == before


def test_threads_that_change_bits_are_not_taken_but_our_own(
    monkeypatch: pytest.MonkeyPatch, three_threads: None
) -> None:
    monkeypatch.setattr(networks, "bits_of", lambda *args, **options: [bytes(now())])
    agent = made("sac")
    monkeypatch.setattr(networks, "bits_of", lambda *args, **options: [])
    other = made("sac")

    assert (agent.passes.products.count, agent.passes.critics._crew.threads) == (1, 3)
    assert (other.passes.products.count, other.passes.critics._crew.threads) == (3, 1)
    assert agent.learner_threads == other.learner_threads == 3


@pytest.mark.parametrize("method", METHODS)
def test_learning_with_several_threads_ends_with_the_bits_of_one(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    def learnt(threads: int) -> dict[str, Any]:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            agent = made(method, model={"hidden_sizes": [400, 300]}, batch_size=128)
        finally:
            torch.set_num_threads(before)
        monkeypatch.setattr(agent._products, "_clock", lambda: 0.0)
        fill(agent)
        for _ in range(20):
            agent.update(Normalizer(), Counters(env_steps=64))
        assert agent.learner_threads == threads
        return {name: part.values.numpy().copy() for name, part in agent._parts.items()}

    alone, together = learnt(1), learnt(3)

    for name, values in alone.items():
        np.testing.assert_array_equal(values, together[name])


def test_looking_for_changed_bits_leaves_nothing_behind(three_threads: None) -> None:
    agent = made("sac_value")

    assert all(float(part.gradients.abs().max()) == 0.0 for part in agent._parts.values())


def test_bits_are_those_of_all_that_a_batch_goes_through() -> None:
    towers = Towers(5, hidden_sizes=(8, 6), outputs=2, activation="relu", count=2, layer_norm=True)
    FlatParameters(towers)
    before = bits_of(towers, rows=7, first=3)
    assert before == bits_of(towers, rows=7, first=3)
    assert len(before) == 2 + len(list(towers.parameters()))

    for parameter in (towers.layers[1].weight, towers.head.weight):
        with torch.no_grad():
            parameter[0] += 0.1  # type: ignore[index,operator]
        after = bits_of(towers, rows=7, first=3)
        assert after[:2] != before[:2]
        before = after


@pytest.mark.parametrize("method", METHODS)
def test_an_update_on_the_reference_path_leaves_the_products_alone(three_threads: None, method: str) -> None:
    base = METHODS[method].agent
    own = type("Own", (base,), {"critic_loss": lambda self, batch, values: base.critic_loss(self, batch, values)})

    agent = made(method, cls=own)

    assert agent.path.startswith("reference") and agent.learner_threads == 1
    assert agent.passes.products.count == 1
