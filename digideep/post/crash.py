"""What a run with numbers that were not finite leaves in its session: the minibatch, and the agent that met it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from digideep.agent.config import AgentConfig
from digideep.agent.crash import CrashBatch
from digideep.pipeline.crash_batch import read_crash_batch
from digideep.post.policy import NoMemory
from digideep.spec import spec_from_plain
from digideep.utility.imports import BUILT_IN, resolve
from digideep.utility.monitoring import Monitor
from digideep.utility.node import configure

__all__ = ["Crash", "load_crash"]


class Crash(NamedTuple):
    """A loss or gradient that was not finite.

    `agent` has the weights of then and has learnt nothing from `batch`, whose arrays are also in `kept.arrays`, by
    path. `figures` are the losses as the run found them.
    """

    error: str
    agent: Any
    batch: Any
    kept: CrashBatch

    @property
    def figures(self) -> Mapping[str, float]:
        """Return the losses as the run found them."""
        figures: Mapping[str, float] = self.kept.meta["figures"]
        return figures

    def losses(self) -> dict[str, float]:
        """Return the losses of the minibatch, computed again; the gradient is in the `.grad` of `agent.policy`."""
        with np.errstate(over="ignore", invalid="ignore"):
            output = self.agent.gradients(self.batch, part := self.kept.meta["part"])
        return dict(zip(self.agent.figures_of(part), output.losses.tolist(), strict=True))


def load_crash(path: str | os.PathLike[str], *, allowed: Sequence[str] = BUILT_IN) -> Crash:
    """Return what lies in the `crash` directory of the session at `path`, with the agent made again.

    Args:
        path: a session, or a directory with a copy of its two files.
        allowed: packages whose classes may be made; name your own where the agent or its network is yours.

    Raises:
        UsageError: the session has no such files, or they are malformed.
        TrustError: the agent or its network comes from another package.
    """
    kept, error = read_crash_batch(Path(path))
    meta = kept.meta
    config = configure(meta["node"], where="crash/batch.json/node", allowed=allowed, expected=AgentConfig)
    agent = resolve(config.builds, where="crash/batch.json/node/type", allowed=allowed)(
        config,
        name=meta["agent"],
        spec=spec_from_plain(meta["spec"]),
        memory=NoMemory(),
        device="cpu",
        seed=0,
        monitor=Monitor().monitor,
        allowed=tuple(allowed),
    )
    prefix = "/policy/"
    weights = {name.removeprefix(prefix): array for name, array in kept.arrays.items() if name.startswith(prefix)}
    agent.load_policy_state({"policy": weights})
    return Crash(error=error, agent=agent, batch=agent.batch_of(kept.arrays), kept=kept)
