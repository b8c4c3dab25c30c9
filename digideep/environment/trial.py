"""One environment made and closed: to know its spaces, and whether it can be made, where that may end a process."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from digideep.environment.config import EnvConfig
from digideep.environment.make import prepare
from digideep.environment.vec.base import VecEnv
from digideep.environment.vec.process import ProcessVecEnv
from digideep.environment.vec.serial import SerialVecEnv
from digideep.errors import EnvironmentFailure
from digideep.spec import EnvSpec
from digideep.utility.imports import BUILT_IN

__all__ = ["check_env", "trial_spec"]

# Making one of these ends no process, so that no worker is needed to find out.
_HARMLESS = ("gymnasium.envs.classic_control", "gymnasium.envs.toy_text", "digideep.testing")
_OURS = "digideep."


def trial_spec(
    config: EnvConfig, *, in_worker: bool, step_timeout_s: float, allowed: Sequence[str] = BUILT_IN
) -> EnvSpec:
    """Return what an environment shows and takes, in its own units.

    Args:
        config: which environment.
        in_worker: whether it is made in a worker, as its like will be; this process survives a death then.
        step_timeout_s: longest time that making it may take.
        allowed: packages that may be imported for it.

    Raises:
        EnvironmentFailure: it raised, hung or died while it was made.
        DigideepError: no such id, a space that fits in no slot, an argument that it does not take.
    """
    registered = prepare(config, allowed=allowed)
    entry = registered.entry_point if isinstance(registered.entry_point, str) else ""
    made: VecEnv
    is_harmless = entry.startswith(_HARMLESS) and all(str(one.get("type")).startswith(_OURS) for one in config.wrappers)
    if in_worker and not is_harmless:
        made = ProcessVecEnv(config, num_envs=1, num_workers=1, allowed=allowed, step_timeout_s=step_timeout_s)
    else:
        made = SerialVecEnv(config, num_envs=1, allowed=allowed, step_timeout_s=step_timeout_s)
    with contextlib.closing(made):
        return made.spec


def check_env(
    config: EnvConfig, *, in_worker: bool, step_timeout_s: float, allowed: Sequence[str] = BUILT_IN
) -> EnvSpec | None:
    """Make one environment, as `trial_spec` does, before there is a session; return what it shows and takes.

    What it raises while it is made, and a death of the worker, are left to the session, which keeps what is told; that
    is None.

    Raises:
        EnvironmentFailure: it was not made within `step_timeout_s`.
        DigideepError: the input is wrong.
    """
    try:
        return trial_spec(config, in_worker=in_worker, step_timeout_s=step_timeout_s, allowed=allowed)
    except EnvironmentFailure as error:
        if getattr(error, "ending", "error") == "hang":
            raise
        return None
