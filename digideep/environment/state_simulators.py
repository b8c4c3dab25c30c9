"""States of simulators that have a way of their own to be saved: MuJoCo below Gymnasium, and below dm_control."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from digideep.environment.state_plain import NotPlainError, attributes, pack, set_attributes, unpack
from digideep.errors import CheckpointError

__all__ = ["Adapter", "adapter_of"]


def _no_obstacle(env: Any) -> str:
    return ""


class Adapter(NamedTuple):
    """How the state of one kind of environment is read and written.

    Attributes:
        get_state: returns it as `pack` writes it; raises NotPlainError where it has none just now.
        set_state: puts it into an environment that was reset once; raises CheckpointError where it does not fit.
        obstacle: returns why there is none, whatever happens; empty if there is one.
    """

    get_state: Callable[[Any], dict[str, Any]]
    set_state: Callable[[Any, Mapping[str, Any]], None]
    obstacle: Callable[[Any], str] = _no_obstacle


# What environments read before the next step computes it anew: without them the first reward after it is another.
_DERIVED = (
    "xpos xquat xipos ximat xmat cinert cvel cfrc_ext qfrc_actuator subtree_com site_xpos geom_xpos sensordata "
    "actuator_force qacc"
).split()

# What the constructor makes again, beside the simulator.
_MADE = frozenset(
    "model data mujoco_renderer init_qpos init_qvel frame_skip fullpath width height camera_id camera_name "
    "observation_structure _ezpickle_args _ezpickle_kwargs".split()
)

# What tasks of dm_control change in their model when an episode begins: targets, terrain, lights, joints.
_MOVED = (
    "body_pos body_quat geom_pos geom_quat geom_size site_pos site_quat site_size light_pos cam_pos wrap_prm "
    "dof_damping jnt_stiffness hfield_data"
).split()


def adapter_of(layer: gymnasium.Env[Any, Any]) -> Adapter | None:
    """Return how the state of an environment is saved; None where nothing is known of its kind."""
    module = type(layer).__module__
    if module.startswith("gymnasium.envs.mujoco."):
        return _MUJOCO
    if module == "shimmy.dm_control_compatibility":
        return _DM_CONTROL
    return None


def _physics(model: Any, data: Any) -> dict[str, Any]:
    """Return what the next step of a simulator depends on, and what is derived from it."""
    import mujoco

    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    numbers = np.empty(mujoco.mj_stateSize(model, kind))
    mujoco.mj_getState(model, data, numbers, kind)
    return {"numbers": numbers, "derived": {name: getattr(data, name).copy() for name in _DERIVED}}


def _set_physics(model: Any, data: Any, saved: Mapping[str, Any], *, forward: bool) -> None:
    """Write what `_physics` returned; with `forward` all else that the simulator computes is computed from it."""
    import mujoco

    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    mujoco.mj_setState(model, data, saved["numbers"], kind)
    if forward:
        mujoco.mj_forward(model, data)
        mujoco.mj_setState(model, data, saved["numbers"], kind)  # what a solver begins with was changed
    _write(data, saved["derived"], known=_DERIVED)


def _write(target: Any, arrays: Mapping[str, Any], *, known: list[str]) -> None:
    for name in known:
        array, value = getattr(target, name), arrays.get(name)
        if not isinstance(value, np.ndarray) or (value.shape, value.dtype) != (array.shape, array.dtype):
            raise CheckpointError(
                f"environment state: expected {name} {array.shape} of {array.dtype}, found something else"
            )
        array[...] = value


def _get_mujoco(env: Any) -> dict[str, Any]:
    return {"attributes": attributes(env, without=_MADE), "physics": _physics(env.model, env.data)}


def _set_mujoco(env: Any, saved: Mapping[str, Any]) -> None:
    set_attributes(env, saved["attributes"], without=_MADE)
    _set_physics(env.model, env.data, saved["physics"], forward=False)


_MUJOCO = Adapter(_get_mujoco, _set_mujoco)


def _dm_obstacle(env: Any) -> str:
    inner = env._env
    if type(inner).__module__ != "dm_control.rl.control":
        return f"{type(env).__name__} holds a {type(inner).__module__}.{type(inner).__qualname__}"
    try:
        _task_attributes(inner.task)
    except NotPlainError as error:
        return str(error)
    return ""


def _get_dm(env: Any) -> dict[str, Any]:
    inner = env._env
    model, data = inner.physics.model.ptr, inner.physics.data.ptr
    return {
        "task": _task_attributes(inner.task),
        "steps": inner._step_count,
        "over": inner._reset_next_step,
        "model": {name: getattr(model, name).copy() for name in _MOVED},
        "physics": _physics(model, data),
    }


def _set_dm(env: Any, saved: Mapping[str, Any]) -> None:
    inner = env._env
    steps, over, task = saved["steps"], saved["over"], saved["task"]
    expected = _task_attributes(inner.task).keys()
    if not isinstance(steps, int) or not isinstance(over, bool) or task.keys() != expected:
        raise CheckpointError("environment state: expected that of a task of dm_control, found something else")
    for name, value in task.items():
        setattr(inner.task, name, unpack(value))
    model, data = inner.physics.model.ptr, inner.physics.data.ptr
    _write(model, saved["model"], known=_MOVED)
    _set_physics(model, data, saved["physics"], forward=True)
    inner._step_count, inner._reset_next_step = steps, over


def _task_attributes(task: Any) -> dict[str, Any]:
    """Return what a task remembers, its random generator included."""
    name = type(task).__name__
    return {key: pack(value, path=f"{name}.{key}") for key, value in vars(task).items()}


_DM_CONTROL = Adapter(_get_dm, _set_dm, _dm_obstacle)
