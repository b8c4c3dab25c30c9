"""Which of the ways that give the same bits steps these environments fastest: measured once, with the reason logged."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from digideep.environment.config import EnvConfig, ExplorerConfig
from digideep.environment.vec.base import NOTHING, Forgiven, VecEnv, told_in
from digideep.environment.vec.process import ProcessVecEnv
from digideep.environment.vec.restart import RestartBudget
from digideep.environment.vec.serial import SerialVecEnv
from digideep.environment.vec.slab import RESET, RUN, Slab
from digideep.errors import EnvironmentFailure, NonFiniteError
from digideep.spec import ArraySpec
from digideep.utility.device import granted_cores
from digideep.utility.imports import BUILT_IN

__all__ = ["choose_workers", "make_vec_env", "measure", "resolve_workers"]

logger = logging.getLogger(__name__)

_WORTH = 1.1  # how much faster more processes must be: figures vary by as much from one moment to the next
_ROWS = 16


def make_vec_env(
    config: EnvConfig,
    *,
    num_envs: int,
    num_workers: int,
    allowed: Sequence[str] = BUILT_IN,
    render_mode: str | None = None,
    step_timeout_s: float = 300.0,
    forgiven: Forgiven = NOTHING,
    restarts: RestartBudget | None = None,
    on_stuck: Callable[[str], None] | None = None,
    mode: str = "train",
) -> VecEnv:
    """Return `num_envs` environments in `num_workers` processes; 0: in this one. Messages say the `mode`.

    Raises:
        EnvironmentFailure: one could not be made; its attribute `crash` is what is needed to see that again.
        DigideepError: as `make_env`.
    """
    common: dict[str, Any] = {
        "allowed": allowed, "step_timeout_s": step_timeout_s, "forgiven": forgiven, "mode": mode
    }  # fmt: skip
    try:
        if num_workers == 0:
            return SerialVecEnv(config, num_envs=num_envs, render_mode=render_mode, on_stuck=on_stuck, **common)
        return ProcessVecEnv(config, num_envs=num_envs, num_workers=num_workers, budget=restarts, **common)
    except EnvironmentFailure as error:
        told_in(mode, error)
        ending = getattr(error, "ending", "error")
        error.crash = {"phase": "init", "ending": ending, "timeout_s": step_timeout_s}  # type: ignore[attr-defined]
        raise


def resolve_workers(
    config: ExplorerConfig, env: EnvConfig, *, allowed: Sequence[str], is_measured: bool
) -> tuple[int, dict[str, int]]:
    """Return the number of workers, and by field what was measured because the configuration says "auto".

    Where nothing is to be measured, "auto" is this process; so it is where an environment fails while it is measured
    and the configuration forgives that.
    """
    if config.num_workers != "auto":
        if is_measured and config.num_workers > config.num_envs:
            told = (config.num_workers, config.num_envs, config.num_envs)
            logger.info("num_workers: %d asked for, %d taken, since there are %d environments", *told)
        return min(config.num_workers, config.num_envs), {}
    if not is_measured:
        return 0, {}
    try:
        chosen = choose_workers(env, num_envs=config.num_envs, allowed=allowed, step_timeout_s=config.step_timeout_s)
    except (EnvironmentFailure, NonFiniteError) as error:
        answer = config.on_env_error if isinstance(error, EnvironmentFailure) else config.on_nonfinite
        if answer != "reset":
            raise
        chosen = 0
        logger.info("num_workers auto: 0, since an environment failed while it was measured: %s", error)
    return chosen, {"num_workers": chosen}


def choose_workers(
    config: EnvConfig,
    *,
    num_envs: int,
    allowed: Sequence[str] = BUILT_IN,
    step_timeout_s: float = 300.0,
    seconds: float = 0.5,
) -> int:
    """Return the number of workers that steps `num_envs` environments fastest: 0, 2, or one for each core.

    More processes must be worth it: of two ways that are nearly as fast the one with fewer processes is taken.
    """
    cores = granted_cores()
    candidates = sorted({0, *(n for n in (2, cores) if 2 <= n <= min(num_envs, cores))})
    if len(candidates) == 1:
        logger.info("num_workers auto: 0, since there is one core or one environment")
        return 0
    figures: dict[int, float] = {}
    for num_workers in candidates:
        vec = make_vec_env(
            config, num_envs=num_envs, num_workers=num_workers, allowed=allowed, step_timeout_s=step_timeout_s
        )
        try:
            figures[num_workers] = measure(vec, seconds=seconds)
        finally:
            vec.close()
    choice = candidates[0]
    for num_workers in candidates[1:]:
        if figures[num_workers] > _WORTH * figures[choice]:
            choice = num_workers
    told = ", ".join(f"{n} workers {figure:,.0f}" for n, figure in figures.items())
    logger.info("num_workers auto: %d, measured with %d environments in steps/s: %s", choice, num_envs, told)
    return choice


def measure(vec: VecEnv, *, seconds: float) -> float:
    """Return how many environment steps a second `vec` makes with random actions."""
    slab = vec.attach(_ROWS)
    rng = np.random.default_rng(0)
    for slot, array in slab.actions.items():
        array[...] = _random_actions(vec.spec.actions[slot], array, rng)
    slab.next_seeds[:] = np.arange(vec.num_envs)
    slab.modes.fill(RESET)
    vec.reset(_ROWS)
    slab.modes.fill(RUN)
    _chunk(vec, slab)  # the first steps pay for what is made at first use
    chunks = 0
    start = perf_counter()
    while (elapsed := perf_counter() - start) < seconds or chunks == 0:
        _chunk(vec, slab)
        chunks += 1
    vec.collect()
    return chunks * _ROWS * vec.num_envs / elapsed


def _chunk(vec: VecEnv, slab: Slab) -> None:
    for t in range(slab.n_steps):
        vec.step(t)


def _random_actions(spec: ArraySpec, like: np.ndarray[Any, Any], rng: np.random.Generator) -> np.ndarray[Any, Any]:
    if spec.kind == "box":
        return np.asarray(rng.uniform(-1.0, 1.0, like.shape))
    high = 2 if spec.kind == "multi_binary" else np.asarray(spec.n).reshape(spec.shape)
    return np.asarray(rng.integers(0, high, like.shape))
