"""The episode of an environment up to the step at which it failed, as a file that walks there again.

`crash/crash.json` holds one JSON object:

    format, version   "digideep-crash", 1
    env               node of the environment's configuration
    mode, worker, env_index, episode, step      where it happened, for the reader
    phase             "init", "reset", "step" or "close": the call that failed, or whose result could not be used
    seed              what the episode's reset got, or null
    rng               state of the environment's generator before that reset, or null where a seed was given
    actions           by slot the raw actions of the episode, the failing one last, as nested lists
    error             type and text of the error
    ending            "error" (raised, or a result that could not be used), "death" of the process, or "hang"
    timeout_s         after which a call counts as one that does not come back, or null

Numbers that JSON lacks are written as the strings "nan", "inf" and "-inf".
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeAlias

import numpy as np

from digideep.environment.config import EnvConfig
from digideep.environment.examine import Probe
from digideep.environment.make import make_env
from digideep.environment.spaces import env_spec
from digideep.environment.vec.hang import Hang, HangWatch
from digideep.errors import EnvironmentFailure, NotReproducibleError, UsageError, one_line
from digideep.spec import EnvSpec
from digideep.utility.imports import BUILT_IN
from digideep.utility.node import configure, node
from digideep.utility.seeding import set_generator_state

__all__ = ["CRASH_FILE", "Crash", "read_crash", "replay_crash", "write_crash"]

Array: TypeAlias = np.ndarray[Any, Any]

CRASH_FILE = "crash.json"
_FORMAT = "digideep-crash"
_VERSION = 1
_LIMIT_BYTES = 256 * 2**20
_PHASES = ("init", "reset", "step", "close")
_ENDINGS = ("error", "death", "hang")
_TIMEOUT_S = 300.0
_LONGEST_S = 1e6


class Crash(NamedTuple):
    """What is needed to walk to a failure; `actions` are raw, `[T, ...]` by slot."""

    env: Mapping[str, Any]
    phase: str
    error: str
    seed: int | None = None
    rng: Mapping[str, Any] | None = None
    actions: Mapping[str, Array] = {}
    mode: str = "train"
    worker: int = 0
    env_index: int = 0
    episode: int = 0
    step: int = 0
    ending: str = "error"
    timeout_s: float | None = None


def write_crash(directory: Path, config: EnvConfig, *, phase: str, error: BaseException | str, **place: Any) -> Path:
    """Write `crash.json` into `directory`, which is made, and return its path; the file is there whole or not at all.

    Args:
        directory: of the session's crash.
        config: of the environment.
        phase: `init`, `reset`, `step` or `close`.
        error: what was raised.
        place: other fields of `Crash`: `seed`, `rng`, `actions`, `mode`, `worker`, `env_index`, `episode`, `step`,
            `ending`, `timeout_s`.
    """
    text = error if isinstance(error, str) else f"{type(error).__name__}: {one_line(error)}"
    fields = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    crash = Crash(env=node(EnvConfig, **fields), phase=phase, error=one_line(text), **place)
    record = {"format": _FORMAT, "version": _VERSION, **crash._asdict()}
    record["actions"] = {slot: _written(np.asarray(array).tolist()) for slot, array in crash.actions.items()}
    record["rng"] = None if crash.rng is None else _written(_lists(crash.rng))
    directory.mkdir(exist_ok=True)
    path = directory / CRASH_FILE
    temporary = directory / f".{CRASH_FILE}.{os.getpid()}"
    try:
        temporary.write_text(json.dumps(record, allow_nan=False) + "\n", encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)  # what a full disk has taken of it
    return path


def read_crash(directory: Path) -> Crash:
    """Return the crash that lies in `directory`, or in the `crash` directory of the session there.

    Raises:
        UsageError: there is none, or the file is not what `write_crash` writes.
    """
    path = next((p for p in (directory / CRASH_FILE, directory / "crash" / CRASH_FILE) if p.is_file()), None)
    if path is None:
        where = one_line(directory)
        raise UsageError(f"--replay: expected a directory with {CRASH_FILE}, found none in {where}; check the path")
    if path.stat().st_size > _LIMIT_BYTES:
        found = path.stat().st_size
        raise UsageError(f"{path}: expected at most {_LIMIT_BYTES} bytes, found {found}; this is none of digideep's")
    try:
        record = json.loads(path.read_text("utf-8"), object_pairs_hook=_unique, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: expected JSON, found {one_line(error, limit=120)}; restore the file") from None
    if not isinstance(record, dict) or record.get("format") != _FORMAT or record.get("version") != _VERSION:
        raise UsageError(
            f"{path}: expected a {_FORMAT} of version {_VERSION}, found another; read it with the version that wrote it"
        )
    return _checked(record, where=str(path))


def replay_crash(crash: Crash, *, allowed: Iterable[str] = BUILT_IN) -> NoReturn:
    """Walk to the failing call and let its error out, as the environment raises it.

    Raises:
        Exception: whatever the environment raises.
        EnvironmentFailure, NonFiniteError: a result of the environment cannot be used.
        NotReproducibleError: nothing failed this time.
        TrustError: the environment's module is not below one of the `allowed` packages.
    """
    config: EnvConfig = configure(crash.env, where="crash/env", expected=EnvConfig)
    watch = HangWatch(crash.timeout_s or _TIMEOUT_S)
    try:
        watch.where = lambda: f"environment {config.model_name}: {crash.phase}"
        watch.begin()
        env = make_env(config, allowed=allowed)
        try:
            _walk(env, config, crash, watch=watch)
        finally:
            # The second error of a close would hide the first: it is looked for only where it is the one that failed.
            if crash.phase == "close":
                env.close()
        env.close()
    except Hang as hang:
        raise EnvironmentFailure(f"environment {config.model_name}: {crash.phase}: {hang}") from hang
    finally:
        watch.close()
    raise NotReproducibleError(
        f"replay: expected {crash.error!r} at step {_length(crash)}, found no error; the environment "
        f"depends on more than its seed and actions, such as earlier episodes"
    )


def _walk(env: Any, config: EnvConfig, crash: Crash, *, watch: HangWatch) -> None:
    spec = env_spec(env, id=config.model_name)
    probe, actions = Probe(env, spec, config.action_transform), _typed(crash, spec)
    if crash.rng is not None:
        set_generator_state(env.unwrapped.np_random, crash.rng)
    probe.reset(seed=crash.seed)
    for step in range(_length(crash)):
        watch.begin()
        probe.step({slot: array[step : step + 1] for slot, array in actions.items()})


def _typed(crash: Crash, spec: EnvSpec) -> dict[str, Array]:
    typed: dict[str, Array] = {}
    for slot, one in spec.actions.items():
        if slot not in crash.actions and crash.phase != "step":
            continue
        values = np.asarray(crash.actions.get(slot, ()))
        if slot not in crash.actions or values.shape[1:] != one.shape or values.dtype.kind not in "bif":
            shape = ", ".join(str(size) for size in ("T", *one.shape))
            raise UsageError(
                f"crash/actions: expected numbers of shape [{shape}] in {slot!r}, found {values.dtype} {values.shape}"
            )
        typed[slot] = values.astype(one.dtype)
    return typed


def _length(crash: Crash) -> int:
    return min((len(array) for array in crash.actions.values()), default=0)


def _checked(record: Mapping[str, Any], *, where: str) -> Crash:
    record = {"ending": "error", "timeout_s": None, **record}
    kinds: dict[str, Any] = {
        "env": dict, "phase": str, "error": str, "seed": int | None, "rng": dict | None, "actions": dict, "mode": str,
        "worker": int, "env_index": int, "episode": int, "step": int,
        "ending": str, "timeout_s": float | int | None,
    }  # fmt: skip
    for name, kind in kinds.items():
        if name not in record or not isinstance(record[name], kind):
            found = f"expected {name!r} of the form that write_crash gives it, found another"
            raise UsageError(f"{where}: {found}; restore the file")
    if record["phase"] not in _PHASES:
        raise UsageError(f"{where}: expected a phase out of {_PHASES}, found {one_line(record['phase'], limit=80)!r}")
    if record["ending"] not in _ENDINGS:
        raise UsageError(
            f"{where}: expected an ending out of {_ENDINGS}, found {one_line(record['ending'], limit=80)!r}"
        )
    timeout_s = record["timeout_s"]
    if timeout_s is not None and (isinstance(timeout_s, bool) or not 0.0 < timeout_s <= _LONGEST_S):
        raise UsageError(
            f"{where}: expected a timeout_s above 0 and at most {_LONGEST_S:g} seconds, or null, found "
            f"{one_line(timeout_s, limit=40)}; restore the file"
        )
    fields = {name: record[name] for name in kinds}
    try:
        fields["actions"] = {slot: np.asarray(_read(values)) for slot, values in record["actions"].items()}
    except ValueError as error:
        raise UsageError(f"{where}: actions: {one_line(error, limit=120)}") from None
    return Crash(**fields)


def _written(value: Any) -> Any:
    if isinstance(value, list):
        return [_written(element) for element in value]
    if isinstance(value, dict):
        return {key: _written(element) for key, element in value.items()}
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


def _read(value: Any) -> Any:
    if isinstance(value, list):
        return [_read(element) for element in value]
    return float(value) if isinstance(value, str) else value


def _lists(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _lists(element) for key, element in value.items()}
    return value.tolist() if isinstance(value, np.ndarray) else value


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        raise ValueError("a key that stands twice")
    return result


def _refused(constant: str) -> NoReturn:
    raise ValueError(f"{constant}, which is not JSON")
