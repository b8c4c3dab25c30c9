"""Actions at each step, and what belongs to them once a chunk: the same numbers as all at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from digideep.agent.rollout import policy as rollout_policy
from digideep.agent.rollout.policy import LateRolloutActor, RolloutActor
from digideep.errors import NonFiniteError
from digideep.model.config import MLPConfig
from digideep.utility.node import node
from digideep.utility.statistics import Normalizer


def raw(rows: int) -> dict[str, np.ndarray[Any, Any]]:
    return {"observation": np.random.default_rng(0).standard_normal((rows, 4)).astype(np.float32)}


@pytest.mark.parametrize("head", ["discrete", "multi_discrete", "multi_binary", "box", "dict"])
@pytest.mark.parametrize("block", [7, 2048], ids=["in blocks", "at once"])
def test_late_actions_and_artifacts_are_those_of_acting_at_once(
    head: str, block: int, make_spec: Any, make_agent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollout_policy, "_BLOCK", block)
    late, whole = (make_agent(make_spec(head)).actor(Normalizer()) for _ in range(2))
    observations = raw(24)

    actions = late.choose(observations)
    artifacts = late.complete(observations, actions)

    expected = whole.act(observations)
    for slot, chosen in actions.items():
        np.testing.assert_allclose(chosen, expected.actions[slot], rtol=1e-5, atol=1e-6)
        assert chosen.dtype == expected.actions[slot].dtype
    assert sorted(artifacts) == sorted(expected.artifacts) == ["log_probs", "values"]
    for key, numbers in artifacts.items():
        np.testing.assert_allclose(numbers, expected.artifacts[key], rtol=1e-5, atol=1e-5)


def test_late_is_who_saves_something_by_it(make_spec: Any, make_agent: Any) -> None:
    kinds = {
        name: type(make_agent(make_spec(), model=node(MLPConfig, **fields)).actor(Normalizer()))
        for name, fields in (("apart", {}), ("shared", {"shared": True}), ("in torch", {"activation": "gelu"}))
    }

    assert kinds == {"apart": LateRolloutActor, "shared": RolloutActor, "in torch": RolloutActor}


@pytest.mark.parametrize(("head", "found"), [("policy_head", "policy outputs"), ("value_head", "values")])
def test_weights_that_have_diverged_are_told_at_the_latest_at_the_end_of_the_chunk(
    head: str, found: str, make_spec: Any, make_agent: Any
) -> None:
    agent = make_agent(make_spec())
    getattr(agent.policy.network, head).bias.data.fill_(float("nan"))
    actor = agent.actor(Normalizer())
    assert isinstance(actor, LateRolloutActor)

    with pytest.raises(NonFiniteError, match=f"expected finite {found}, found nan in row 0"):
        actor.complete(raw(3), actor.choose(raw(3)))
