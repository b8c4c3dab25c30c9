"""The vector form that an environment itself has, found by its registration and made."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec as Registration
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from digideep.environment.atari import preprocessed
from digideep.environment.config import EnvConfig
from digideep.environment.make import arguments, created, parameters_of, prepare
from digideep.environment.spaces import action_slots, observation_slots
from digideep.environment.vec import native_state
from digideep.environment.vec.native_atari import atari_options, with_ale
from digideep.environment.vec.native_envpool import make_envpool
from digideep.environment.vec.native_wrappers import BatchWrapper, FirstOfStack, unknown_wrapper, wrap_batch
from digideep.environment.wrappers.config import WrapperConfig
from digideep.environment.wrappers.wrap import wrapper_configs
from digideep.errors import EnvironmentFailure, UsageError
from digideep.spec import EnvSpec
from digideep.types import Progress
from digideep.utility.device import granted_cores
from digideep.utility.imports import BUILT_IN

__all__ = ["Backend", "NativeForm", "NoNativeFormError", "Plan", "lasting_obstacle", "make_form", "plan"]

Backend: TypeAlias = Literal["native", "envpool"]


class NoNativeFormError(UsageError):
    """An environment has no vector form that keeps to the rule of episodes, or none for what was asked: as `found`."""

    def __init__(self, found: str, *, backend: Backend = "native") -> None:
        super().__init__(
            f"/explorer/train/backend: expected an environment that {backend!r} can step, found that {found}; "
            f"use 'single'"
        )
        self.found = found


class NativeForm:
    """A vector environment and what is known of it.

    Args:
        env: has `reset(seed=...)`, `step(actions)` and `close()` as `gymnasium.vector.VectorEnv`, and resets an
            environment in the step after its last one.
        id: of one environment.
        made_with: its arguments, by which a state knows that it fits.
        max_episode_steps: time limit of one environment.
        obstacle: why a state cannot be saved, or an empty text.

    Attributes:
        env, obstacle, spec: as above; `spec` is that of one environment.
        observation_space, action_space: of one environment.
        has_one_generator: whether one seed is for all environments.
        keeps_actions: whether it could change or keep the array of actions that it is given.
    """

    def __init__(
        self, env: Any, *, id: str, made_with: Mapping[str, Any], max_episode_steps: int | None, obstacle: str
    ) -> None:
        self.env = env
        self.obstacle = obstacle
        self.observation_space, self.action_space = env.single_observation_space, env.single_action_space
        self.spec = EnvSpec(
            id=id,
            observations=observation_slots(self.observation_space, id=id),
            actions=action_slots(self.action_space, id=id),
            max_episode_steps=max_episode_steps,
        )
        self._wrappers: list[BatchWrapper] = []
        while isinstance(env, BatchWrapper):
            self._wrappers.append(env)
            env = env.env
        self._bare = env
        self._made_with = made_with
        self._takes_array = type(env).__module__.startswith("ale_py.")
        self.has_one_generator = not (self._takes_array or isinstance(env, SyncVectorEnv))
        self.keeps_actions = not native_state.is_cartpole(env)
        if native_state.is_cartpole(env):
            # Whoever acts has checked the actions; a second look costs a sixth of the step.
            env.action_space.contains = _accepted

    def reset(self, seeds: Sequence[int] | None) -> Any:
        """Begin an episode everywhere and return (observations, infos); without seeds generators go on."""
        if seeds is None:
            return self.env.reset()
        if self.has_one_generator:
            return self.env.reset(seed=int(seeds[0]))
        return self.env.reset(seed=np.asarray(seeds) if self._takes_array else list(seeds))

    def capture(self) -> dict[str, Any] | None:
        """Return the state of all environments as plain data; None where they have none just now."""
        record = native_state.capture(self._bare, id=self.spec.id, made_with=self._made_with)
        if record is None:
            return None
        layers = [{"name": type(layer).__name__, "own": layer.get_state()} for layer in self._wrappers]
        return {**record, "layers": layers}

    def mismatch(self, record: Mapping[str, Any]) -> str:
        """Return why a state is not one of these environments; empty if it is."""
        reason = native_state.mismatch(record, id=self.spec.id, made_with=self._made_with)
        names, saved = [type(one).__name__ for one in self._wrappers], [one["name"] for one in record["layers"]]
        return reason or ("" if names == saved else f"{self.spec.id}: expected the layers {names}, found {saved}")

    def restore(self, record: Mapping[str, Any]) -> None:
        """Go where `capture` was called."""
        self.env.reset(seed=0)
        native_state.restore(self._bare, record)
        for layer, saved in zip(self._wrappers, record["layers"], strict=True):
            layer.set_state(saved["own"])

    def close(self) -> None:
        """Close the vector environment."""
        self.env.close()

    def set_progress(self, progress: Progress) -> None:
        """Hand the progress to an environment that asks for it."""
        bare = self._bare
        if isinstance(bare, SyncVectorEnv):
            for env in bare.envs:
                if env.has_wrapper_attr("set_progress"):
                    env.get_wrapper_attr("set_progress")(progress._asdict())
        elif callable(getattr(bare, "set_progress", None)):
            bare.set_progress(progress._asdict())


class Plan(NamedTuple):
    """How a vector form would be made, or the `reason` why it cannot be."""

    registered: Registration
    kwargs: dict[str, Any]
    wrappers: list[WrapperConfig]
    is_one_picture: bool = False
    reason: str = ""


def plan(config: EnvConfig, *, allowed: Sequence[str] = BUILT_IN) -> Plan:
    """Return how the environment's own vector form would be made, as far as its registration tells.

    Raises:
        DigideepError: as `make_env`.
    """
    registered = prepare(config, allowed=allowed)
    configs = wrapper_configs(config.wrappers, allowed=allowed)
    planned = Plan(registered, arguments(config), configs)
    if registered.vector_entry_point is None:
        return planned._replace(reason=f"{registered.id} has no vector form of its own")
    if registered.additional_wrappers:
        return planned._replace(reason=f"{registered.id} is registered with wrappers, which no vector form takes")
    if _is_ale(registered):
        options = atari_options(configs, stacks=False)
        if options is None:
            return planned._replace(reason=f"the vector form of {registered.id} needs AtariPreprocessingConfig")
        preprocessed(registered, options.preprocessing, kwargs=planned.kwargs)  # refuses arguments that it decides
        built_in = with_ale(options, num_threads=granted_cores())
        planned = Plan(registered, {**planned.kwargs, **built_in}, options.rest, is_one_picture=True)
    if config.max_episode_steps is not None:
        planned.kwargs["max_episode_steps"] = config.max_episode_steps
    return planned._replace(reason=_unknown(planned))


def lasting_obstacle(registered: Registration) -> str:
    """Return why no vector form of an environment can save its state, where that is known without making one."""
    if _is_ale(registered):
        return f"{registered.id} has no state to save in its vector form, which is ale-py's"
    return ""


def _unknown(planned: Plan) -> str:
    registered = planned.registered
    wrapper = unknown_wrapper(planned.wrappers)
    if wrapper:
        return f"{wrapper} has no form for vector environments"
    entry = registered.vector_entry_point
    taken = created(lambda: parameters_of(entry), registered=registered, kwargs={}, entry=None)
    given = {*registered.kwargs, *planned.kwargs}
    if registered.max_episode_steps is not None:
        given.add("max_episode_steps")
    unknown = sorted(given - set(taken)) if taken is not None else []
    return f"the vector form of {registered.id} takes no {unknown[0]}" if unknown else ""


def _is_ale(registered: Registration) -> bool:
    entry = registered.vector_entry_point
    return isinstance(entry, str) and entry.startswith("ale_py.")


def make_form(
    config: EnvConfig, *, num_envs: int, backend: Backend = "native", allowed: Sequence[str] = BUILT_IN
) -> NativeForm:
    """Return `num_envs` environments in one vector environment, not reset yet.

    Raises:
        NoNativeFormError: there is none, or it resets in another way than in the step after the last one.
        DigideepError: as `make_env`.
    """
    limit = config.max_episode_steps or prepare(config, allowed=allowed).max_episode_steps
    if backend == "envpool":
        pool = make_envpool(config, num_envs=num_envs, limit=limit, allowed=allowed)
        if pool.reason:
            raise NoNativeFormError(pool.reason, backend="envpool")
        bare, wrappers, made_with = pool.env, pool.wrappers, {}
        obstacle = f"{config.model_name} has no state to save: none of EnvPool's environments can be reached"
    else:
        planned = plan(config, allowed=allowed)
        if planned.reason:
            raise NoNativeFormError(planned.reason)
        bare = _next_step(planned, num_envs=num_envs)
        found = _unlike(bare, num_envs=num_envs)
        if found:
            bare.close()
            raise EnvironmentFailure(f"environment {config.model_name}: {found}")
        wrappers, made_with = planned.wrappers, {**planned.registered.kwargs, **planned.kwargs}
        obstacle = lasting_obstacle(planned.registered) or native_state.obstacle(bare, id=config.model_name)
        if planned.is_one_picture:
            bare = FirstOfStack(bare)
    try:
        env = wrap_batch(bare, wrappers)
        return NativeForm(env, id=config.model_name, made_with=made_with, max_episode_steps=limit, obstacle=obstacle)
    except BaseException:
        bare.close()
        raise


def _unlike(env: Any, *, num_envs: int) -> str:
    """Return what a vector environment lacks, which only its class annotates; empty if nothing."""
    for name in ("num_envs", "single_observation_space", "single_action_space"):
        if not hasattr(env, name):
            return f"expected {name!r} in its vector form, found none; set it in its __init__"
    if env.num_envs != num_envs:
        return f"expected {num_envs} environments in its vector form, found {env.num_envs}"
    return ""


def _next_step(planned: Plan, *, num_envs: int) -> Any:
    """Return the vector environment, which resets in the step after the last one; asked to where it does not."""
    kwargs = planned.kwargs
    env = _made(planned.registered, kwargs, num_envs=num_envs)
    mode = env.metadata.get("autoreset_mode")
    if mode is AutoresetMode.NEXT_STEP:
        return env
    env.close()
    entry: Any = planned.registered.vector_entry_point
    creator = gymnasium.envs.registration.load_env_creator(entry) if isinstance(entry, str) else entry
    if "autoreset_mode" in inspect.signature(creator).parameters:
        env = _made(planned.registered, {**kwargs, "autoreset_mode": AutoresetMode.NEXT_STEP}, num_envs=num_envs)
        mode = env.metadata.get("autoreset_mode")
        if mode is AutoresetMode.NEXT_STEP:
            return env
        env.close()
    name, kind = mode.name if isinstance(mode, AutoresetMode) else "none", type(env).__name__
    raise NoNativeFormError(f"{kind} declares {name} as metadata['autoreset_mode'], which is not NEXT_STEP")


def _made(registered: Registration, kwargs: dict[str, Any], *, num_envs: int) -> Any:
    return created(
        lambda: gymnasium.make_vec(
            registered.id, num_envs=num_envs, vectorization_mode="vector_entry_point", **kwargs
        ),
        registered=registered, kwargs=kwargs, entry=registered.vector_entry_point,
    )  # fmt: skip


def _accepted(actions: Any) -> bool:
    return True
