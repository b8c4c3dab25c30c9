"""G: every option of every program, given wrongly in every way: one line, exit code 2, nothing left, no torch."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest
from cold import Cold, parser_complaints

from digideep.environment.play import _parser as play_parser
from digideep.errors import UsageError
from digideep.pipeline.cli import build_parser, parse
from digideep.sessions import _parser as sessions_parser

PRESET = "digideep.params.cartpole_ppo"
NEW = ["--params", PRESET]
PLAYED = ["--episodes", "--seed", "--stochastic", "--render", "--record", "--output"]

# What no option takes that reads its value; `WRONG` adds what a particular one does not take.
ANYWHERE = ["", "x\n\x1b[2Jforged: line", "\udcff"]
JSON = ["{", "[]", "3", '"x"', "null", "{'seed': 3}", "{seed: 3}", '{"seed": 3,}', "seed=3", "@", "@none.json", "@/"]
NUMBER = ["x", "-5", "1.5", "1e3", "nan", "inf", "\u0663", "1_0", "0x10", " 1", "9" * 5000, "--"]
WRONG: dict[str, list[str]] = {
    "--params": ["none", "a..b", "none.py", "none.yaml", "/", ".", "digideep", "x" * 5000],
    "--cpanel": [*JSON, '{"sed": 3}', '{"seed": "3"}', '{"/runner/seed": 3}'],
    "--repeal": [*JSON, '{"seed": 3}', '{"/runner/sed": 3}', '{"": 1}', '{"/": 1}', '{"/runner": 3}', '{"//": 3}'],
    "--set": ["seed", "=3", "sed=3", "seed=x", "seed=1.5", "/=1", "/runner/sed=3", "/runner=3", "seed:3", "seed =3"],
    "--session-path": ["~nobody_at_all/x", " x", "x\ty"],
    "--session-name": ["../x", "a/b", "1st", ".x", "-x", "a b", "x" * 82, "{sed}", "{env_kwargs}", "é", "a{b"],
    "--lock-wait": ["x", "-1", "nan", "inf", "1e999", "\u0663", "1_0", "0x10"],
    "--save-modules": ["a-b", "a..b", "none_at_all", "a/b", "a.py", "/"],
    "--load-checkpoint": ["none", "/", "~nobody_at_all/x", "/dev/null", "x" * 300],
    "--checkpoint": ["newest", "-1", "1.5", "\u0663", "checkpoint-1", "LAST"],
    "--check-resume": NUMBER,
    "--code": ["sesion", "Installed", "none"],
    "--episodes": [*NUMBER, "0"],
    "--seed": NUMBER,
    "--output": ["~nobody_at_all/x", " x", "x\ty"],
    "--device": ["gpu", "cuda:x", "cuda:-1", "cuda:01", "CPU", "cuda:99999", "mps"],
    "--tensorboard-host": [" x", "x\ty"],
    "--log-level": ["5", "-1", "wran", "all", "1.0"],
    "--profiler-level": ["-2", "x", "1.5", "\u0663"],
}
TAKES_ANY_TEXT = {"--msg"}


def _options() -> list[argparse.Action]:
    return list(build_parser()._actions)


def _name(action: argparse.Action) -> str:
    return action.option_strings[0]


def _around(option: str, *, value: str | None = None) -> list[str]:
    """Return a command line that is right but for `option`."""
    given = [option] if value is None else [f"{option}={value}"]
    if option == "--params":
        return given
    if option in ("--checkpoint", "--code"):
        return ["--load-checkpoint", "none", "--resume", *given]
    if option == "--load-checkpoint":
        return [*given, "--resume"]
    if option == "--tensorboard-host":
        return [*NEW, "--tensorboard", *given]
    return [*NEW, *(["--play"] if option in PLAYED else []), *given]


def _misspelt(option: str) -> Iterable[str]:
    """Yield the ways in which a hasty hand misses a long option by one letter."""
    middle = len(option) // 2 + 1
    yield option[:-1]
    yield option + "x"
    yield option[:middle] + option[middle + 1 :]
    yield option[:middle] + option[middle : middle + 2][::-1] + option[middle + 2 :]
    yield option.upper()
    yield option[:2] + option[2:].replace("-", "_")


def test_the_table_of_wrong_values_has_every_option() -> None:
    valued = {_name(action) for action in _options() if action.nargs != 0}

    assert valued == WRONG.keys() | TAKES_ANY_TEXT


@pytest.mark.parametrize("option", WRONG)
def test_G_a_value_that_an_option_cannot_take_is_refused(cold: Cold, tmp_path: Path, option: str) -> None:
    found: list[str] = []
    for value in (*ANYWHERE, *WRONG[option]):
        words = _around(option, value=value)
        found += cold.complaints("main", *words, cwd=tmp_path)

    assert found == []


def test_G_an_option_without_its_value_is_named() -> None:
    valued = [_name(action) for action in _options() if action.nargs is None or action.nargs == "+"]
    found: list[str] = []
    for option in valued:
        found += parser_complaints(_around(option), option, "value")
        found += parser_complaints([*_around(option), "--dry-run"], option, "value")
        found += parser_complaints([*_around(option, value="--")], option, "value")

    assert len(valued) > 15
    assert found == []


def test_G_a_value_for_an_option_that_takes_none_is_refused() -> None:
    flags = [_name(action) for action in _options() if action.nargs == 0 and _name(action) != "-h"]

    found = [
        line
        for flag in flags
        for value in ("", "1", "no", "--")
        for line in parser_complaints([*NEW, f"{flag}={value}"], flag)
    ]

    assert found == []


def test_G_an_option_that_is_given_twice_is_refused() -> None:
    right = {
        "--cpanel": "{}", "--repeal": "{}", "--code": "session", "--device": "cpu", "--log-level": "info",
        "--params": PRESET, "--session-name": "name",
    }  # fmt: skip
    found: list[str] = []
    for option in [_name(action) for action in _options() if action.nargs is None]:
        value = right.get(option, "1")
        found += parser_complaints([*_around(option, value=value), f"{option}={value}"], option, "once", "twice")

    assert found == []


def test_G_an_option_misspelt_by_a_letter_gets_the_nearest_one() -> None:
    known = {_name(action) for action in _options()}
    found: list[str] = []
    for option in known - {"-h"}:
        for wrong in sorted(set(_misspelt(option)) - known):
            found += parser_complaints([*NEW, wrong], wrong, f"did you mean '{option}'?")

    assert found == []


def test_G_every_pair_of_options_is_taken_or_refused_by_name() -> None:
    right = {
        "--params": PRESET, "--cpanel": "{}", "--repeal": "{}", "--set": "seed=3", "--checkpoint": "1",
        "--code": "session", "--device": "cpu", "--log-level": "info", "--session-name": "x", "--load-checkpoint": "x",
    }  # fmt: skip
    wrong: list[str] = []
    words = {_name(a): [_name(a)] if a.nargs == 0 else [f"{_name(a)}={right.get(_name(a), '1')}"] for a in _options()}
    for (first, given), (second, more) in itertools.combinations(words.items(), 2):
        for around in ([], NEW, ["--load-checkpoint=x", "--play"]):
            argv = [*around, *given, *more]
            try:
                parse(argv)
            except UsageError as error:
                told = str(error)
                named = [name for name in ("--params", first, second, *argv) if name in told]
                if not named or "; " not in told or "expected" not in told:
                    wrong.append(f"{argv}: {told}")

    assert wrong == []


def test_G_words_that_are_no_options_are_refused(cold: Cold, tmp_path: Path) -> None:
    found: list[str] = []
    for word in (
        "train",
        "-",
        "--",
        "-x",
        "-p",
        "---params",
        "--=1",
        "--params:x",
        "—params",
        "resume",
        "\x1b[2J",
        " ",
    ):
        found += cold.complaints("main", *NEW, word, cwd=tmp_path)
    found += cold.complaints("main", cwd=tmp_path, names=["--params"])
    found += cold.complaints("main", "", cwd=tmp_path)
    found += cold.complaints("main", *NEW, "@file", cwd=tmp_path)
    found += cold.complaints("main", *NEW, "--cpanel", "{}", "lr=3", cwd=tmp_path, names=["lr=3"])

    assert found == []


SESSIONS: Sequence[Sequence[str]] = [
    [], ["lst"], ["list", "a", "b"], ["list", "--jso"], ["list", "--json=1"], ["list", ""], ["list", "none"],
    ["list", "x" * 300], ["list", "/dev/null"], ["show"], ["show", ""], ["show", "none"], ["show", "/"], ["show", "."],
    ["show", "~nobody_at_all"], ["show", "a", "b"], ["show", "\udcff"], ["show", "a\n\x1b[2J"], ["fsck"],
    ["fsck", "none"], ["fsck", "/etc"], ["last", "none"], ["last", "."], ["last", ""], ["trust"], ["trust", "none"],
    ["trust", "."], ["selftest"], ["selftest", ""], ["selftest", "none/none"], ["selftest", "/dev/null"], ["--json"],
    ["--version"], ["show", "--params"], ["LIST"], ["list", "--json", "--json", "none"],
]  # fmt: skip


def test_G_the_command_for_sessions_refuses_in_one_line(cold: Cold, tmp_path: Path) -> None:
    found = [line for argv in SESSIONS for line in cold.complaints("sessions", *argv, cwd=tmp_path)]

    assert found == []


ID = ["--model", "CartPole-v1"]
_WRAPPERS = "digideep.environment.wrappers.config"
_STACK = f'{{"type": "{_WRAPPERS}:FrameStackConfig", "n": 2}}'
# What `--wrappers` does not take, and a word that the line has to say of each.
NO_WRAPPERS: Mapping[str, str] = {
    **dict.fromkeys(["", " ", "{", "[{}", f"[{_STACK}", f"[{_STACK},]", '[{"n": 1, "n": 2}]'], "--wrappers"),
    **dict.fromkeys(["{}", "null", "3", '"x"', "[1]", "[[]]", _STACK, "[" * 3000], "--wrappers"),
    "\udcff": "command line",
    "[{}]": "/env/wrappers/0",
    '[{"n": 2}]': "/env/wrappers/0",
    '[{"type": 3}]': "/env/wrappers/0/type",
    '[{"type": "x"}]': "/env/wrappers/0/type",
    '[{"type": "none_at_all:X"}]': "none_at_all",
    '[{"type": "os:system"}]': "os:system",
    '[{"type": "digideep.environment.config:EnvConfig"}]': "EnvConfig",
    f'[{{"type": "{_WRAPPERS}:FrameStack"}}]': "'FrameStack'",
    f'[{{"type": "{_WRAPPERS}:FrameStackConfig", "m": 2}}]': "'m'",
    f'[{{"type": "{_WRAPPERS}:FrameStackConfig", "n": "x"}}]': "/env/wrappers/0/n",
    f'[{_STACK}, {{"type": "{_WRAPPERS}:FrameStackConfig", "n": 0}}]': "/env/wrappers/1/n",
    f'[{{"type": "{_WRAPPERS}:AtariPreprocessingConfig"}}]': "AtariPreprocessingConfig",
    f'[{{"type": "{_WRAPPERS}:MaskObservationConfig", "keep": [9]}}]': "MaskObservation",
}
PLAY: Sequence[Sequence[str]] = [
    [], ["--model"], ["--model", ""], ["--model="], ["--model", "CartPol-v1"], ["--model", "CartPole-v9"],
    ["--model", "a b"], ["--model", "\udcff"], ["--model", "x\n\x1b[2J"], ["--model", "none_at_all:X-v0"],
    ["--model", ":CartPole-v1"], ["--model", "../x:Y-v0"], ["--model", "CartPole-v1:"], [*ID, "--modul", "x"],
    [*ID, "--module", ""], [*ID, "--module", "none_at_all"], [*ID, "--module", "../x"], [*ID, "extra"],
    [*ID, "--env-kwargs"], [*ID, "--env-kwargs", ""], [*ID, "--env-kwargs", "{"], [*ID, "--env-kwargs", "[1]"],
    [*ID, "--env-kwargs", '{"none_at_all": 1}'], [*ID, "--wrappers"], ["--wrappers", "[]"],
    [*ID, "--wrappers", "[]", "--wrappers", "[]"],
]  # fmt: skip
PLAY_ONLY: Sequence[Sequence[str]] = [
    [*ID, "--runs", "0"], [*ID, "--runs", "x"], [*ID, "--runs", "-1"], [*ID, "--runs"], [*ID, "--n-step", "1.5"],
    [*ID, "--n-step", "\u0663"], [*ID, "--delay", "-1"], [*ID, "--delay", "nan"], [*ID, "--delay", "inf"],
    [*ID, "--runs", "9" * 5000], [*ID, "--no-action=1"], [*ID, "--replay", "x"], ["--replay", "none"], ["--replay", ""],
    ["--replay", "/dev/null"], ["--replay"], ["--list-include", "("], ["--list-include", "[", "--list-exclude", "x"],
    [*ID, "--list-exclude", "x"], ["--list-include", ".", "--list-exclude", "("], ["--list-include"], ["--pdb"],
    [*ID, "--pdb"], ["--list-include", ".", "--module", "none_at_all"],
    ["--list-include", ".", "--wrappers", "[]"],
    [*ID, "--trust-session"], ["--trust-session"], ["--trust-session", "--replay", "none"],
]  # fmt: skip


@pytest.mark.parametrize("program", ["play", "check"])
def test_G_the_commands_for_environments_refuse_in_one_line(cold: Cold, tmp_path: Path, program: str) -> None:
    cases = [*PLAY, *(PLAY_ONLY if program == "play" else [])]

    found = [line for argv in cases for line in cold.complaints(program, *argv, cwd=tmp_path, heavy=["gymnasium"])]

    assert found == []


@pytest.mark.parametrize("program", ["play", "check"])
def test_G_wrappers_that_do_not_fit_are_named(cold: Cold, tmp_path: Path, program: str) -> None:
    found: list[str] = []
    for value, name in NO_WRAPPERS.items():
        words = [*ID, "--wrappers", value]
        found += cold.complaints(program, *words, cwd=tmp_path, names=[name], heavy=["gymnasium"])

    assert found == []


@pytest.mark.parametrize("program", ["play", "check"])
def test_G_wrappers_that_fit_are_taken(cold: Cold, tmp_path: Path, program: str) -> None:
    few = ["--n-step", "3"] if program == "play" else []

    answers = {
        value: cold.ask(program, *ID, *few, "--wrappers", value, cwd=tmp_path)
        for value in ("[]", f"[{_STACK}]", f"[{_STACK}, {_STACK}]")
    }

    assert {value: (answer.code, answer.err) for value, answer in answers.items()} == dict.fromkeys(answers, (0, ""))
    assert [answer.heavy for answer in answers.values()] == [["gymnasium"]] * 3
    if program == "check":
        assert [shape for shape in ("(4,)", "(2, 4)", "(2, 2, 4)") if shape not in str(answers)] == []


def test_G_the_tables_know_every_option_of_the_other_programs() -> None:
    known = {option for action in play_parser()._actions for option in action.option_strings}
    tried = {word.partition("=")[0] for argv in (*PLAY, *PLAY_ONLY) for word in argv if word.startswith("--")}
    commands = next(a for a in sessions_parser()._actions if isinstance(a, argparse._SubParsersAction))

    assert known - {"-h", "--help", "--render"} <= tried
    assert set(commands.choices) <= {argv[0] for argv in SESSIONS if argv}
