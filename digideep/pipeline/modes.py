"""Which options go together: the table of modes, and what every other combination is told.

mode                             play  resume  load  custom  dry-run  session-only
train                             0      0      0      0      0/1         0
barebone session                  0      0      0      0       0          1
train from a checkpoint           0      1      1      0       0          0
play, policy initialised          1      0      0      0      0/1         0
play, policy from a checkpoint    1      0      1      0      0/1         0
custom                            0      0      1      1      0/1         0
"""

from __future__ import annotations

from typing import NamedTuple, NoReturn

from digideep.errors import UsageError
from digideep.pipeline.options import Mode, SessionOptions

__all__ = ["Verbs", "check_combination", "mode_of"]

_PLAY_ONLY = {
    "episodes": "--episodes",
    "seed": "--seed",
    "stochastic": "--stochastic",
    "render": "--render",
    "record": "--record",
    "output": "--output",
}
_HINT = {"seed": "use --play, or --set seed=N for the seed of training"}


class Verbs(NamedTuple):
    """What the session is asked to do, as it was typed."""

    resume: bool = False
    play: bool = False
    custom: bool = False
    create_session_only: bool = False


def mode_of(verbs: Verbs, options: SessionOptions) -> Mode:
    """Return the mode that the options ask for.

    Raises:
        UsageError: the combination is none of the table's; the message names the options that clash.
    """
    names = {
        "resume": "--resume",
        "play": "--play",
        "custom": "--custom",
        "create_session_only": "--create-session-only",
    }
    given = [names[key] for key, on in verbs._asdict().items() if on]
    loading = options.load_checkpoint is not None
    if len(given) > 1:
        _clash(given[:2])
    if loading and verbs.create_session_only:
        _clash(["--create-session-only", "--load-checkpoint"])
    if options.dry_run and (verbs.resume or verbs.create_session_only):
        _clash(["--dry-run", given[0]])
    if loading and not given:
        raise UsageError(
            "--load-checkpoint: expected --resume, --play or --custom with it, found none; say what to do with it"
        )
    if not loading and (verbs.resume or verbs.custom):
        raise UsageError(
            f"{given[0]}: expected --load-checkpoint with it, found none; add --load-checkpoint <session or checkpoint>"
        )
    return next((Mode[key.split("_")[0].upper()] for key, on in verbs._asdict().items() if on), Mode.TRAIN)


def check_combination(options: SessionOptions) -> None:
    """Check the options that do not decide the mode.

    Raises:
        UsageError: two options clash, or one has no meaning without another.
    """
    loading = options.load_checkpoint is not None
    if loading and options.params is not None:
        raise UsageError(
            "--params, --load-checkpoint: expected one of them, found both; a session has its own parameters, "
            "change them with --set /path=VALUE"
        )
    if loading and options.session_name is not None:
        _clash(["--session-name", "--load-checkpoint"])
    if not loading and options.params is None:
        verb = "--play" if options.mode is Mode.PLAY else "--params"
        expected = "--params NAME or --load-checkpoint PATH" if options.mode is Mode.PLAY else "a parameter module"
        raise UsageError(f"{verb}: expected {expected}, found none; --list-params lists the presets")
    _check_companions(options, loading=loading)
    _check_standalone(options)


def _check_companions(options: SessionOptions, *, loading: bool) -> None:
    if options.mode is not Mode.PLAY:
        for key, name in _PLAY_ONLY.items():
            value = getattr(options, key)
            if value is not None and value is not False:
                hint = _HINT.get(key, f"add --play or leave {name} out")
                raise UsageError(f"{name}: expected --play with it, found none; {hint}")
    needs_loading = {"--checkpoint": options.checkpoint_named, "--code": options.code is not None}
    for name, given in needs_loading.items():
        if given and not loading:
            raise UsageError(
                f"{name}: expected --load-checkpoint with it, found none; add --load-checkpoint or leave it out"
            )
    if options.trust_session and not (loading or options.autoresume):
        raise UsageError(
            "--trust-session: expected --load-checkpoint or --autoresume with it, found neither; leave it out"
        )
    if loading and options.save_modules:
        _clash(["--save-modules", "--load-checkpoint"])


def _check_standalone(options: SessionOptions) -> None:
    """Check --autoresume and --check-resume, which go with plain training only."""
    for name, given in (("--autoresume", options.autoresume), ("--check-resume", options.check_resume is not None)):
        if not given:
            continue
        others = {
            "--load-checkpoint": options.load_checkpoint is not None,
            "--play": options.mode is Mode.PLAY,
            "--create-session-only": options.mode is Mode.CREATE,
            "--dry-run": options.dry_run,
        }
        if name == "--check-resume":
            others |= {"--autoresume": options.autoresume, "--session-name": options.session_name is not None}
        clash = next((other for other, on in others.items() if on), None)
        if clash:
            _clash([name, clash])


def _clash(names: list[str]) -> NoReturn:
    raise UsageError(f"{', '.join(names)}: expected at most one of them, found both; leave one out")
