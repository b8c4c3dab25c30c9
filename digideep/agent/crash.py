"""What an agent hands over when a loss or a gradient is not finite: enough to compute the same numbers again."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from digideep.agent.config import AgentConfig
from digideep.errors import NonFiniteError
from digideep.spec import EnvSpec, spec_to_plain
from digideep.utility.node import node

__all__ = ["CrashBatch", "Origin", "carry", "crash_of"]

Array: TypeAlias = np.ndarray[Any, Any]


class CrashBatch(NamedTuple):
    """A minibatch and the weights that it met.

    `arrays` are named by path: `/policy/<parameter>` and `/batch/<...>`, in the method's own words below that. `meta`
    is plain data: `agent`, `update`, `part`, `node` of the agent's configuration, `spec` of the environment, and
    `figures`, the losses and the gradient's norm as they were found.
    """

    arrays: Mapping[str, Array]
    meta: Mapping[str, Any]


class Origin(NamedTuple):
    """Whose minibatch it is: agent, its configuration with what the schedules gave, spaces, updates before this one."""

    name: str
    config: AgentConfig
    spec: EnvSpec
    update: int


def crash_of(
    batch: Mapping[str, Array],
    figures: Mapping[str, float],
    *,
    weights: Mapping[str, Array],
    origin: Origin,
    part: str = "policy",
) -> CrashBatch:
    """Return what there is to keep of a minibatch.

    Args:
        batch: its arrays, named in the method's own words.
        figures: the losses that it gave.
        weights: of the policy, by name of the parameter.
        origin: whose it is.
        part: whose gradient or loss it was.
    """
    config = origin.config
    arrays = {f"/batch/{name}": array for name, array in batch.items()}
    arrays |= {f"/policy/{parameter}": array for parameter, array in weights.items()}
    meta = {
        "agent": origin.name,
        "update": origin.update,
        "part": part,
        "node": node(type(config), **{field.name: getattr(config, field.name) for field in dataclasses.fields(config)}),
        "spec": spec_to_plain(origin.spec),
        "figures": dict(figures),
    }
    return CrashBatch(arrays, meta)


def carry(error: NonFiniteError, crash_batch: CrashBatch) -> NonFiniteError:
    """Return `error` with `crash_batch` as an attribute, which is written into the session's `crash` directory."""
    error.crash_batch = crash_batch  # type: ignore[attr-defined]
    return error
