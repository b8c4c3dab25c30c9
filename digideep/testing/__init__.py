"""Environments, an actor and contract tests for trying digideep and what is built on it.

Importing this registers the environments, so that `digideep.testing:Toy-v0` is an id like any other: `Toy-v0`,
`Counting-v0`, `Faulty-v0`, and those whose best return is known, `Identity-v0`, `Bandit-v0`, `Chain-v0`, `OneState-v0`,
`Recall-v0`.

`digideep.testing.toy_ppo`, `toy_a2c`, `toy_dqn`, `toy_td3` and others, one a method, are parameter modules of trainings
that take seconds and have everything that a state can be made of.
"""

from __future__ import annotations

import gymnasium

from digideep.testing.actors import CountingActor
from digideep.testing.contracts import check_state_roundtrip, check_stateful, first_difference
from digideep.testing.environments import CountingEnv, FaultyEnv, ToyEnv
from digideep.testing.learning import BanditEnv, ChainEnv, IdentityEnv, OneStateEnv, RecallEnv
from digideep.testing.vectors import CountingVectorEnv

__all__ = [
    "BanditEnv",
    "ChainEnv",
    "CountingActor",
    "CountingEnv",
    "CountingVectorEnv",
    "FaultyEnv",
    "IdentityEnv",
    "OneStateEnv",
    "RecallEnv",
    "ToyEnv",
    "check_state_roundtrip",
    "check_stateful",
    "first_difference",
]

for _name, _class, _limit in (
    ("Toy", ToyEnv, None),
    ("Counting", CountingEnv, None),
    ("Faulty", FaultyEnv, None),
    ("Identity", IdentityEnv, None),
    ("Bandit", BanditEnv, None),
    ("Chain", ChainEnv, None),
    ("OneState", OneStateEnv, 5),
    ("Recall", RecallEnv, None),
):
    if f"{_name}-v0" not in gymnasium.registry:
        gymnasium.register(
            id=f"{_name}-v0", entry_point=f"{_class.__module__}:{_class.__name__}", max_episode_steps=_limit
        )
if "CountingVector-v0" not in gymnasium.registry:
    gymnasium.register(
        id="CountingVector-v0",
        entry_point="digideep.testing.environments:CountingEnv",
        vector_entry_point="digideep.testing.vectors:CountingVectorEnv",
    )
