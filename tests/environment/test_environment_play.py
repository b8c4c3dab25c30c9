from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from digideep.environment.play import main

MODULE = """
import gymnasium
from digideep.testing import ToyEnv
gymnasium.register("MyToy-v0", ToyEnv, max_episode_steps=2)
"""


def play(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


def test_spaces_runs_and_their_mean_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = play("--model", "CartPole-v1", "--runs", "3", capsys=capsys)

    lines = out.splitlines()
    assert (code, err, len(lines)) == (0, "", 7)
    assert lines[0] == "CartPole-v1"
    assert lines[1].startswith("observation  box (4,) of float32, [-4.8, -inf, -0.418879, -inf] to ")
    assert lines[2] == "action       discrete, 0 to 1"
    found = [re.fullmatch(r"run (\d): return ([\d.]+), length (\d+), terminated", line) for line in lines[3:6]]
    assert all(match is not None and float(match[2]) == int(match[3]) for match in found)
    assert re.fullmatch(r"mean return [\d.]+ \+- [\d.]+ over 3 episodes", lines[6])


def test_the_same_command_shows_the_same_episodes(capsys: pytest.CaptureFixture[str]) -> None:
    first = play("--model", "CartPole-v1", "--runs", "2", capsys=capsys)

    assert play("--model", "CartPole-v1", "--runs", "2", capsys=capsys) == first


def test_a_run_ends_after_n_steps_and_without_action_it_does_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = play("--model", "MountainCarContinuous-v0", "--n-step", "4", "--no-action", capsys=capsys)

    assert out.splitlines()[-2:] == [
        "run 0: return 0, length 4, stopped by --n-step",
        "mean return 0 +- 0 over 1 episodes",
    ]


def test_a_pause_follows_each_step(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)

    play("--model", "Pendulum-v1", "--n-step", "3", "--delay", "20", capsys=capsys)

    assert pauses == [0.02, 0.02, 0.02]


def test_a_module_of_the_users_registers_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my_toys.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))

    for arguments in (["--model", "MyToy-v0", "--module", "my_toys"], ["--model", "my_toys:MyToy-v0"]):
        code, out, _ = play(*arguments, capsys=capsys)

        assert (code, "length 2, truncated" in out) == (0, True)
    assert play("--list-include", "MyT", "--module", "my_toys", capsys=capsys) == (0, "MyToy-v0\n", "")


def test_registered_ids_are_listed_by_pattern(capsys: pytest.CaptureFixture[str]) -> None:
    assert play("--list-include", "^CartPole", capsys=capsys)[1] == "CartPole-v0\nCartPole-v1\n"
    assert play("--list-include", "Cart", "--list-exclude", "v0|phys", capsys=capsys)[1] == "CartPole-v1\n"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "one of the arguments --model --replay --list-include is required"),
        (["--model", "CartPole-v1", "--replay", "x"], 2, "not allowed with argument --model"),
        (["--model", "CartPole-v1", "--runs", "0"], 2, "--runs: expected a whole number above 0, found '0'"),
        (["--model", "CartPole-v1", "--runs", "9" * 30], 2, "--runs: expected a whole number"),
        (["--model", "CartPole-v1", "--delay", "nan"], 2, "--delay: expected milliseconds from 0 on, found 'nan'"),
        (["--model", "CartPole-v1", "--typo"], 2, "--typo: expected an option that exists, found an unknown option"),
        (["--model", "CartPol-v1"], 2, "did you mean 'CartPole-v1'?"),
        (["--model", "CartPole-v1", "--module", "no_such"], 2, "no_such"),
        (["--list-include", "("], 2, "--list-include: expected a regular expression, found '('"),
        (["--list-include", ".", "--list-exclude", "["], 2, "--list-exclude: expected a regular expression"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    result, out, err = play(*arguments, capsys=capsys)

    assert (result, out) == (code, "")
    assert err.startswith("digideep: error: ") and message in err
    assert err.count("\n") == 1


def test_an_environment_that_raises_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my_bad.py").write_text(
        "import gymnasium\nfrom digideep.testing import FaultyEnv\n"
        "gymnasium.register('MyBad-v0', FaultyEnv, kwargs={'fault': 'step'})\n"
        "gymnasium.register('MyClose-v0', FaultyEnv, kwargs={'fault': 'close'})\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))

    for name, doing in (("MyBad", "stepped"), ("MyClose", "closed")):
        code, _, err = play("--model", f"my_bad:{name}-v0", capsys=capsys)

        message = f"environment my_bad:{name}-v0 raised RuntimeError: this environment fails when it is {doing}"
        assert (code, err) == (7, f"digideep: error: {message}\n")


def test_an_environment_that_cannot_be_shown_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = play("--model", "digideep.testing:Toy-v0", "--render", capsys=capsys)

    assert (code, err.endswith("found that Toy-v0 cannot be rendered; it takes no render_mode\n")) == (2, True)


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "digideep.environment.play", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )


def test_a_window_opens_and_a_missing_pygame_is_named() -> None:
    pytest.importorskip("pygame")

    shown = run("--model", "CartPole-v1", "--n-step", "2", "--render", SDL_VIDEODRIVER="dummy")

    assert (shown.returncode, "length 2" in shown.stdout) == (0, True)


def test_a_missing_pygame_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "pygame", None)

    code, _, err = play("--model", "CartPole-v1", "--render", capsys=capsys)

    assert code == 2
    assert err.endswith('pip install "digideep[video]"\n') and err.count("\n") == 1


def test_help_and_mistakes_import_no_gymnasium() -> None:
    code = (
        "import sys; from digideep.environment.play import main\n"
        "from digideep.environment import check\n"
        "assert main(['--runs']) == 2 and check.main(['--model']) == 2\n"
        "print(sorted({'torch', 'gymnasium', 'numpy'} & set(sys.modules)))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


DIES = """
import os, sys
from digideep.environment.play import _survive, run_command

def walk():
    if {held} and os.fork() == 0:
        for stream in (1, 2):
            os.close(stream)
        os.read(0, 1)  # until the test is over
        os._exit(0)
    os.kill(os.getpid(), {number})

sys.exit(run_command(lambda argv: _survive(walk, where="here"), None))
"""


@pytest.mark.parametrize(
    ("number", "name", "held"),
    [(signal.SIGSEGV, "SIGSEGV", False), (signal.SIGRTMIN + 6, "unknown", False), (signal.SIGKILL, "SIGKILL", True)],
)
def test_a_death_in_a_replay_is_told_whatever_the_signal_and_whoever_lives_on(
    number: int, name: str, held: bool
) -> None:
    program = DIES.format(number=int(number), held=held)

    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        code = process.wait(60)
        assert process.stderr is not None
        line = process.stderr.read()

    assert code == 7
    assert line == (
        "digideep: error: here: expected a process that goes on, found that this call killed it: "
        f"it died of signal {int(number)} ({name})\n"
    )


def test_a_closed_pipe_is_no_error() -> None:
    command = f"{sys.executable} -m digideep.environment.play --list-include . | head -1; echo ${{PIPESTATUS[0]}}"

    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)

    assert (done.stdout.splitlines()[-1], done.stderr) == ("0", "")


def test_arguments_of_the_environment_are_given_as_json_here_too(capsys: pytest.CaptureFixture[str]) -> None:
    named = ["--model", "MountainCarContinuous-v0", "--n-step", "1", "--env-kwargs"]

    assert play(*named, '{"goal_velocity": 0.01}', capsys=capsys)[0] == 0
    code, _, err = play(*named, '{"goal_velocitie": 1}', capsys=capsys)
    assert (code, "did you mean 'goal_velocity'?" in err) == (2, True)
    assert play("--list-include", "x", "--env-kwargs", "{}", capsys=capsys)[0] == 2
