"""The command line: `parse` turns arguments into options, checked for form and combination, and imports nothing heavy.

The option table is `_add_*`; what a value looks like is in `digideep.pipeline.arguments`, which options go together in
`digideep.pipeline.modes`. `from_keywords` does for Python what `parse` does for a shell.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, TypeAlias

import digideep
from digideep.errors import UsageError, one_line
from digideep.pipeline import arguments as form
from digideep.pipeline.modes import Verbs, check_combination, mode_of
from digideep.pipeline.options import SessionOptions
from digideep.utility.commandline import Parser, near_option
from digideep.utility.values import unknown

__all__ = [
    "Description",
    "Listing",
    "Notice",
    "Request",
    "build_parser",
    "from_keywords",
    "option_names",
    "options_of_command_line",
    "parse",
]

_USAGE = "python -m digideep.main --params NAME [options]"
_EPILOG = """\
examples:
  python -m digideep.main --params digideep.params.cartpole_ppo
  python -m digideep.main --params digideep.params.cartpole_ppo --set lr=3e-4 seed=2 --session-name 'lr{lr}-s{seed}'
  python -m digideep.main --load-checkpoint <session> --resume
  python -m digideep.main --load-checkpoint <session> --play --episodes 20

The first line on stdout says where the session is. Exit codes: 0 goal reached, 2 bad usage, 3 done already,
4 in use, 5 no usable checkpoint, 6 not trusted, 7 environment failed, 8 bad numbers, 9 storage failed,
75 stopped early and saved.
"""


class Notice(NamedTuple):
    """Text to print, then exit 0: `--help`, `--version`."""

    text: str


class Listing(NamedTuple):
    """`--list-params`."""

    as_json: bool


class Description(NamedTuple):
    """`--describe`: the parameters to describe, and how."""

    options: SessionOptions
    as_json: bool


Request: TypeAlias = SessionOptions | Listing | Description | Notice


class _Answered(Exception):
    def __init__(self, notice: Notice) -> None:
        super().__init__()
        self.notice = notice


class _Answer(argparse.Action):
    """An option that ends the parsing with a text, whatever follows."""

    def __call__(self, parser: argparse.ArgumentParser, *rest: Any) -> NoReturn:
        version = f"digideep {digideep.__version__}\n"
        raise _Answered(Notice(version if self.dest == "version" else parser.format_help()))


def parse(argv: Sequence[str]) -> Request:
    """Return what the arguments (without the program's name) ask for.

    Raises:
        UsageError: an option is unknown, has a value of another form, or does not go with another one.
    """
    parser = build_parser()
    try:
        found, rest = parser.parse_known_args(list(argv))
    except _Answered as answer:
        return answer.notice
    if rest:
        raise _unknown(rest[0])
    given = vars(found)
    if given["list_params"]:
        return _listing(given, argv)
    as_json, describe = given["json"], given["describe"]
    if as_json and not describe:
        raise UsageError("--json: expected --list-params or --describe with it, found neither; leave it out")
    options = _options(given, command_line=tuple(argv))
    if describe and (options.load_checkpoint is not None or given["create_session_only"] or given["play"]):
        raise UsageError("--describe: expected --params NAME and no mode with it, found one; leave the mode out")
    return Description(options, as_json) if describe else options


def from_keywords(params: str | None = None, cpanel: Mapping[str, Any] | None = None, **options: Any) -> SessionOptions:
    """Return the options that keywords of the long options' names ask for, dashes as underscores.

    `repeal` and `cpanel` are mappings, `set` is a mapping of either kind of key, flags are booleans.

    Raises:
        UsageError: a keyword is unknown, has another type, or does not go with another one.
    """
    parser = build_parser()
    given = vars(parser.parse_args([]))
    known = [key for key in given if key not in ("list_params", "describe", "json")]
    for key, value in {"params": params, **options}.items():
        if key not in known:
            raise UsageError(f"run: {unknown(key, known, what='keyword')}")
        if value is not None:
            given[key] = _from_python(key, value, parser)
    if not isinstance(cpanel or {}, Mapping):
        raise UsageError(f"cpanel: expected a mapping, found {one_line(cpanel, limit=60)!r}; give a dictionary")
    given["cpanel"] = form.JsonArgument(dict(cpanel or {}), from_file=False)
    return dataclasses.replace(_options(given, command_line=()), from_python=True)


def _from_python(key: str, value: Any, parser: argparse.ArgumentParser) -> Any:
    if key in ("cpanel", "repeal", "set"):
        if not isinstance(value, Mapping):
            raise UsageError(f"{key}: expected a mapping, found {one_line(value, limit=60)!r}; give a dictionary")
        return _texts(value) if key == "set" else form.JsonArgument(dict(value), from_file=False)
    action = next(action for action in parser._actions if action.dest == key)
    if action.nargs == 0:
        if not isinstance(value, bool):
            raise UsageError(f"{key}: expected True or False, found {one_line(value, limit=60)!r}; give one of them")
        return value
    if key == "check_resume" and value is True:
        return action.const
    texts = [str(element) for element in value] if action.nargs == "+" and not isinstance(value, str) else str(value)
    try:
        reader: Any = action.type or str
        return [reader(element) for element in texts] if isinstance(texts, list) else reader(texts)
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"{key}: {error}") from error


def _texts(assignments: Mapping[str, Any]) -> list[tuple[str, str]]:
    import json

    return [(str(k), v if isinstance(v, str) else json.dumps(v)) for k, v in assignments.items()]


def _listing(given: Mapping[str, Any], argv: Sequence[str]) -> Listing:
    others = [word for word in argv if word not in ("--list-params", "--json")]
    if others:
        found = one_line(others[0], limit=60)
        raise UsageError(f"--list-params: expected nothing but --json with it, found {found!r}; leave it out")
    return Listing(given["json"])


def _options(given: Mapping[str, Any], *, command_line: tuple[str, ...]) -> SessionOptions:
    cpanel = given["cpanel"] or form.JsonArgument({}, from_file=False)
    repeal = given["repeal"] or form.JsonArgument({}, from_file=False)
    for path in repeal.value:
        if not path.startswith("/"):
            found = one_line(path, limit=60)
            raise UsageError(
                f"--repeal: expected paths such as '/runner/n_epochs', found {found!r}; knobs go to --cpanel"
            )
    if given["tensorboard_host"] is not None and not given["tensorboard"]:
        raise UsageError("--tensorboard-host: expected --tensorboard with it, found none; add it")
    special = {"cpanel", "repeal", "set", "checkpoint", "tensorboard_host", "msg", "device", *Verbs._fields}
    fields = {field.name for field in dataclasses.fields(SessionOptions)}
    same = {key: value for key, value in given.items() if key in fields and key not in special}
    same["save_modules"] = tuple(given["save_modules"] or ())
    options = SessionOptions(
        **same,
        cpanel=cpanel.value,
        cpanel_from_file=cpanel.from_file,
        repeal=repeal.value,
        repeal_from_file=repeal.from_file,
        assignments=tuple(given["set"] or ()),
        checkpoint="last" if given["checkpoint"] is None else given["checkpoint"],
        checkpoint_named=given["checkpoint"] is not None,
        lock_wait_s=given["lock_wait"],
        device=None if given["device"] == "auto" else given["device"],
        tensorboard_host=given["tensorboard_host"] or "127.0.0.1",
        message=given["msg"],
        command_line=command_line,
    )
    options = dataclasses.replace(options, mode=mode_of(Verbs(**{key: given[key] for key in Verbs._fields}), options))
    check_combination(options)
    return options


def _unknown(word: str) -> UsageError:
    name = word.split("=")[0]
    if not name.startswith("-"):
        found = one_line(word, limit=60)
        return UsageError(f"command line: expected options, found {found!r}; options begin with --")
    advice = near_option(name, option_names())
    return UsageError(f"{one_line(name, limit=60)}: expected an option that exists, found an unknown option; {advice}")


def option_names() -> tuple[str, ...]:
    """Return every option of this version, as it is typed."""
    return tuple(option for action in build_parser()._actions for option in action.option_strings)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all options."""
    parser = Parser(
        prog="digideep",
        usage=_USAGE,
        description="Train, resume, play and look at reinforcement learning sessions.",
        epilog=_EPILOG,
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=32, width=110),
        add_help=False,
    )
    _add_parameters(parser)
    _add_session(parser)
    _add_modes(parser)
    _add_play(parser)
    _add_machine(parser)
    return parser


def _flag(group: argparse._ArgumentGroup, name: str, text: str) -> None:
    group.add_argument(name, action="store_true", help=text)


def _add_parameters(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("parameters")
    add = group.add_argument
    params_help = "parameter module: dotted name, path of a .py or .yaml file"
    add("--params", metavar="NAME", type=form.text, help=params_help)
    cpanel_help = "change knobs: '{\"seed\": 3}', or @file.json"
    add("--cpanel", metavar="JSON", type=form.json_mapping, help=cpanel_help)
    repeal_help = "change parameters by path: '{\"/runner/n_epochs\": 9}'"
    add("--repeal", metavar="JSON", type=form.json_mapping, help=repeal_help)
    set_help = "either, without quotes: seed=3, or /runner/seed=3"
    add("--set", metavar="KEY=VALUE", nargs="+", action="extend", type=form.assignment, help=set_help)
    _flag(group, "--list-params", "list the presets")
    _flag(group, "--describe", "say what every knob of --params NAME is, and what it is set to")
    _flag(group, "--json", "the list or the description as JSON")


def _add_session(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("session")
    add = group.add_argument
    add(
        "--session-path",
        metavar="DIR",
        type=form.place,
        help="where sessions go (default: $DIGIDEEP_SESSIONS, else /tmp)",
    )
    name_help = "instead of session_<time>; may hold knobs: 'tug-lr{lr}-s{seed}'"
    add("--session-name", metavar="NAME", type=form.session_name, help=name_help)
    _flag(group, "--autoresume", "the same command again goes on with the same session")
    lock_help = "how long --autoresume (default: 120), --resume or --custom (0) waits for a session in use"
    add("--lock-wait", metavar="S", type=form.seconds, help=lock_help)
    modules_help = "further packages to copy into modules/"
    add("--save-modules", metavar="NAME", nargs="+", action="extend", type=form.module_name, help=modules_help)
    add("--msg", metavar="TEXT", default="", help="a note for meta.json")
    _flag(group, "--dry-run", "leave nothing on disk")


def _add_modes(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("modes", "without any of these a new session trains to its goal")
    add = group.add_argument
    load_help = "a session directory, or one of its checkpoints"
    add("--load-checkpoint", metavar="PATH", type=form.path, help=load_help)
    which_help = "last (default), best or a number; of a session directory"
    add("--checkpoint", metavar="WHICH", type=form.checkpoint, help=which_help)
    _flag(group, "--resume", "go on training")
    _flag(group, "--play", "evaluate; with --params a freshly initialised policy")
    _flag(group, "--custom", "run Runner.custom()")
    _flag(group, "--create-session-only", "make the session, run nothing")
    check_help = "check that N + N epochs (default 2) give the bits of 2N in one go"
    add("--check-resume", metavar="N", nargs="?", const=2, type=form.integer(low=1), help=check_help)
    code_help = "session or installed: whose code a resumed or played session runs"
    add("--code", metavar="WHOSE", type=form.one_of("session", "installed"), help=code_help)
    _flag(group, "--trust-session", "let code that a foreign session carries run")


def _add_play(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("with --play")
    add = group.add_argument
    add("--episodes", metavar="N", type=form.integer(low=1), help="how many episodes")
    add("--seed", metavar="N", type=form.integer(low=0), help="other episodes than those of the tests")
    _flag(group, "--stochastic", "sampled instead of most likely actions")
    _flag(group, "--render", "show a window")
    _flag(group, "--record", "record an mp4")
    add("--output", metavar="DIR", type=form.place, help="where results go (default: evaluations/ of the session)")


def _add_machine(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("machine and logs")
    add = group.add_argument
    add("--device", metavar="DEVICE", type=form.device, help="auto (default), cpu, cuda or cuda:N")
    _flag(group, "--tensorboard", "also serve TensorBoard on a free port")
    add("--tensorboard-host", metavar="HOST", type=form.text, help="where it listens (default: 127.0.0.1)")
    for what in ("cpu", "gpu"):
        text = f"do not watch the {what.upper()}"
        add(f"--no-monitor-{what}", dest=f"monitor_{what}", action="store_false", help=text)
    level_help = "debug, info (default), warn, error, fatal, or 0 to 4"
    add("--log-level", metavar="LEVEL", default="info", type=form.log_level, help=level_help)
    profiler_help = "depth of timed blocks; -1 (default): all"
    add("--profiler-level", metavar="N", default=-1, type=form.integer(low=-1), help=profiler_help)
    add("--version", action=_Answer, nargs=0, help="print the version")
    add("-h", "--help", action=_Answer, nargs=0, help="print this text")


def options_of_command_line() -> SessionOptions:
    """Return the options of a session that this process was started with.

    Raises:
        UsageError: they are wrong, or open no session.
    """
    request = parse(sys.argv[1:])
    if not isinstance(request, SessionOptions):
        raise UsageError("session: expected a command line that opens a session, found one that asks for text only")
    return request
