"""Environments from their configuration, with every mistake a user can make told in one line."""

from __future__ import annotations

import inspect
import logging
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import gymnasium

from digideep.environment.atari import preprocessed, silence_games
from digideep.environment.config import EnvConfig
from digideep.environment.drawing import draw_without_display, require_drawing
from digideep.environment.families import (
    Family,
    family_of_id,
    family_of_module,
    family_of_registration,
    is_lacking,
    missing_extra,
    modern_id,
    names_a_module,
)
from digideep.environment.spaces import env_spec
from digideep.environment.state_replay import record_for_replay
from digideep.environment.vec.hang import Hang, let_ctrl_c_out
from digideep.environment.wrappers.config import AtariPreprocessingConfig
from digideep.environment.wrappers.wrap import wrap, wrapper_configs
from digideep.errors import DigideepError, EnvironmentFailure, MissingExtraError, UsageError, one_line
from digideep.spec import EnvSpec
from digideep.utility.imports import BUILT_IN, ENVIRONMENT_PACKAGES, import_module
from digideep.utility.node import nearest

__all__ = [
    "arguments", "created", "describe_env", "logged_warnings", "make_env", "parameters_of", "preload", "prepare",
    "reported", "unknown_to_workers",
]  # fmt: skip

T = TypeVar("T")

logger = logging.getLogger(__name__)

_told: set[str] = set()
_UNREGISTERED = "is registered"
_MOST_TOLD = 1000
# What users cannot change, in EnvPool, a model of Gymnasium's, and SWIG; and whoever needs a window is told.
_NOISE = (
    "Box high's precision lowered",
    "Box low's precision lowered",
    "builtin type ",
    "compiler attribute 'settotalmass' is deprecated",
    "(65550) b'X11: The DISPLAY environment variable is missing",
)
_TIME = re.compile(r"Time = \S+")  # MuJoCo says when, which makes another text of each warning
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


_RESERVED = {
    "id": "/env/model_name",
    "max_episode_steps": "/env/max_episode_steps",
    "disable_env_checker": "nothing: the checker is 'python -m digideep.environment.check'",
}


def make_env(
    config: EnvConfig, *, allowed: Iterable[str] = BUILT_IN, render_mode: str | None = None
) -> gymnasium.Env[Any, Any]:
    """Return the environment that `config` describes, not reset yet.

    Args:
        config: id, module, keyword arguments and time limit.
        allowed: packages that somebody has vouched for; those of `ENVIRONMENT_PACKAGES` are added.
        render_mode: as Gymnasium has it; None shows nothing.

    Raises:
        UsageError: no such id, no such module, or a keyword argument that the environment does not take.
        TrustError: the module is not below one of the `allowed` packages.
        MissingExtraError: a package is not installed; the message has the command that installs it.
        EnvironmentFailure: the environment raised while it was made.
    """
    if render_mode == "rgb_array":
        draw_without_display()  # what draws is chosen when it is imported
    registered = made = prepare(config, allowed=allowed)
    listed = config.wrappers_path
    wrappers = wrapper_configs(config.wrappers, where=listed, allowed=allowed)
    kwargs = arguments(config)
    first = wrappers[0] if wrappers else None
    if isinstance(first, AtariPreprocessingConfig):
        made, wrappers = preprocessed(registered, first, kwargs=kwargs, where=listed), wrappers[1:]
    if render_mode is not None:
        kwargs["render_mode"] = render_mode
        require_drawing(registered, render_mode)

    def create() -> gymnasium.Env[Any, Any]:
        _import_entry(made)
        env: gymnasium.Env[Any, Any] = gymnasium.make(
            registered.id if made is registered else made,
            max_episode_steps=config.max_episode_steps,
            disable_env_checker=True,
            **kwargs,
        )
        return wrap(env, wrappers, where=listed, first=len(config.wrappers) - len(wrappers), allowed=allowed)

    return record_for_replay(created(create, registered=registered, kwargs=kwargs, entry=made.entry_point))


def arguments(config: EnvConfig) -> dict[str, Any]:
    """Return the keyword arguments of the environment.

    Raises:
        UsageError: one of them is not the environment's but Gymnasium's.
    """
    kwargs = dict(config.env_kwargs)
    for name, instead in _RESERVED.items():
        if name in kwargs:
            raise UsageError(f"/env/env_kwargs: expected arguments of the environment, found {name!r}; use {instead}")
    return kwargs


def created(
    create: Callable[[], T], *, registered: gymnasium.envs.registration.EnvSpec, kwargs: dict[str, Any], entry: Any
) -> T:
    """Return what `create` makes of a registration; what it raises is told as `make_env` does.

    Args:
        create: makes it.
        registered: of which id.
        kwargs: with which arguments.
        entry: what takes them, or its name.
    """
    with logged_warnings():
        try:
            return create()
        except (DigideepError, Hang):
            raise
        except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
            raise _missing_package(registered, error) from error
        except BaseException as error:
            let_ctrl_c_out(error)
            raise _failed(registered, kwargs, error, entry=entry) from error


def describe_env(config: EnvConfig, *, allowed: Iterable[str] = BUILT_IN) -> EnvSpec:
    """Return what the environment shows and takes, in its own units; makes one and closes it.

    Raises:
        SpaceError: one of its spaces fits in no slot.
        DigideepError: as `make_env`.
    """
    env = make_env(config, allowed=allowed)
    try:
        return env_spec(env, id=config.model_name)
    finally:
        env.close()


@contextmanager
def reported(name: str) -> Iterator[None]:
    """Turn what the environment called `name` raises inside the block into one line.

    Raises:
        EnvironmentFailure: anything but an error of digideep's own was raised.
        MissingExtraError: what draws an environment is not installed.
    """
    try:
        yield
    except DigideepError:
        raise
    except gymnasium.error.DependencyNotInstalled as error:
        hint = 'pip install "digideep[video]"'
        raise MissingExtraError(f"environment {name}: {one_line(error, limit=300)}; {hint}") from error
    except (Exception, SystemExit) as error:
        text = f"{type(error).__name__}: {one_line(error, limit=500)}"
        raise EnvironmentFailure(f"environment {name} raised {text}") from error


def prepare(config: EnvConfig, *, allowed: Iterable[str] = BUILT_IN) -> gymnasium.envs.registration.EnvSpec:
    """Import what registers the environment and return its registration; nothing is made.

    Raises:
        UsageError: there is no such id or module; the message names the nearest id.
        TrustError, MissingExtraError: as `make_env`.
    """
    consent = (*allowed, *ENVIRONMENT_PACKAGES)
    if config.from_module is not None:
        _import(config.from_module, where="/env/from_module", allowed=consent, name=config.model_name)
    module, separator, name = config.model_name.rpartition(":")
    if separator:
        _import(module, where="/env/model_name", allowed=consent, name=config.model_name)
    return _registration(name)


def preload(config: EnvConfig, *, allowed: Iterable[str] = BUILT_IN) -> None:
    """Do what `prepare` does, and import the environment's own module, so that making one is no matter of imports.

    Raises:
        DigideepError: as `prepare`.
    """
    registered = prepare(config, allowed=allowed)
    # What goes wrong here goes wrong again where one is made, and is told there.
    with logged_warnings(), suppress(Exception, SystemExit):
        _import_entry(registered)


def _import_entry(registered: gymnasium.envs.registration.EnvSpec) -> None:
    """Import the environment's own module; what it simulates with can be listened to from then on."""
    if isinstance(registered.entry_point, str):
        gymnasium.envs.registration.load_env_creator(registered.entry_point)
        _listen_to_mujoco()


def _import(module: str, *, where: str, allowed: Iterable[str], name: str) -> None:
    """Import a module for the environment called `name`; one that an extra brings is told with the extra."""
    family = family_of_module(module)
    if family is not None and family.extra == "dm":
        draw_without_display()  # which draws is chosen at this import, and one of its worlds needs it to simulate
    try:
        with logged_warnings():
            import_module(module, where=where, allowed=allowed)
        if family is not None and family.extra == "atari":
            silence_games()
    except UsageError as error:
        if family is None or not is_lacking(error.__cause__):
            raise
        raise missing_extra(name, family, where=where, error=error.__cause__) from error


def _registration(name: str) -> gymnasium.envs.registration.EnvSpec:
    where = "/env/model_name"
    try:
        namespace, base, version = gymnasium.envs.registration.parse_env_id(name)
    except gymnasium.error.Error:
        found = repr(one_line(name, limit=80))
        raise UsageError(f"{where}: expected an id such as 'CartPole-v1', found {found}; check its spelling") from None
    registry = gymnasium.registry
    family = family_of_id(name)
    if name not in registry and family is not None:
        _import(family.packages[0], where=where, allowed=ENVIRONMENT_PACKAGES, name=name)
    if name in registry:
        return registry[name]
    today = modern_id(name)
    if today is not None:
        raise UsageError(f"{where}: expected an id that is registered, found {name!r}, which is not; use {today!r}")
    if family is not None and not _is_brought(family):
        raise missing_extra(name, family, where=where)
    latest = gymnasium.envs.registration.find_highest_version(namespace, base)
    if latest is None:
        known = nearest(name, registry)
        hint = (
            known
            if known.startswith("; did")
            else "; 'python -m digideep.environment.play --list-include .' lists them"
        )
        found = f"no environment {one_line(name, limit=80)!r} {_UNREGISTERED}"
        raise UsageError(f"{where}: expected a registered environment, found that {found}{hint}")
    newest = gymnasium.envs.registration.get_env_id(namespace, base, latest)
    if version is None:
        if name not in _told:
            _told.add(name)
            logger.warning("/env/model_name: %r has no version, taking %r", name, newest)
        return registry[newest]
    state = "an old version that is gone" if version < latest else "not registered"
    raise UsageError(f"{where}: expected a registered version, found {name!r}, which is {state}; use {newest!r}")


def unknown_to_workers(config: EnvConfig, error: UsageError) -> UsageError | None:
    """Return the error for an id that this process knows and a worker, which raised `error`, does not; None for others.

    A notebook, or a file of parameters, may register an environment that nothing registers in another process.
    """
    if _UNREGISTERED not in str(error) or config.model_name not in gymnasium.registry:
        return None
    return UsageError(
        f"/env/from_module: expected the module that registers {one_line(config.model_name, limit=80)!r}, found none; "
        f"name it, since a worker is a process of its own, or use num_workers=0"
    )


def _is_brought(family: Family) -> bool:
    """Whether a package has registered any environment of its family."""
    return any(re.match(family.ids, name) for name in gymnasium.registry)


def _missing_package(registered: gymnasium.envs.registration.EnvSpec, error: Exception) -> DigideepError:
    """Return the error that names the extra; an import that fails inside the user's own module is his to see."""
    family, missing = family_of_registration(registered), getattr(error, "name", None)
    newest = gymnasium.envs.registration.find_highest_version(registered.namespace, registered.name)
    is_old = registered.version is not None and newest is not None and newest > registered.version
    if family is not None and not (is_old and not names_a_module(error)):
        return missing_extra(registered.id, family, where="/env/model_name", error=error)
    if isinstance(error, ModuleNotFoundError) and missing:
        return MissingExtraError(
            f"/env/model_name: expected all that it imports, found that {registered.id!r} needs the module "
            f"{missing!r}; install it"
        )
    if is_old:
        use = gymnasium.envs.registration.get_env_id(registered.namespace, registered.name, newest)
        return UsageError(
            f"/env/model_name: expected a version that works, found {registered.id!r}, which is an old version that is "
            f"gone; use {use!r}"
        )
    return UsageError(
        f"/env/model_name: expected that {registered.id!r} can be made, found {one_line(error, limit=300)}; "
        f"install what it needs"
    )


def _failed(
    registered: gymnasium.envs.registration.EnvSpec, kwargs: dict[str, Any], error: BaseException, *, entry: Any
) -> DigideepError:
    taken = parameters_of(entry)
    unknown = [name for name in kwargs if taken is not None and name not in taken]
    if unknown == ["render_mode"]:
        return UsageError(
            f"/env/model_name: expected an environment that can be shown, found that {registered.id} cannot be "
            f"rendered; it takes no render_mode"
        )
    if unknown:
        found = f"that {registered.id} takes no argument {one_line(unknown[0], limit=80)!r}"
        return UsageError(
            f"/env/env_kwargs: expected arguments that it takes, found {found}{nearest(unknown[0], taken or ())}"
        )
    if isinstance(error, TypeError) and "required" in str(error) and "argument" in str(error):
        found = f"that {registered.id} says: {one_line(error, limit=300)}"
        return UsageError(f"/env/env_kwargs: expected every argument that it needs, found {found}; add it")
    given = f" with env_kwargs {one_line(kwargs, limit=200)}" if kwargs else ""
    return EnvironmentFailure(
        f"environment {registered.id}: making it{given} raised {type(error).__name__}: {one_line(error, limit=500)}"
    )


def parameters_of(entry: Any) -> list[str] | None:
    """Return the names of the arguments that an entry point, or one of that name, takes; None where it takes any."""
    if entry is None:
        return None
    creator: Any = gymnasium.envs.registration.load_env_creator(entry) if isinstance(entry, str) else entry
    parameters = inspect.signature(creator).parameters.values()
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
        return None
    return [p.name for p in parameters]


@contextmanager
def logged_warnings() -> Iterator[None]:
    """Send the warnings of an environment and of Gymnasium to the log, where they neither raise nor clutter stderr.

    MuJoCo's go there from then on: it would print them, and write MUJOCO_LOG.TXT into the current directory.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _listen_to_mujoco()
        try:
            yield
        finally:
            _listen_to_mujoco()
    for warning in caught:
        _tell(str(warning.message))


def _listen_to_mujoco() -> None:
    """Have MuJoCo, where it is imported, hand its warnings on, unless a user listens; dm_control would print them."""
    mujoco = sys.modules.get("mujoco")
    if mujoco is None:
        return
    listener = mujoco.get_mju_user_warning()
    if listener is None or type(listener).__module__ == "ctypes":  # as that of dm_control is
        mujoco.set_mju_user_warning(_tell)


def _tell(text: str) -> None:
    text = _COLOUR.sub("", text).removeprefix("WARN: ")
    said = _TIME.sub("", text)
    if said.startswith(_NOISE) or said in _told:
        return
    if len(_told) < _MOST_TOLD:
        _told.add(said)  # every environment of a process says the same
        logger.warning("environment: %s", one_line(text, limit=500))
