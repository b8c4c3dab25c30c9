"""`python -m digideep.environment.play`: look at an environment with random actions, list them, replay a crash."""

from __future__ import annotations

import argparse
import contextlib
import os
import pdb
import re
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from digideep.environment.config import EnvConfig
from digideep.errors import (
    DigideepError,
    EnvironmentFailure,
    NotReproducibleError,
    TrustError,
    UsageError,
    one_line,
    without_controls,
)
from digideep.utility.commandline import Parser
from digideep.utility.imports import BUILT_IN, ENVIRONMENT_PACKAGES, import_module, resolve
from digideep.utility.strictjson import loads_json

if TYPE_CHECKING:
    from digideep.environment.crash import Crash
    from digideep.spec import ArraySpec, EnvSpec

__all__ = ["add_env_arguments", "consent", "describe_slots", "main", "named_env", "run_command", "say"]

_SESSION_CODE = "digideep.post.crash_code:crash_code"  # by name, since sessions lie above environments


def run_command(command: Callable[[Sequence[str] | None], int], argv: Sequence[str] | None) -> int:
    """Return the exit code of `command(argv)`; an error of the user's is one line on stderr."""
    try:
        code = command(argv)
        sys.stdout.flush()
        return code
    except DigideepError as error:
        sys.stderr.write(f"digideep: error: {one_line(error)}\n")
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader has seen enough; what is still buffered must not raise at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def say(line: str) -> None:
    """Write one line to stdout at once."""
    sys.stdout.write(one_line(line) + "\n")
    sys.stdout.flush()


def consent(model: str, module: str | None, wrappers: Sequence[Mapping[str, Any]] = ()) -> tuple[str, ...]:
    """Return the packages whose import the user has asked for by naming them on the command line."""
    named = [module, model.rpartition(":")[0], *(str(one.get("type", "")).partition(":")[0] for one in wrappers)]
    return (*BUILT_IN, *(name for name in named if name))


def named_env(options: argparse.Namespace) -> tuple[EnvConfig, tuple[str, ...]]:
    """Return the environment that the options of `add_env_arguments` name, and the packages it may import."""
    wrappers = options.wrappers or ()
    config = EnvConfig(
        options.model, from_module=options.module, env_kwargs=options.env_kwargs or {}, wrappers=tuple(wrappers)
    )
    return config, consent(options.model, options.module, wrappers)


def describe_slots(spec: EnvSpec) -> list[str]:
    """Return a line for each slot of observations and actions."""
    lines = [f"observation  {_described(slot, one)}" for slot, one in spec.observations.items()]
    return lines + [f"action       {_described(slot, one)}" for slot, one in spec.actions.items()]


def add_env_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that say more about the environment that `--model` names."""
    parser.add_argument("--module", metavar="NAME", help="imported first, registers the environment")
    parser.add_argument("--env-kwargs", metavar="JSON", type=_mapping, help="keyword arguments of the environment")
    parser.add_argument("--wrappers", metavar="JSON", type=_nodes, help="list of nodes of wrappers, innermost first")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run_command(_main, argv)


def _main(argv: Sequence[str] | None) -> int:
    options = _parser().parse_args(argv)
    _check_companions(options)
    if options.replay is not None:
        return _replay(options)
    if options.list_include is not None or options.list_exclude is not None:
        return _list(options)
    return _play(options)


def _parser() -> Parser:
    parser = Parser(prog="python -m digideep.environment.play", description=(__doc__ or "").partition(": ")[2])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--model", metavar="ID", help="Gymnasium id, module:id allowed")
    what.add_argument("--replay", metavar="DIR", type=Path, help="walk to the failure stored in this crash directory")
    what.add_argument("--list-include", metavar="REGEX", help="list the registered ids in which this is found")
    parser.add_argument("--list-exclude", metavar="REGEX", help="leave out the ids in which this is found")
    add_env_arguments(parser)
    parser.add_argument("--trust-session", action="store_true", help="with --replay: let code of the session run")
    parser.add_argument("--runs", metavar="N", type=_count, default=1, help="episodes (default 1)")
    parser.add_argument("--n-step", metavar="N", type=_count, default=1000, help="longest run (default 1000 steps)")
    parser.add_argument("--delay", metavar="MS", type=_delay, default=0.0, help="pause after each step")
    parser.add_argument("--no-action", action="store_true", help="zero at each step instead of random actions")
    parser.add_argument("--render", action="store_true", help="open a window")
    parser.add_argument("--pdb", action="store_true", help="with --replay: enter the debugger where it fails")
    return parser


def _check_companions(options: argparse.Namespace) -> None:
    """Check that no option is given that would change nothing."""
    needs = {
        "--pdb": (options.pdb, options.replay, "--replay"),
        "--trust-session": (options.trust_session, options.replay, "--replay"),
        "--env-kwargs": (options.env_kwargs is not None, options.model, "--model"),
        "--wrappers": (options.wrappers is not None, options.model, "--model"),
        "--list-exclude": (options.list_exclude is not None, options.list_include, "--list-include"),
        "--render": (options.render, options.model, "--model"),
        "--no-action": (options.no_action, options.model, "--model"),
    }
    for name, (given, companion, needed) in needs.items():
        if given and companion is None:
            raise UsageError(f"{name}: expected {needed} with it, found none; add {needed} or leave {name} out")


class _Run(NamedTuple):
    return_: float
    length: int
    ending: str


def _play(options: argparse.Namespace) -> int:
    from digideep.environment.make import make_env, reported
    from digideep.environment.spaces import env_spec

    config, allowed = named_env(options)
    env = make_env(config, allowed=allowed, render_mode="human" if options.render else None)
    runs: list[_Run] = []
    with reported(options.model), contextlib.closing(env):
        spec = env_spec(env, id=options.model)
        for line in (options.model, *describe_slots(spec)):
            say(line)
        for number in range(options.runs):
            runs.append(_run_once(env, spec, options, number=number))
            one = runs[-1]
            say(f"run {number}: return {one.return_:g}, length {one.length}, {one.ending}")
    mean = statistics.fmean(run.return_ for run in runs)
    deviation = statistics.pstdev(run.return_ for run in runs)
    say(f"mean return {mean:g} +- {deviation:g} over {len(runs)} episodes")
    return 0


def _run_once(env: Any, spec: EnvSpec, options: argparse.Namespace, *, number: int) -> _Run:
    import numpy as np

    from digideep.environment.spaces import ActionReader, sample_action
    from digideep.utility.seeding import derive, generator

    reader, rng = ActionReader(env.action_space, spec), generator(0, "play", number)
    zero = {slot: np.zeros((1, *one.shape), one.dtype) for slot, one in spec.actions.items()}
    env.reset(seed=derive(0, "play", number))
    total = 0.0
    for step in range(1, options.n_step + 1):
        raw = zero if options.no_action else sample_action(spec.actions, rng)
        _, reward, terminated, truncated, _ = env.step(reader.read(raw, 0))
        total += float(reward)
        time.sleep(options.delay / 1000.0)
        if terminated or truncated:
            return _Run(total, step, "terminated" if terminated else "truncated")
    return _Run(total, options.n_step, "stopped by --n-step")


def _list(options: argparse.Namespace) -> int:
    include = _pattern(options.list_include or ".", option="--list-include")
    exclude = _pattern(options.list_exclude, option="--list-exclude") if options.list_exclude is not None else None
    import gymnasium

    if options.module is not None:
        import_module(options.module, where="--module", allowed=(*consent("", options.module), *ENVIRONMENT_PACKAGES))
    for name in sorted(gymnasium.registry):
        if include.search(name) and not (exclude is not None and exclude.search(name)):
            say(name)
    return 0


def _replay(options: argparse.Namespace) -> int:
    from digideep.environment.crash import read_crash

    crash = read_crash(options.replay)
    model = one_line(crash.env.get("model_name", ""), limit=80)
    say(f"replay of {model}: {one_line(crash.error)}")
    if crash.ending == "death" and not options.pdb:
        # The debugger would die with the process; without it somebody has to be left who tells of the death.
        return _survive(lambda: _walk(crash, options), where=f"environment {model}, {crash.phase} {crash.step}")
    return _walk(crash, options)


def _walk(crash: Crash, options: argparse.Namespace) -> int:
    from digideep.environment.crash import replay_crash

    named = () if options.module is None else (options.module,)
    code_of = resolve(_SESSION_CODE, where="--replay")
    try:
        with code_of(options.replay, crash.env, named=named, trust_session=options.trust_session) as allowed:
            replay_crash(crash, allowed=allowed)
    except (UsageError, TrustError, NotReproducibleError):
        raise
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        if isinstance(error, KeyboardInterrupt) and KeyboardInterrupt.__name__ not in crash.error:
            raise  # from the keyboard: no environment has raised it
        # Where it fails is what a replay is for, so this one error comes with its traceback.
        sys.stderr.write(without_controls(traceback.format_exc()))
        if options.pdb:
            pdb.post_mortem(error.__traceback__)
        if isinstance(error, DigideepError):
            raise
        model = one_line(crash.env.get("model_name", ""), limit=80)
        raised = f"{type(error).__name__}: {one_line(error)}".removesuffix(": ")
        raise EnvironmentFailure(f"environment {model}: {crash.phase} raised {raised}") from error


def _survive(walk: Callable[[], int], *, where: str) -> int:
    """Return the exit code of `walk`, done in a child process.

    Raises:
        EnvironmentFailure: the child did not come to its end.
    """
    sys.stdout.flush()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = run_command(lambda argv: walk(), None)
        sys.stderr.flush()
        os.write(writer, b".")
        os._exit(code)
    os.close(writer)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.set_blocking(reader, False)  # what the environment has started may live on and hold the other end
    try:
        came_to_its_end = os.read(reader, 1)
    except BlockingIOError:
        came_to_its_end = b""
    os.close(reader)
    if came_to_its_end:
        return code
    from digideep.environment.vec.child import ended_how

    found = f"found that this call killed it: it {ended_how(code)}"
    raise EnvironmentFailure(f"{where}: expected a process that goes on, {found}")


def _described(slot: str, spec: ArraySpec) -> str:
    named = f"{slot}: " if slot not in ("", "observation") else ""
    if spec.kind == "discrete":
        from_to = f"{spec.start} to {spec.start + spec.n[0] - 1}"
        return f"{named}discrete, {from_to}"
    if spec.kind == "multi_discrete":
        return f"{named}multi_discrete {spec.shape}, each below {list(spec.n)}"
    bounds = f", {_bounds(spec.low)} to {_bounds(spec.high)}" if spec.kind == "box" else ""
    return f"{named}{spec.kind} {spec.shape} of {spec.dtype}{bounds}"


def _bounds(bound: tuple[float, ...]) -> str:
    if len(bound) > 8:
        return f"[{min(bound):g} .. {max(bound):g}]"
    return f"{bound[0]:g}" if len(bound) == 1 else "[" + ", ".join(f"{x:g}" for x in bound) + "]"


def _pattern(text: str, *, option: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        found = f"{one_line(text, limit=80)!r} ({one_line(error)})"
        raise UsageError(f"{option}: expected a regular expression, found {found}; correct it") from None


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text[:19]) or len(text) > 18:
        found = repr(one_line(text, limit=40))
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, found {found}; give such a number")
    return int(text)


def _mapping(text: str) -> dict[str, Any]:
    try:
        value = loads_json(text, where="")
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix(": ")) from error
    if not isinstance(value, dict):
        found = repr(one_line(text, limit=40))
        raise argparse.ArgumentTypeError(f"expected a JSON object, found {found}; write it like '{{\"size\": 3}}'")
    return value


def _nodes(text: str) -> list[dict[str, Any]]:
    example = '\'[{"type": "digideep.environment.wrappers.config:MiniGridConfig"}]\''
    try:
        value = loads_json(text, where="")
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix(": ")) from error
    if not isinstance(value, list) or not all(isinstance(node, dict) for node in value):
        found = repr(one_line(text, limit=40))
        raise argparse.ArgumentTypeError(f"expected a JSON list of objects, found {found}; write it like {example}")
    return value


def _delay(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 3.6e6:
        found = repr(one_line(text, limit=40))
        raise argparse.ArgumentTypeError(f"expected milliseconds from 0 on, found {found}; give such a number")
    return value


if __name__ == "__main__":
    sys.exit(main())
