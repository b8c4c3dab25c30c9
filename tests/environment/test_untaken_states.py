"""States of environments that cannot be taken over, or not for the moment: a new episode, and the reason is told."""

from __future__ import annotations

from typing import Any

import pytest
from fakes_vec import Counter, explorer

from digideep.environment.explorer import Explorer


def saved(name: str = "Script-v0", **fields: Any) -> dict[str, Any]:
    made = explorer(name, **fields)
    made.set_actors({"agent": Counter()})
    made.update()
    state = made.state_dict()
    made.close()
    return state


def resumed(state: dict[str, Any], name: str = "Script-v0", **fields: Any) -> tuple[str, list[float], list[int]]:
    """Return exactness, the masks of the first row of the next chunk, and the numbers of the episodes then."""
    again = explorer(name, **fields)
    try:
        again.load_state_dict(state)
        again.set_actors({"agent": Counter()})
        masks = again.update().arrays["/masks"][:, 0].tolist()
        return again.exactness, masks, again._slab.numbers.tolist()
    finally:
        again.close()


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("elsewhere", "expected to stand where it stood, found it elsewhere"),
        ("stranger", "expected the record of an episode, found none"),
    ],
)
def test_a_state_that_leads_elsewhere_counts_as_none(fault: str, reason: str, num_workers: int) -> None:
    kwargs = {"lengths": [9], "fault": fault, "fault_at": 99}
    state = saved(kwargs=kwargs)

    exactness, masks, numbers = resumed(state, kwargs=kwargs, num_workers=num_workers)

    assert exactness == f"resume starts new episodes: {reason}"
    assert masks == [0, 0, 0]
    assert numbers == [1, 1, 1]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_state_of_other_arguments_counts_as_none_and_says_which(num_workers: int) -> None:
    state = saved(kwargs={"lengths": [9]})

    exactness, masks, _ = resumed(state, kwargs={"lengths": [8]}, num_workers=num_workers)

    assert exactness.startswith("resume starts new episodes: Script-v0 was made with ")
    assert masks == [0, 0, 0]


def test_a_record_of_another_form_counts_as_none() -> None:
    state = saved("CartPole-v1")
    # As another version of the library may have written it.
    del state["environments"][1]["environment"]["layers"][-1]["attributes"]

    exactness, masks, numbers = resumed(state, "CartPole-v1")

    assert "expected what fits CartPoleEnv of CartPole-v1, found KeyError" in exactness
    assert masks == [1, 0, 1]
    assert numbers == [0, 1, 0]


def test_the_same_new_episodes_begin_at_each_try() -> None:
    kwargs = {"lengths": [9], "fault": "elsewhere", "fault_at": 99}
    state = saved(kwargs=kwargs)
    seeds = []

    for _ in range(2):
        again = explorer(kwargs=kwargs)
        again.load_state_dict(state)
        seeds.append(again._slab.seeds.tolist())
        again.close()

    assert seeds[0] == seeds[1]
    assert seeds[0] != [entry["seed"] for entry in state["environments"]]


def bare(made: Explorer, env: int) -> Any:
    """Return an environment of an explorer without workers."""
    return made._vec._stepper._envs[env].unwrapped  # type: ignore[attr-defined]


def test_what_keeps_a_state_from_being_saved_once_does_not_keep_the_next_one() -> None:
    made = explorer("CartPole-v1")
    made.set_actors({"agent": Counter()})
    made.reset()

    bare(made, 1).grown = object()
    first = made.state_dict()
    said = made.exactness
    del bare(made, 1).grown
    second = made.state_dict()
    later = made.exactness
    made.close()

    assert [entry["environment"] is None for entry in first["environments"]] == [False, True, False]
    assert said.startswith("resume starts new episodes: CartPole-v1 has no state to save")
    assert [entry["environment"] is None for entry in second["environments"]] == [False, False, False]
    assert later == "exact"


def test_a_checkpoint_that_lacks_one_state_goes_on_with_the_others() -> None:
    state = saved("CartPole-v1")
    state["environments"][1]["environment"] = None

    exactness, masks, _ = resumed(state, "CartPole-v1")

    assert exactness == "resume starts new episodes: CartPole-v1 had no state when the checkpoint was saved"
    assert masks == [1, 0, 1]
