"""`python -m digideep.environment.check`: examine an environment before training on it."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from digideep.environment.play import add_env_arguments, describe_slots, named_env, run_command, say
from digideep.errors import EnvironmentFailure, NotReproducibleError, one_line
from digideep.utility.commandline import Parser
from digideep.utility.imports import place_of

if TYPE_CHECKING:
    import gymnasium

    from digideep.environment.examine import Probe
    from digideep.spec import EnvSpec

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run_command(_main, argv)


def _main(argv: Sequence[str] | None) -> int:
    parser = Parser(prog="python -m digideep.environment.check", description=(__doc__ or "").partition(": ")[2])
    parser.add_argument("--model", metavar="ID", required=True, help="Gymnasium id, module:id allowed")
    add_env_arguments(parser)
    parser.add_argument("--timeout", metavar="S", type=_seconds, default=300.0, help="for all of it (default 300)")
    options = parser.parse_args(argv)
    with _limited(options.timeout, model=options.model):
        _check(options)
    return 0


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 < value <= 1e6:
        found = repr(one_line(text, limit=40))
        raise argparse.ArgumentTypeError(f"expected seconds above 0, found {found}; give such a number")
    return value


@contextlib.contextmanager
def _limited(limit_s: float, *, model: str) -> Iterator[None]:
    """Raise EnvironmentFailure where the block takes longer; a call that cannot be left ends the process with 7."""
    from digideep.environment.vec.hang import Hang, HangWatch

    late = f"environment {model}: expected to be examined within {limit_s:g} s (--timeout), found that it is not"
    watch = HangWatch(limit_s)
    watch.where = lambda: f"digideep: error: environment {model}"  # the last words before the process ends
    watch.begin()
    try:
        yield
    except Hang as hang:
        place = place_of(hang, None)
        where = f"; it was at {place}" if place else ""
        raise EnvironmentFailure(f"{late}{where}; give it more time, or look there") from hang
    finally:
        watch.end()
        watch.close()


def _check(options: argparse.Namespace) -> None:
    from digideep.environment.make import describe_env, make_env, reported

    config, allowed = named_env(options)
    with reported(options.model):
        spec = describe_env(config, allowed=allowed)
        limit = "none" if spec.max_episode_steps is None else f"{spec.max_episode_steps} steps"
        for line in (options.model, *describe_slots(spec), f"time limit   {limit}"):
            say(line)
        _examine(lambda: make_env(config, allowed=allowed), spec)


def _examine(make: Callable[[], gymnasium.Env[Any, Any]], spec: EnvSpec) -> None:
    from digideep.environment.examine import seed_difference, state_difference
    from digideep.environment.state import obstacle

    env = make()
    with contextlib.closing(env):
        probe = _probe(env, spec)
        reason = obstacle(env)
    step_us, reset_us = probe.step_ns / probe.steps / 1000.0, probe.reset_ns / probe.resets / 1000.0
    say(f"cost         step {step_us:.1f} us, reset {reset_us:.1f} us (means of {probe.steps} and {probe.resets})")
    if probe.outside:
        say(f"warning      {probe.outside}; training does not look at bounds, correct the space or the observation")
    difference = seed_difference(make)
    say(f"same seed    {'another episode' if difference else 'same episode'}")
    if difference:
        raise NotReproducibleError(
            f"environment {spec.id}: expected the same episode from the same seed and actions, "
            f"found a difference at {difference}; draw from self.np_random only, which reset(seed=...) seeds"
        )
    if reason:
        say(f"state        not saved, resume starts new episodes: {reason}")
        return
    difference = state_difference(make)
    say(f"state        saved, {'restored to another course' if difference else 'restored to the same course'}")
    if difference:
        raise NotReproducibleError(
            f"environment {spec.id}: expected a restored state to go on as the saved one did, "
            f"found a difference: {difference}"
        )


def _probe(env: gymnasium.Env[Any, Any], spec: EnvSpec) -> Probe:
    """Make random steps for the time they take, 1000 of them or 2 seconds."""
    from digideep.environment.examine import Probe
    from digideep.environment.spaces import sample_action
    from digideep.utility.seeding import generator

    probe, rng = Probe(env, spec), generator(1, "cost")
    probe.reset(seed=1)
    while probe.steps < 1000 and probe.step_ns + probe.reset_ns < 2e9:
        if probe.step(sample_action(spec.actions, rng)):
            probe.reset()
    return probe


if __name__ == "__main__":
    sys.exit(main())
