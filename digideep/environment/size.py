"""Whether the slab of an explorer fits into memory, asked before anything of it is made."""

from __future__ import annotations

from collections.abc import Sequence

from digideep.environment.config import EnvConfig, ExplorerConfig
from digideep.environment.trial import trial_spec
from digideep.environment.vec.slab import slab_bytes
from digideep.errors import UsageError
from digideep.spec import EnvSpec
from digideep.utility.memory_limit import memory_limit_bytes

__all__ = ["check_before", "check_size"]

_MANY = 1024  # environments: making one more to know their spaces costs nothing beside them
_NOTHING = EnvSpec("", {}, {})


def check_before(env: EnvConfig, explorer: ExplorerConfig, *, n_steps: int, allowed: Sequence[str], where: str) -> None:
    """Refuse what cannot fit before its environments are made; with many of them, one is made to know their spaces.

    Raises:
        UsageError: the slab takes more than the memory of the machine.
        DigideepError: as `trial_spec`.
    """
    num_envs = explorer.num_envs
    check_size(_NOTHING, num_envs=num_envs, n_steps=n_steps, where=where)
    if num_envs >= _MANY:
        spec = trial_spec(env, in_worker=False, step_timeout_s=explorer.step_timeout_s, allowed=allowed)
        check_size(spec, num_envs=num_envs, n_steps=n_steps, where=where)


def check_size(spec: EnvSpec, *, num_envs: int, n_steps: int, where: str) -> None:
    """Refuse a slab that takes more than the memory of the machine, or of the control group of this process.

    Raises:
        UsageError: it does; the message, which begins with `where`, has both figures.
    """
    needed, there = slab_bytes(spec, num_envs=num_envs, n_steps=n_steps), memory_limit_bytes()
    if needed > there:
        raise UsageError(
            f"{where}: expected slabs that fit into memory ({there / 1e9:.1f} GB), found {needed / 1e9:.1f} GB "
            f"for num_envs={num_envs} and n_steps={n_steps}; lower them"
        )
