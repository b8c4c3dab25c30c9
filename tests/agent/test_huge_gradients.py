"""Gradients that are finite and whose squares are not: they stop before the step, as those that are not finite do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from dqn_agents import make_dqn
from made_agents import METHODS, made

from digideep.agent.a2c.agent import A2CAgent
from digideep.agent.a2c.config import A2CConfig
from digideep.agent.ppo.agent import PPOAgent
from digideep.agent.ppo.config import PPOConfig
from digideep.errors import NonFiniteError

SAID = "found norm 1e+20, too large for squares in float32 (a max_grad_norm bounds it), in "
ROLLOUTS: dict[str, Any] = {"ppo": (PPOAgent, PPOConfig), "a2c": (A2CAgent, A2CConfig)}


@pytest.fixture
def make(make_agent: Any, make_spec: Any) -> Callable[..., Any]:
    def of(method: str, **fields: Any) -> Any:
        if method in ROLLOUTS:
            cls, config = ROLLOUTS[method]
            return make_agent(make_spec(), cls=cls, config=config, **fields)
        return make_dqn(fields) if method == "dqn" else made(method, **fields)

    return of


def gradient_of(agent: Any, part: str) -> torch.Tensor:
    buffers = agent._flat if hasattr(agent, "_flat") else agent._parts[part]
    gradient = torch.zeros_like(buffers.gradients)
    gradient[-1] = 1e20
    return gradient


def arrays(tree: Any) -> list[Any]:
    """Return every array of a state."""
    if isinstance(tree, dict):
        return [array for part in tree.values() for array in arrays(part)]
    return [tree] if isinstance(tree, np.ndarray) else []


@pytest.mark.parametrize("method", [*ROLLOUTS, "dqn", *METHODS])
def test_a_gradient_that_squares_cannot_hold_moves_nothing(method: str, make: Callable[..., Any]) -> None:
    agent = make(method, max_grad_norm=None)
    before = arrays(agent.state_dict())

    for part in agent.parts:
        with pytest.raises(NonFiniteError) as refused:
            agent.apply(gradient_of(agent, part), part)
        assert SAID in str(refused.value)

    assert all(np.array_equal(one, other) for one, other in zip(arrays(agent.state_dict()), before, strict=True))


@pytest.mark.parametrize("method", [*ROLLOUTS, "dqn", *METHODS])
def test_a_bound_makes_such_a_gradient_one_to_learn_from(method: str, make: Callable[..., Any]) -> None:
    agent = make(method, max_grad_norm=0.5)
    before = arrays(agent.state_dict())

    norms = [agent.apply(gradient_of(agent, part), part) for part in agent.parts]

    assert norms == [pytest.approx(1e20)] * len(norms)
    after = arrays(agent.state_dict())
    assert all(np.isfinite(array).all() for array in after if array.dtype.kind == "f")
    assert not all(np.array_equal(one, other) for one, other in zip(after, before, strict=True))
