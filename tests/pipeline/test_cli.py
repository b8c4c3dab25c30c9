from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

import digideep
from digideep.errors import UsageError
from digideep.pipeline.cli import Description, Listing, Notice, build_parser, from_keywords, option_names, parse
from digideep.pipeline.options import Mode, SessionOptions

NEW = ["--params", "digideep.params.cartpole_ppo"]
OLD = ["--load-checkpoint", "sessions/s1"]


def options(*argv: str) -> SessionOptions:
    request = parse(argv)
    assert isinstance(request, SessionOptions)
    return request


def complaint(*argv: str) -> str:
    with pytest.raises(UsageError) as caught:
        parse(argv)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_plain_training_has_the_documented_defaults() -> None:
    found = options(*NEW)

    assert found == SessionOptions(params="digideep.params.cartpole_ppo", command_line=tuple(NEW))
    assert (found.mode, found.checkpoint, found.device, found.log_level) == (Mode.TRAIN, "last", None, "info")
    assert (found.monitor_cpu, found.monitor_gpu, found.profiler_level) == (True, True, -1)


def test_every_option_arrives() -> None:
    found = options(
        *(*NEW, "--cpanel", '{"lr": 1e-3}', "--repeal", '{"/runner/seed": 2}', "--set", "seed=3", "/env/x=a=b"),
        *("--session-path", "d", "--session-name", "lr{lr}", "--lock-wait", "1.5", "--save-modules", "a.b", "c"),
        *("--save-modules", "d", "--msg", "a note", "--device", "cuda:1", "--tensorboard", "--tensorboard-host", "::1"),
        *("--no-monitor-cpu", "--no-monitor-gpu", "--log-level", "0", "--profiler-level", "2", "--autoresume"),
    )

    assert found.cpanel == {"lr": 0.001}
    assert found.repeal == {"/runner/seed": 2}
    assert found.assignments == (("seed", "3"), ("/env/x", "a=b"))
    assert (found.session_path, found.session_name, found.lock_wait_s) == ("d", "lr{lr}", 1.5)
    assert found.save_modules == ("a.b", "c", "d")
    assert (found.message, found.device, found.tensorboard_host) == ("a note", "cuda:1", "::1")
    assert (found.monitor_cpu, found.monitor_gpu, found.log_level, found.profiler_level) == (False, False, "debug", 2)
    assert found.autoresume


def test_options_of_play_arrive() -> None:
    found = options(
        *(*OLD, "--play", "--checkpoint", "best", "--episodes", "5", "--seed", "7", "--stochastic", "--render"),
        *("--record", "--output", "out", "--dry-run", "--code", "installed", "--trust-session"),
    )

    assert (found.mode, found.load_checkpoint, found.checkpoint) == (Mode.PLAY, "sessions/s1", "best")
    assert (found.episodes, found.seed, found.output, found.code) == (5, 7, "out", "installed")
    assert all((found.stochastic, found.render, found.record, found.dry_run, found.trust_session))
    assert found.checkpoint_named


@pytest.mark.parametrize(("text", "value"), [("last", "last"), ("best", "best"), ("12", 12)])
def test_a_checkpoint_is_a_word_or_a_number(text: str, value: object) -> None:
    found = options(*OLD, "--resume", "--checkpoint", text)

    assert found.checkpoint == value
    assert found.checkpoint_named


def test_auto_is_the_device_that_nobody_asked_for() -> None:
    assert options(*NEW, "--device", "auto").device is None


def test_check_resume_has_two_epochs_by_default() -> None:
    assert options(*NEW, "--check-resume").check_resume == 2
    assert options(*NEW, "--check-resume", "5").check_resume == 5
    assert options(*NEW).check_resume is None


def test_json_may_come_from_a_file_and_is_marked_as_such(tmp_path: Path) -> None:
    (tmp_path / "knobs.json").write_text('{"lr": 0.5}')

    found = options(*NEW, "--cpanel", f"@{tmp_path / 'knobs.json'}")

    assert found.cpanel == {"lr": 0.5}
    assert (found.cpanel_from_file, found.repeal_from_file) == (True, False)


def expected_mode(play: bool, resume: bool, load: bool, custom: bool, dry: bool, only: bool) -> Mode | None:
    """The mode table, row by row; None is a usage error."""
    table = {
        (0, 0, 0, 0, 0): Mode.TRAIN,
        (0, 0, 0, 0, 1): Mode.CREATE,
        (0, 1, 1, 0, 0): Mode.RESUME,
        (1, 0, 0, 0, 0): Mode.PLAY,
        (1, 0, 1, 0, 0): Mode.PLAY,
        (0, 0, 1, 1, 0): Mode.CUSTOM,
    }
    mode = table.get((play, resume, load, custom, only))
    return None if dry and mode in (Mode.CREATE, Mode.RESUME) else mode


@pytest.mark.parametrize("flags", list(itertools.product([False, True], repeat=6)))
def test_exactly_the_rows_of_the_mode_table_are_taken(flags: tuple[bool, ...]) -> None:
    names = ["--play", "--resume", "--load-checkpoint", "--custom", "--dry-run", "--create-session-only"]
    given = [name for name, on in zip(names, flags, strict=True) if on]
    argv = [word for name in given for word in ([name, "s"] if name == "--load-checkpoint" else [name])]
    argv += [] if "--load-checkpoint" in given else NEW

    expected = expected_mode(*flags)

    if expected is not None:
        assert options(*argv).mode is expected
    else:
        message = complaint(*argv)
        assert any(message.startswith(name) for name in given)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--play", "--resume", *OLD], "--resume, --play: expected at most one of them, found both; leave one out"),
        ([*OLD], "--load-checkpoint: expected --resume, --play or --custom with it, found none; say what to do"),
        (["--resume"], "--resume: expected --load-checkpoint with it, found none; add --load-checkpoint <session"),
        (["--play"], "--play: expected --params NAME or --load-checkpoint PATH, found none; --list-params"),
        ([], "--params: expected a parameter module, found none; --list-params lists the presets"),
        ([*NEW, *OLD, "--resume"], "--params, --load-checkpoint: expected one of them, found both; a session has its"),
        ([*OLD, "--resume", "--session-name", "x"], "--session-name, --load-checkpoint: expected at most one of them"),
        ([*OLD, "--resume", "--save-modules", "x"], "--save-modules, --load-checkpoint: expected at most one of them"),
        ([*NEW, "--episodes", "3"], "--episodes: expected --play with it, found none; add --play or leave"),
        ([*NEW, "--seed", "0"], "--seed: expected --play with it, found none; use --play, or --set seed=N"),
        ([*OLD, "--resume", "--record"], "--record: expected --play with it, found none"),
        ([*NEW, "--checkpoint", "best"], "--checkpoint: expected --load-checkpoint with it, found none"),
        ([*NEW, "--code", "session"], "--code: expected --load-checkpoint with it, found none"),
        ([*NEW, "--trust-session"], "--trust-session: expected --load-checkpoint or --autoresume with it"),
        ([*NEW, "--autoresume", "--dry-run"], "--autoresume, --dry-run: expected at most one of them"),
        ([*OLD, "--autoresume", "--resume"], "--autoresume, --load-checkpoint: expected at most one of them"),
        ([*NEW, "--check-resume", "--autoresume"], "--check-resume, --autoresume: expected at most one of them"),
        ([*NEW, "--check-resume", "--play"], "--check-resume, --play: expected at most one of them"),
        ([*NEW, "--tensorboard-host", "h"], "--tensorboard-host: expected --tensorboard with it, found none"),
        (["--json"], "--json: expected --list-params or --describe with it, found neither"),
        (["--list-params", *NEW], "--list-params: expected nothing but --json with it, found '--params'"),
        ([*NEW, "--describe", "--play"], "--describe: expected --params NAME and no mode with it"),
    ],
)
def test_options_that_clash_are_named(argv: list[str], message: str) -> None:
    assert complaint(*argv).startswith(message)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            ["--parms", "x"],
            "--parms: expected an option that exists, found an unknown option; did you mean '--params'?",
        ),
        (
            [*NEW, "--epsiodes=3"],
            "--epsiodes: expected an option that exists, found an unknown option; did you mean '--episodes'?",
        ),
        (
            [*NEW, "--play", "--episode", "3"],
            "--episode: expected an option that exists, found an unknown option; did you mean '--episodes'?",
        ),
        (
            [*NEW, "--qqqqqqqqqqqq"],
            "--qqqqqqqqqqqq: expected an option that exists, found an unknown option; --help shows all options",
        ),
        ([*NEW, "stray\n\x1b[2J"], "command line: expected options, found 'stray [2J'; options begin with --"),
        (["--params"], "--params: expected a value, found none"),
        (["--params", ""], "--params: expected text, found ''; give a value"),
        (
            [*NEW, "--msg", "-x"],
            "--msg: expected a value, found none; one that begins with '-' is given as --msg=",
        ),
        ([*NEW, "--dry-run=1"], "--dry-run: expected no value, found one"),
        ([*NEW, "--set", "lr"], "--set: expected KEY=VALUE, found 'lr'; write it like seed=3"),
        ([*NEW, "--set", "=3"], "--set: expected KEY=VALUE, found '=3'"),
        ([*NEW, *NEW], "--params: expected it once, found it twice; keep one of the two"),
        ([*OLD, "--resume", *OLD], "--load-checkpoint: expected it once, found it twice; keep one of the two"),
        (
            [*NEW, "--cpanel", '{"seed": 5}', "--cpanel", '{"lr": 0.1}'],
            "--cpanel: expected it once, found it twice; keep one of the two",
        ),
        ([*NEW, "--repeal", "{}", "--repeal={}"], "--repeal: expected it once, found it twice; keep one of the two"),
        ([*NEW, "--cpanel", "{"], "--cpanel: expected JSON, found"),
        ([*NEW, "--cpanel", "[1]"], "--cpanel: expected a JSON object, found '[1]'"),
        ([*NEW, "--cpanel", '{"lr": NaN}'], "--cpanel: expected a finite number, found NaN"),
        ([*NEW, "--cpanel", '{"lr": 1, "lr": 2}'], "--cpanel: expected every key once, found 'lr' twice"),
        ([*NEW, "--cpanel", "[" * 100_000], "--cpanel: expected at most 100 nested levels, found more"),
        ([*NEW, "--cpanel", "@none.json"], "--cpanel: none.json: expected a JSON file, found none; check the path"),
        ([*NEW, "--repeal", '{"lr": 1}'], "--repeal: expected paths such as '/runner/n_epochs', found 'lr'"),
        ([*NEW, "--repeal", '{"": 1}'], "--repeal: expected paths such as"),
        ([*NEW, "--session-name", "../x"], "--session-name: expected a letter or _ and at most 80 of"),
        ([*NEW, "--session-name", "x" * 82], "--session-name: expected a letter or _ and at most 80 of"),
        ([*NEW, "--session-name", "a{b"], "--session-name: expected a letter or _ and at most 80 of"),
        ([*NEW, "--session-name", "x\n"], "--session-name: expected a letter or _ and at most 80 of"),
        ([*NEW, "--lock-wait", "nan"], "--lock-wait: expected seconds from 0, found 'nan'"),
        ([*NEW, "--lock-wait", "-1"], "--lock-wait: expected seconds from 0, found '-1'"),
        ([*NEW, "--save-modules", "a-b"], "--save-modules: expected the dotted name of a package, found 'a-b'"),
        ([*NEW, "--play", "--episodes", "0"], "--episodes: expected an integer from 1, found '0'"),
        ([*NEW, "--play", "--episodes", "1e3"], "--episodes: expected an integer from 1, found '1e3'"),
        ([*NEW, "--play", "--seed", "-1"], "--seed: expected an integer from 0, found '-1'"),
        ([*NEW, "--play", "--seed", "9" * 5000], "--seed: expected an integer from 0, found '999"),
        ([*NEW, "--check-resume", "0"], "--check-resume: expected an integer from 1, found '0'"),
        ([*OLD, "--resume", "--checkpoint", "newest"], "--checkpoint: expected last, best or a number, found 'newest'"),
        ([*OLD, "--resume", "--checkpoint", "-1"], "--checkpoint: expected last, best or a number, found '-1'"),
        ([*OLD, "--resume", "--code", "sesion"], "--code: expected session or installed, found 'sesion'; did you mean"),
        ([*NEW, "--device", "gpu"], "--device: expected auto, cpu, cuda or cuda:N, found 'gpu'"),
        ([*NEW, "--device", "cuda:x"], "--device: expected auto, cpu, cuda or cuda:N, found 'cuda:x'"),
        ([*NEW, "--log-level", "5"], "--log-level: expected debug, info, warn, error, fatal or 0 to 4, found '5'"),
        (
            [*NEW, "--log-level", "wran"],
            "--log-level: expected debug, info, warn, error, fatal or 0 to 4, found 'wra",
        ),
        ([*NEW, "--profiler-level", "-2"], "--profiler-level: expected an integer from -1, found '-2'"),
    ],
)
def test_a_value_of_another_form_is_told_what_was_expected(argv: list[str], message: str) -> None:
    assert complaint(*argv).startswith(message)


def test_abbreviations_are_not_taken() -> None:
    assert complaint(*NEW, "--dry").endswith("found an unknown option; did you mean '--dry-run'?")


@pytest.mark.parametrize("level", ["debug", "info", "warn", "error", "fatal"])
def test_log_levels_have_names_and_numbers(level: str) -> None:
    number = ["debug", "info", "warn", "error", "fatal"].index(level)

    assert options(*NEW, "--log-level", level).log_level == level
    assert options(*NEW, "--log-level", str(number)).log_level == level


def test_help_shows_every_option_and_an_example() -> None:
    request = parse(["--help"])

    assert isinstance(request, Notice)
    assert all(name in request.text for name in option_names())
    assert "--load-checkpoint <session> --resume" in request.text
    assert max(len(line) for line in request.text.splitlines()) <= 120


def test_help_and_version_answer_whatever_follows() -> None:
    assert isinstance(parse(["-h", "--nonsense"]), Notice)
    assert parse(["--version"]) == Notice(f"digideep {digideep.__version__}\n")


def test_lists_and_descriptions_are_requests_of_their_own() -> None:
    assert parse(["--list-params"]) == Listing(as_json=False)
    assert parse(["--list-params", "--json"]) == Listing(as_json=True)
    described = parse([*NEW, "--describe", "--json", "--set", "lr=1"])
    assert isinstance(described, Description)
    assert (described.as_json, described.options.assignments) == (True, (("lr", "1"),))


def test_keywords_do_what_options_do() -> None:
    found = from_keywords(
        "digideep.params.cartpole_ppo",
        {"lr": 0.1},
        session_name="x",
        lock_wait=3,
        save_modules=["a", "b"],
        set={"seed": 3, "stop_return": None, "/env/model_name": "X-v0"},
        device=None,
    )

    assert found == SessionOptions(
        params="digideep.params.cartpole_ppo",
        cpanel={"lr": 0.1},
        assignments=(("seed", "3"), ("stop_return", "null"), ("/env/model_name", "X-v0")),
        session_name="x",
        lock_wait_s=3.0,
        save_modules=("a", "b"),
        from_python=True,
    )
    assert from_keywords(load_checkpoint="s", resume=True, checkpoint=3).mode is Mode.RESUME
    assert from_keywords("p", check_resume=True).check_resume == 2


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        (
            {"sesion_name": "x"},
            r"^run: expected a keyword that exists, found the unknown keyword "
            r"'sesion_name'; did you mean 'session_name'\?$",
        ),
        ({"describe": True}, r"^run: expected a keyword that exists, found the unknown keyword 'describe'"),
        ({"dry_run": "yes"}, r"^dry_run: expected True or False, found 'yes'"),
        ({"episodes": 0, "play": True}, r"^episodes: expected an integer from 1, found '0'"),
        ({"repeal": []}, r"^repeal: expected a mapping, found '\[\]'"),
        ({"resume": True}, r"^--resume: expected --load-checkpoint with it"),
    ],
)
def test_wrong_keywords_are_told_like_wrong_options(keywords: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        from_keywords("digideep.params.cartpole_ppo", **keywords)


def test_parsers_do_not_share_anything() -> None:
    options(*NEW, "--set", "a=1")

    assert options(*NEW, "--set", "b=2").assignments == (("b", "2"),)
    assert build_parser().parse_args([]).set is None


def test_the_command_line_imports_nothing_heavy_and_quickly() -> None:
    code = (
        "import json, sys, time; t = time.process_time()\n"
        "from digideep.pipeline.cli import parse\n"
        "parse(['--help'])\n"
        "heavy = [m for m in ('torch', 'numpy', 'gymnasium', 'yaml', 'safetensors') if m in sys.modules]\n"
        "print(json.dumps([heavy, time.process_time() - t]))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy, seconds = json.loads(done.stdout)

    assert heavy == []
    assert seconds < 5 * 0.06, "five times the promise, for a busy machine"


def test_help_of_the_program_is_quick() -> None:
    begin = time.perf_counter()

    done = subprocess.run([sys.executable, "-m", "digideep.main", "--help"], capture_output=True, text=True, check=True)

    assert done.stdout.startswith("usage: python -m digideep.main --params NAME [options]\n")
    assert done.stderr == ""
    assert time.perf_counter() - begin < 5 * 0.2, "five times the promise, for a busy machine"
