"""What a session holds, as data, and its policy."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from digideep.errors import CheckpointError, UsageError, one_line
from digideep.pipeline.fsio import read_json
from digideep.pipeline.inventory import effective_params, summary_of
from digideep.pipeline.layout import SessionPaths, read_meta
from digideep.pipeline.needed import needed_modules
from digideep.pipeline.snapshot import locate
from digideep.pipeline.summary import Summary
from digideep.pipeline.trust import Trust, assess, require
from digideep.utility.imports import searching
from digideep.utility.jsonl import columns, read_rows
from digideep.utility.node import configure

if TYPE_CHECKING:
    import gymnasium
    import numpy as np

    from digideep.pipeline.checkpoint import Checkpoint, CheckpointStore
    from digideep.post.policy import LoadedPolicy

__all__ = ["Loader"]

logger = logging.getLogger(__name__)


class Loader:
    """Reads one session; everything is read when it is asked for, and nothing is ever written.

    Args:
        paths: of the session.
        trust_session: whether its own modules may run although it is not signed by this user.
    """

    def __init__(self, paths: SessionPaths, *, trust_session: bool = False) -> None:
        self._paths = paths
        self._trust_session = trust_session

    def __repr__(self) -> str:
        return f"Loader({one_line(self.path)!r})"

    @property
    def path(self) -> Path:
        """Directory of the session."""
        return self._paths.root

    @property
    def params(self) -> dict[str, Any]:
        """The params tree as it is now: params.yaml with every change of repeal.json."""
        return effective_params(self._paths)

    @property
    def cpanel(self) -> dict[str, Any]:
        """The control panel that the session was made with."""
        panel = read_json(self._paths.cpanel)
        if not isinstance(panel, dict):
            raise UsageError(f"{one_line(self._paths.cpanel)}: expected an object, found something else; restore it")
        return panel

    @property
    def meta(self) -> dict[str, Any]:
        """Identity, and one entry for each process that worked on the session."""
        return read_meta(self._paths)

    @property
    def summary(self) -> dict[str, Any]:
        """How the session stood at its last save or end."""
        return Summary.read(self._paths).to_plain()

    @property
    def checkpoints(self) -> list[dict[str, Any]]:
        """The checkpoints on disk by number: {"name", "number", "epoch", "frame", "mean_return"}.

        `mean_return` is None where no episode had ended. One whose manifest is damaged is left out with a warning; what
        a checkpoint holds is verified by `policy` and by `python -m digideep.sessions fsck`, not here.
        """
        from digideep.pipeline.verified import read_manifest

        scores = {entry["name"]: entry["mean_return"] for entry in summary_of(self._paths)[0].checkpoints}
        store, found = self._store(), []
        for number in store.numbers():
            path = store.path(number)
            try:
                manifest = read_manifest(path, number=number, session_id=store.session_id)
            except CheckpointError as error:
                logger.warning("%s is damaged and left out: %s", path.name, error)
                continue
            counts = {"number": number, "epoch": manifest["epoch"], "frame": manifest["frame"]}
            found.append({"name": path.name, **counts, "mean_return": scores.get(path.name)})
        return found

    def varlog(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return the metrics as arrays `[rows]` by name, NaN where a row lacks one.

        `epoch`, `frame`, `episode` and `clock` say where a row stands; `train/return` is the mean of that metric,
        `train/return/std` its deviation, and so on for `num`, `min` and `max`.
        """
        return _columns(self._paths.varlog)

    def prolog(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return the seconds by block since the row before, as arrays `[rows]`; `<block>/count` is how often."""
        return _columns(self._paths.prolog)

    def monlog(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return the usage of the machine as arrays `[rows]` by name."""
        return _columns(self._paths.monlog)

    def policy(self, checkpoint: str | int = "last", *, agent: str | None = None, device: str = "cpu") -> LoadedPolicy:
        """Return a policy of the session, its normaliser inside. Imports torch.

        Args:
            checkpoint: `last`, `best`, or a number of cycles.
            agent: its name, where the session has several.
            device: where it computes.

        Raises:
            CheckpointError: there is no such checkpoint, or it is damaged.
            TrustError: the agent needs a module of an untrusted session.
            UsageError: there is no such agent.
        """
        from digideep.post.policy import load_policy

        params = self.params
        name = _agent_name(params, agent)
        own = {"agents": {name: params["agents"][name]}}
        trust = assess(self._paths, trust_session=self._trust_session, params=own)
        require(trust, own, session=self.path)
        self._make_importable(own, trust)
        return load_policy(self.load_checkpoint(checkpoint), params, agent=name, allowed=trust.allowed, device=device)

    def make_env(self, *, render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
        """Return the session's environment in its wrappers, as its tests and plays have it, not reset yet.

        What it shows is what the session's policies take, and it takes what they give. `close()` it in the end.

        Args:
            render_mode: as Gymnasium has it; None shows nothing.

        Raises:
            TrustError: it needs a module of an untrusted session.
            UsageError: it cannot be made here; the message says why.
            EnvironmentFailure: it raised while it was made.
        """
        from digideep.environment.config import EnvConfig
        from digideep.environment.make import make_env
        from digideep.pipeline.failure import play_env

        params = self.params
        if not isinstance(params.get("env"), Mapping):
            raise UsageError("params.yaml: expected an environment, found none; restore it from a copy")
        own = {"env": play_env(params)}
        trust = assess(self._paths, trust_session=self._trust_session, params=own)
        require(trust, own, session=self.path)
        self._make_importable(own, trust)
        config = configure(own["env"], where="/env", allowed=trust.allowed, expected=EnvConfig)
        with searching(bytecode=False):  # what is imported may lie in the session
            return make_env(config, allowed=trust.allowed, render_mode=render_mode)

    def load_checkpoint(self, checkpoint: str | int = "last") -> Checkpoint:
        """Return a checkpoint, every byte of it verified: its manifest and the state by component.

        Args:
            checkpoint: `last` (passes over damaged ones with a warning each), `best`, or a number.

        Raises:
            CheckpointError: there is no such checkpoint, or it is damaged.
        """
        store = self._store()
        if checkpoint == "last":
            return store.load()
        if checkpoint == "best":
            numbers = set(store.numbers())
            ranked = [number for number in summary_of(self._paths)[0].best() if number in numbers]
            if not ranked:
                raise CheckpointError(f"{one_line(self.path)}: expected a checkpoint with a score, found none")
            return store.load(ranked[0])
        if type(checkpoint) is not int:
            raise UsageError(f"checkpoint: expected 'last', 'best' or a number, found {one_line(repr(checkpoint))}")
        return store.load(checkpoint)

    def _store(self) -> CheckpointStore:
        from digideep.pipeline.checkpoint import CheckpointStore

        return CheckpointStore(self._paths.checkpoints, session_id=str(self.meta["id"]), run_id="loader")

    def _make_importable(self, params: Mapping[str, Any], trust: Trust) -> None:
        """Let Python find the session's copies of modules that are installed nowhere; only where they may run."""
        own = str(self._paths.modules)
        missing = [name for name in needed_modules(params) if locate(name) is None]
        if trust.code and missing and own not in sys.path:
            sys.path.append(own)


def _columns(log: Path) -> dict[str, np.ndarray[Any, Any]]:
    try:
        return columns(read_rows(log))
    except OSError as error:
        found = one_line(error.strerror or error)
        raise UsageError(f"{one_line(log)}: expected a log that can be read, found {found}; restore it") from error


def _agent_name(params: Mapping[str, Any], agent: str | None) -> str:
    agents = params.get("agents")
    if not isinstance(agents, Mapping) or not agents:
        raise UsageError("params.yaml: expected agents, found none; restore it from a copy")
    if agent is None and len(agents) == 1:
        return str(next(iter(agents)))
    if agent not in agents:
        raise UsageError(f"agent: expected one of {sorted(agents)}, found {one_line(repr(agent))}; name one of them")
    return str(agent)
