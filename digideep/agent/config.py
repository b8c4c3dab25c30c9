"""What the configurations of all agents have in common."""

from __future__ import annotations

from dataclasses import dataclass

from digideep.utility.node import Config

__all__ = ["AgentConfig"]


@dataclass(frozen=True)
class AgentConfig(Config):
    """What stands at `/agents/<name>`: how a policy learns. A subclass has the method's fields."""
