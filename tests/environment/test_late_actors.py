"""Actors that give actions at each step and their artifacts for a whole chunk: the explorer's side."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from fakes_vec import Array, Follower, explorer

from digideep.environment.recovery import Supervision
from digideep.environment.vec.restart import RestartBudget
from digideep.errors import ShapeError
from digideep.types import ActorOutput


def _artifacts(observations: Mapping[str, Array], actions: Mapping[str, Array]) -> dict[str, Array]:
    shown = observations["observation"].astype(np.float32)
    return {"log_probs": -shown[:, 2] * (1 + actions[""]), "values": shown[:, 0] + 100 * shown[:, 1]}


class AtOnce(Follower):
    """Takes action 1 where the random number of the observation is large."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def act(self, observations: Mapping[str, Array], *args: Any, **kwargs: Any) -> ActorOutput:
        self.calls.append("act")
        actions = self._actions(observations)
        return ActorOutput(actions, _artifacts(observations, actions))

    def _actions(self, observations: Mapping[str, Array]) -> dict[str, Array]:
        return {"": (observations["observation"][:, 2] > 0.5).astype(np.int64)}


class Late(AtOnce):
    """The same, late."""

    def choose(self, observations: Mapping[str, Array]) -> dict[str, Array]:
        self.calls.append("choose")
        return self._actions(observations)

    def complete(self, observations: Mapping[str, Array], actions: Mapping[str, Array]) -> dict[str, Array]:
        self.calls.append("complete")
        return _artifacts(observations, actions)


def played(actor: AtOnce, *, num_workers: int = 0, chunks: int = 3, **fields: Any) -> list[dict[str, Array]]:
    supervision = Supervision(RestartBudget())
    made = explorer(num_workers=num_workers, supervision=supervision, **{"kwargs": {"lengths": [3, 1, 6]}, **fields})
    with contextlib.closing(made):
        made.set_actors({"agent": actor})
        return [{key: array[:, :-1].copy() for key, array in made.update().arrays.items()} for _ in range(chunks)]


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"kwargs": {"fault": "nan", "fault_at": 3}, "on_nonfinite": "reset", "env_error_budget": 99},
        {"kwargs": {"lengths": [9], "fault": "step", "fault_at": 3}, "on_env_error": "reset", "env_error_budget": 99},
    ],
    ids=["sound", "numbers that go bad", "errors"],
)
def test_every_row_of_a_chunk_is_completed_as_if_it_had_been_at_once(num_workers: int, fields: dict[str, Any]) -> None:
    late, whole = Late(), AtOnce()

    found = played(late, num_workers=num_workers, **fields)
    expected = played(whole, num_workers=num_workers, **fields)

    assert late.calls == ["choose"] * 4 + ["complete"] + (["choose"] * 4 + ["complete"]) * 2
    assert whole.calls == ["act"] * 12
    for one, other in zip(found, expected, strict=True):
        assert {key: array.tobytes() for key, array in one.items()} == {k: a.tobytes() for k, a in other.items()}
        assert np.ptp(one["/agents/agent/artifacts/log_probs"]) > 0.0


@pytest.mark.parametrize("fields", [{"deterministic": True}, {"act_groups": 2, "num_envs": 4}], ids=str)
def test_who_samples_nothing_or_acts_in_halves_asks_for_all_at_once(fields: dict[str, Any]) -> None:
    actor = Late()

    played(actor, chunks=1, **fields)

    assert set(actor.calls) == {"act"}


def test_artifacts_of_another_shape_are_refused() -> None:
    class Short(Late):
        def complete(self, observations: Mapping[str, Array], actions: Mapping[str, Array]) -> dict[str, Array]:
            return {key: array[1:] for key, array in super().complete(observations, actions).items()}

    with pytest.raises(ShapeError, match=r"artifacts\['log_probs'\]: expected shape \(12,\), found \(11,\)"):
        played(Short(), chunks=1)
