"""Contract tests for environments and for parts that have state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import gymnasium

from digideep.environment.examine import state_difference
from digideep.types import Stateful
from digideep.utility.differences import first_difference

__all__ = ["check_state_roundtrip", "check_stateful", "first_difference"]

T = TypeVar("T", bound=Stateful)


def check_state_roundtrip(make: Callable[[], gymnasium.Env[Any, Any]], *, steps: int = 60, seed: int = 1) -> None:
    """Check that an environment goes on, from a state that was saved, as if nothing had happened.

    Args:
        make: gives a new environment each time it is called.
        steps: random ones, compared after each of the saved states.
        seed: of the environment and of the actions.

    Raises:
        AssertionError: it has no state, or a step differs; the message says which, and where in it.
    """
    difference = state_difference(make, steps=steps, seed=seed)
    if difference:
        raise AssertionError(difference)


def check_stateful(make: Callable[[], T], run: Callable[[T], Any]) -> None:
    """Check that load(save(x)) behaves as x from the next call on, and that what was saved does not change any more.

    Args:
        make: gives a new object each time it is called; the object need not be in its first state.
        run: moves an object on and returns what it did, as plain data; the same calls each time.

    Raises:
        AssertionError: something differs; the message has its path and both values.
    """
    original = make()
    run(original)
    saved = original.state_dict()
    expected = run(original)
    restored = make()
    restored.load_state_dict(saved)
    _same("the first run after loading", expected, run(restored))
    again = make()
    again.load_state_dict(saved)
    _same("the state that was saved, after two objects ran on", expected, run(again))
    loaded = make()
    loaded.load_state_dict(saved)
    _same("what is saved again right after loading", saved, loaded.state_dict())


def _same(what: str, expected: Any, found: Any) -> None:
    difference = first_difference(expected, found)
    if difference:
        raise AssertionError(f"{what} differs at {difference}")
