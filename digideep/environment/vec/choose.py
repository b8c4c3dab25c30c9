"""Environments, stepped as the configuration says or in the fastest way of those that give the same bits.

Which one that is is measured once, at the first start of a session; the figures go to the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from typing import Any

from digideep.environment.config import EnvConfig, ExplorerConfig
from digideep.environment.vec.base import NOTHING, Forgiven, VecEnv, told_in
from digideep.environment.vec.process import ProcessVecEnv
from digideep.environment.vec.restart import RestartBudget
from digideep.environment.vec.serial import SerialVecEnv
from digideep.environment.vec.ways import HERE, Trial, Way, candidates, compare, first_figure
from digideep.errors import EnvironmentFailure, NonFiniteError
from digideep.utility.device import granted_cores
from digideep.utility.imports import BUILT_IN

__all__ = ["choose_workers", "make_vec_env", "resolve_workers"]

logger = logging.getLogger(__name__)

_WORTH = 1.04  # how much faster more processes must be
_CHEAP_S = 20e-6  # a step of all environments that takes less is over before a worker has noticed that it is wanted
_LOOK_S = 0.02  # for the first figure
_COMPARE_S = 0.4  # for each comparison after it


def make_vec_env(
    config: EnvConfig,
    *,
    num_envs: int,
    num_workers: int,
    parent_steps: bool = False,
    act_groups: int = 1,
    allowed: Sequence[str] = BUILT_IN,
    render_mode: str | None = None,
    step_timeout_s: float = 300.0,
    forgiven: Forgiven = NOTHING,
    restarts: RestartBudget | None = None,
    on_stuck: Callable[[str], None] | None = None,
    mode: str = "train",
) -> VecEnv:
    """Return `num_envs` environments in `num_workers` processes; 0: in this one. Messages say the `mode`.

    Args:
        parent_steps, act_groups: see `ProcessVecEnv`; groups are made where the workers divide into them.

    Raises:
        EnvironmentFailure: one could not be made; its attribute `crash` is what is needed to see that again.
        DigideepError: as `make_env`.
    """
    common: dict[str, Any] = {
        "allowed": allowed, "step_timeout_s": step_timeout_s, "forgiven": forgiven, "mode": mode
    }  # fmt: skip
    has_groups = num_workers > 0 and num_workers % act_groups == 0 and not parent_steps
    try:
        if num_workers == 0:
            return SerialVecEnv(config, num_envs=num_envs, render_mode=render_mode, on_stuck=on_stuck, **common)
        return ProcessVecEnv(
            config, num_envs=num_envs, num_workers=num_workers, parent_steps=parent_steps, 
            act_groups=act_groups if has_groups else 1, budget=restarts, on_stuck=on_stuck, **common,
        )  # fmt: skip
    except EnvironmentFailure as error:
        told_in(mode, error)
        ending = getattr(error, "ending", "error")
        error.crash = {"phase": "init", "ending": ending, "timeout_s": step_timeout_s}  # type: ignore[attr-defined]
        raise


def resolve_workers(
    config: ExplorerConfig, env: EnvConfig, *, allowed: Sequence[str], mode: str, is_shown: bool = False
) -> tuple[Way, dict[str, Any]]:
    """Return how environments are stepped, and by field what was measured because the configuration says "auto".

    "auto" is this process where it is not for training, and where an environment fails while it is measured and the
    configuration forgives that. Environments that are shown, whose pictures belong to this process, always are.
    """
    if is_shown:
        return HERE, {}
    if config.num_workers != "auto":
        return _as_asked(config.num_workers, config, is_told=mode == "train"), {}
    if mode != "train":
        return HERE, {}
    figures: dict[str, float] = {}
    try:
        way, figures = choose_workers(
            env, num_envs=config.num_envs, 
            parent_steps=config.parent_steps is not False and config.act_groups == 1,
            allowed=allowed, step_timeout_s=config.step_timeout_s,
        )  # fmt: skip
    except (EnvironmentFailure, NonFiniteError) as error:
        answer = config.on_env_error if isinstance(error, EnvironmentFailure) else config.on_nonfinite
        if answer != "reset":
            raise
        way = HERE
        logger.info("num_workers auto: this process, since an environment failed while it was measured: %s", error)
    return way, {"num_workers": way.num_workers, "parent_steps": way.parent_steps, "env_steps_per_s": figures}


def _as_asked(num_workers: int, config: ExplorerConfig, *, is_told: bool) -> Way:
    """Return the way of a configuration that names a number of workers, none of which would be without a share."""
    parent_steps = config.parent_steps is True and num_workers > 0
    most = config.num_envs - parent_steps
    if is_told and num_workers > most:
        told = (num_workers, most, config.num_envs)
        logger.info("num_workers: %d asked for, %d taken, since there are %d environments", *told)
    taken = min(num_workers, most)
    return Way(taken, parent_steps and taken > 0)


def choose_workers(
    config: EnvConfig,
    *,
    num_envs: int,
    parent_steps: bool = True,
    allowed: Sequence[str] = BUILT_IN,
    step_timeout_s: float = 300.0,
) -> tuple[Way, dict[str, float]]:
    """Return the way that steps `num_envs` environments fastest, and by way the environment steps a second.

    More processes must be worth it: of two ways that are nearly as fast the one with fewer processes is taken. While
    two ways are compared there are twice as many environments.
    """
    cores = granted_cores()
    if cores == 1 or num_envs == 1:
        logger.info("num_workers auto: this process, since there is one core or one environment")
        return HERE, {}

    def start(way: Way, stack: ExitStack) -> Trial:
        vec = make_vec_env(
            config, num_envs=num_envs, num_workers=way.num_workers, parent_steps=way.parent_steps,
            allowed=allowed, step_timeout_s=step_timeout_s,
        )  # fmt: skip
        return Trial(stack.enter_context(closing(vec)))

    with ExitStack() as stack:
        here = start(HERE, stack)
        step_s = first_figure(here, seconds=_LOOK_S)
        speed = {HERE: 1.0}
        if step_s >= _CHEAP_S:
            for way in candidates(num_envs=num_envs, cores=cores, step_s=step_s, parent_steps=parent_steps):
                with ExitStack() as inner:
                    speed[way] = compare(here, start(way, inner), seconds=_COMPARE_S)
    choice = HERE
    for way, figure in speed.items():
        if figure > _WORTH * speed[choice]:
            choice = way
    # The load of the machine may have changed between two comparisons: what was found within one is comparable.
    figures = {str(way): round(figure * num_envs / step_s, 1) for way, figure in speed.items()}
    told = ", ".join(f"{way} {figure:,.0f}" for way, figure in figures.items())
    logger.info("num_workers auto: %s, measured with %d environments in steps/s: %s", choice, num_envs, told)
    return choice, figures
