"""The same command again goes on where it was killed, and is 0 where all is done."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import fakes
import pytest
from fakes import TOY, Ended, differences

Run = Callable[..., Ended]


def test_C8_the_same_command_resumes_and_finally_is_done(command: Run, digideep: Run, tmp_path: Path) -> None:
    argv = ["--autoresume", "--params", TOY, "--session-path", str(tmp_path), "--lock-wait", "0"]
    sets = ["--set", "test_win_size=1"]
    first = digideep(*argv, *sets, moments={"learnt 3": ["SIGTERM"]}, expect=143)
    second = digideep(*argv, *sets, moments={"cycle 6": ["SIGKILL"]}, expect=-9)
    third = digideep(*argv, *sets)
    fourth = digideep(*argv, *sets)

    stands = second.saved[-1] if second.saved else "checkpoint-3"
    assert [ended.out[1] for ended in (first, second, fourth)] == [
        "autoresume: new", "autoresume: resumed checkpoint-3", "autoresume: done",
    ]  # fmt: skip
    # What was under way when the process was killed may be complete without having been announced.
    assert third.out[1] in (f"autoresume: resumed {stands}", "autoresume: resumed checkpoint-4")
    assert [ended.session for ended in (second, third, fourth)] == [first.session] * 3
    assert fourth.out == [f"session: {first.session}", "autoresume: done"]
    straight = command("--params", TOY, "--session-path", str(tmp_path), "--session-name", "straight", *sets)
    assert differences(straight.session, first.session) == []


def test_C8_a_command_that_is_killed_while_it_makes_its_session_makes_it_again(digideep: Run, tmp_path: Path) -> None:
    argv = ["--autoresume", "--params", TOY, "--session-path", str(tmp_path), "--session-name", "named"]
    sets = ["--set", "test_win_size=1", "number_epochs=1"]
    digideep(*argv, *sets, moments={"start": ["SIGKILL"]}, expect=-9)

    first = digideep(*argv, *sets, moments={"save 0": ["SIGKILL"]}, expect=-9)
    second = digideep(*argv, *sets)

    assert first.out[1] == "autoresume: new"
    assert second.out[1] == "autoresume: restarted, no checkpoint yet"


@pytest.mark.nightly
def test_C8_a_command_with_a_file_of_parameters_goes_on_where_the_installed_code_has_changed(
    execute: Run, tmp_path: Path
) -> None:
    """An update between two jobs has the session run its own code, in which there is a copy of that file."""
    code, digideep = tmp_path / "code", Path(fakes.__file__).parents[1] / "digideep"
    shutil.copytree(digideep, code / "digideep", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(digideep.parent / "sessions_template", code / "digideep" / "sessions_template")
    (tmp_path / "my_params.py").write_text(
        "from digideep.params.cartpole_ppo import cpanel as base, gen_params\n"
        "cpanel = {**base, 'number_epochs': 2, 'total_frames': 0, 'n_steps': 8, 'num_envs': 2, 'epoch_size': 1,\n"
        "          'test_activate': False, 'stop_return': None, 'max_exec_iter': 1}\n"
    )
    argv = ["--autoresume", "--params", str(tmp_path / "my_params.py"), "--session-path", str(tmp_path / "sessions")]
    first = execute(*argv, env={"PYTHONPATH": str(code)}, expect=75)
    with (code / "digideep" / "errors.py").open("a") as file:
        file.write("# another version\n")

    second = execute(*argv, env={"PYTHONPATH": str(code)})

    assert second.out[:2] == [first.out[0], "autoresume: resumed checkpoint-1"]
    assert "code: the session's own, which differs in digideep/errors.py" in second.err


def test_C8_an_edited_file_of_parameters_goes_on_with_what_the_session_was_made_with(
    execute: Callable[..., Ended], tmp_path: Path
) -> None:
    file = tmp_path / "mine.py"
    file.write_text("from digideep.params.cartpole_ppo import cpanel, gen_params\n")
    sets = [
        "num_envs=2",
        "n_steps=8",
        "epoch_size=1",
        "number_epochs=3",
        "total_frames=0",
        "stop_return=null",
        "max_exec_iter=1",
        "test_activate=false",
    ]
    argv = ["--params", "mine.py", "--session-path", str(tmp_path), "--autoresume", "--no-monitor-gpu", "--set", *sets]
    first = execute(*argv, expect=75)
    file.write_text(file.read_text() + "\n# edited\n")

    again = execute(*argv, expect=75)

    assert again.out[1] == "autoresume: resumed checkpoint-1", first.out
    (told,) = [line for line in again.err.splitlines() if "was edited since" in line]
    assert str(file) in told and "--code installed" in told
