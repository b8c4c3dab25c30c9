"""Which kind of environments is stepped, single ones or a vector environment: by rule, since it changes numbers."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from contextlib import closing
from typing import Any, NamedTuple

from digideep.environment.config import EnvConfig, ExplorerConfig
from digideep.environment.recovery import Supervision
from digideep.environment.vec.base import Forgiven, VecEnv
from digideep.environment.vec.choose import make_vec_env, resolve_workers
from digideep.environment.vec.native import NativeVecEnv
from digideep.environment.vec.native_forms import Backend, NoNativeFormError, lasting_obstacle, plan
from digideep.environment.vec.ways import HERE, Way
from digideep.errors import EnvironmentFailure
from digideep.utility.imports import BUILT_IN

__all__ = ["Opened", "check_backend", "native_obstacle", "open_environments"]

logger = logging.getLogger(__name__)

_ENOUGH = 4  # environments: a step of arrays costs as much as that many single steps of the cheapest kind


class Opened(NamedTuple):
    """Environments, and why they are these: `chosen` holds by field what was measured."""

    vec: VecEnv
    way: Way
    backend: str
    chosen: dict[str, Any]


def open_environments(
    config: ExplorerConfig,
    env: EnvConfig,
    *,
    mode: str,
    allowed: Sequence[str] = BUILT_IN,
    render_mode: str | None = None,
    supervision: Supervision,
) -> Opened:
    """Return the environments of an explorer.

    Tests and plays seed each episode, and a window shows one environment: they have single ones.

    Raises:
        NoNativeFormError: a vector environment was asked for, and there is none.
        EnvironmentFailure: one could not be made.
        DigideepError: as `make_env`.
    """
    forgiven = Forgiven(errors=config.on_env_error == "reset", nonfinite=config.on_nonfinite == "reset")
    native = None
    if mode == "train" and render_mode is None and config.backend != "single":
        native = _native(config, env, allowed=allowed, forgiven=forgiven, on_stuck=supervision.on_stuck)
    if native is not None:
        return Opened(native, HERE, native.backend, {})
    way, chosen = resolve_workers(config, env, allowed=allowed, mode=mode, is_shown=render_mode is not None)
    vec = make_vec_env(
        env, num_envs=config.num_envs, **way._asdict(), act_groups=config.act_groups, allowed=allowed,
        render_mode=render_mode,
        step_timeout_s=config.step_timeout_s, forgiven=forgiven, restarts=supervision.restarts,
        on_stuck=supervision.on_stuck, mode=mode,
    )  # fmt: skip
    return Opened(vec, way, "single", chosen)


def native_obstacle(config: ExplorerConfig, env: EnvConfig, *, allowed: Sequence[str] = BUILT_IN) -> str:
    """Return why the state of the vector environment that training would step cannot be saved.

    Empty if it can, or if training would step single environments.

    Raises:
        DigideepError: as `open_environments`.
    """
    if config.backend == "single":
        return ""
    made = _native(config, env, allowed=allowed)
    if made is None:
        return ""
    with closing(made):
        return made.obstacle


def check_backend(config: ExplorerConfig, env: EnvConfig, *, allowed: Sequence[str] = BUILT_IN) -> None:
    """Make the vector environment that the configuration asks for by name, once, with one environment.

    What it raises by itself while it is made is left to the session, which keeps what is told.

    Raises:
        NoNativeFormError: there is none.
        EnvironmentFailure: it was not made within `step_timeout_s`.
        DigideepError: as `make_env`.
    """
    if config.backend in ("auto", "single"):
        return
    try:
        made = _made(dataclasses.replace(config, num_envs=1, act_groups=1), env, allowed=allowed)
    except EnvironmentFailure as error:
        if getattr(error, "ending", "error") == "hang":
            raise
        return
    with closing(made):
        return


def _against(config: ExplorerConfig, env: EnvConfig, *, allowed: Sequence[str]) -> str:
    """Return what speaks against a vector environment, as far as that is known without one; empty if nothing."""
    if config.num_workers != "auto":
        return f"num_workers is {config.num_workers} and not 'auto'"
    if config.num_envs < _ENOUGH:
        return f"there are fewer than {_ENOUGH} environments"
    for name in ("on_env_error", "on_nonfinite"):
        if getattr(config, name) != "stop":
            return f"{name} is {getattr(config, name)!r}, and a vector environment has no reset of one alone"
    planned = plan(env, allowed=allowed)
    return planned.reason or (lasting_obstacle(planned.registered) if config.exact else "")


def _native(config: ExplorerConfig, env: EnvConfig, *, allowed: Sequence[str], **options: Any) -> NativeVecEnv | None:
    """Return the vector environment that was asked for, or that the rule for "auto" takes; None for single ones."""
    if config.backend != "auto":
        if config.num_workers not in (0, "auto"):
            told = "num_workers: %d asked for, none taken: the back end %s steps in this process"
            logger.info(told, config.num_workers, config.backend)
        return _made(config, env, allowed=allowed, **options)
    reason = _against(config, env, allowed=allowed)
    if not reason:
        try:
            made = _made(config, env, allowed=allowed, **options)
        except NoNativeFormError as error:
            reason = error.found
        else:
            if not (config.exact and made.obstacle):
                why = "has a vector form" if made.obstacle else "has a vector form whose state is saved"
                logger.info("backend auto: native, since %s %s", env.model_name, why)
                return made
            reason = made.obstacle
            made.close()
    logger.info("backend auto: single, since %s", reason)
    return None


def _made(config: ExplorerConfig, env: EnvConfig, *, allowed: Sequence[str], **options: Any) -> NativeVecEnv:
    backend: Backend = "envpool" if config.backend == "envpool" else "native"
    return NativeVecEnv(
        env, num_envs=config.num_envs, backend=backend, allowed=allowed, step_timeout_s=config.step_timeout_s, **options
    )
