"""The table of what a subclass may override has every such method, with its arguments."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

from digideep.agent.ddpg.agent import DDPGAgent
from digideep.agent.dqn.agent import LOSS_METHODS, DQNAgent
from digideep.agent.sac.agent import SACAgent
from digideep.agent.sac_value.agent import SACValueAgent
from digideep.agent.td3.agent import TD3Agent

PAGE = Path(__file__).resolve().parents[2] / "docs" / "implement_a_method.md"
AGENTS: dict[str, type[Any]] = {
    "DQN": DQNAgent, "DDPG": DDPGAgent, "TD3": TD3Agent, "SAC": SACAgent, "SAC of 2018": SACValueAgent,
}  # fmt: skip
ROW = re.compile(r"^\| ([^|]+) \| `(\w+)\(([^)]*)\)` \|.*\| (reference|any) \|$", re.MULTILINE)


def test_the_table_of_overrides_is_what_the_agents_have() -> None:
    text = PAGE.read_text(encoding="utf-8")
    table = text[text.index("<!-- overrides: begin -->") : text.index("<!-- overrides: end -->")]

    rows = ROW.findall(table)
    found = [
        (agent, name, given.split(", "), path) for agents, name, given, path in rows for agent in agents.split(", ")
    ]

    assert len(rows) == table.count("\n| ") - 1  # without the heads
    for agent, method, arguments, _ in found:
        assert list(inspect.signature(getattr(AGENTS[agent], method)).parameters)[1:] == arguments, (agent, method)
    for agent, cls in AGENTS.items():
        losses = LOSS_METHODS if cls is DQNAgent else cls.loss_methods
        told = {method for name, method, _, path in found if name == agent and path == "reference"}
        assert told == set(losses), agent
