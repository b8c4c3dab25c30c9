"""Whether the slab of an explorer fits into memory, asked before anything of it is made."""

from __future__ import annotations

from collections.abc import Sequence

from digideep.environment.config import EnvConfig
from digideep.environment.make import describe_env
from digideep.environment.vec.slab import slab_bytes
from digideep.errors import UsageError
from digideep.spec import EnvSpec

__all__ = ["check_before", "check_size"]

_MANY = 1024  # environments: making one more to know their spaces costs nothing beside them
_NOTHING = EnvSpec("", {}, {})


def check_before(env: EnvConfig, *, num_envs: int, n_steps: int, allowed: Sequence[str], where: str) -> None:
    """Refuse what cannot fit before its environments are made; with many of them, one is made to know their spaces.

    Raises:
        UsageError: the slab takes more than the memory of the machine.
        DigideepError: as `describe_env`.
    """
    check_size(_NOTHING, num_envs=num_envs, n_steps=n_steps, where=where)
    if num_envs >= _MANY:
        check_size(describe_env(env, allowed=allowed), num_envs=num_envs, n_steps=n_steps, where=where)


def check_size(spec: EnvSpec, *, num_envs: int, n_steps: int, where: str) -> None:
    """Refuse a slab that takes more than the memory of the machine.

    Raises:
        UsageError: it does; the message, which begins with `where`, has both figures.
    """
    import psutil

    needed, there = slab_bytes(spec, num_envs=num_envs, n_steps=n_steps), psutil.virtual_memory().total
    if needed > there:
        raise UsageError(
            f"{where}: expected slabs that fit into memory ({there / 1e9:.1f} GB), found {needed / 1e9:.1f} GB "
            f"for num_envs={num_envs} and n_steps={n_steps}; lower them"
        )
