"""What the configurations of all agents have in common."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from digideep.errors import ConfigError
from digideep.utility.node import Config

__all__ = ["AgentConfig"]


@dataclass(frozen=True)
class AgentConfig(Config):
    """What stands at `/agents/<name>`: how a policy learns. A subclass has the method's fields."""

    schedules: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Names of fields: of a schedule's horizon, by that of its final value, which is null for none."""

    def __post_init__(self) -> None:
        """Check that every schedule has a horizon."""
        super().__post_init__()
        units = {field.name: field.metadata.get("unit") for field in dataclasses.fields(self)}
        for final, horizon in self.schedules.items():
            value = getattr(self, final)
            if value is not None and getattr(self, horizon) == 0:
                raise ConfigError(
                    f"{type(self).__name__}/{horizon}: expected {units[horizon]} above 0, since {final} is {value}, "
                    f"found 0; set it"
                )
