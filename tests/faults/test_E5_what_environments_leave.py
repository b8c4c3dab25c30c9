"""E2, E5: what an environment of this process starts ends with the program, and whatever it raises is its failure."""

from __future__ import annotations

import functools
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes import Ended, Program, rows, wait_until
from lasting_parts import NAME
from signalling import hang_in

PATHS = {"PYTHONPATH": str(Path(__file__).resolve().parent)}
SMALL = (f"model_name={NAME}", "num_envs=2", "epoch_size=1", "number_epochs=1", "test_activate=false")


def lasting(*, num_workers: int = 0, **kwargs: Any) -> list[str]:
    return [*SMALL, f"num_workers={num_workers}", f"env_kwargs={json.dumps(kwargs)}"]


@pytest.mark.parametrize("leaves", ["thread", "process", "fork"])
def test_E5_what_an_environment_of_this_process_has_started_ends_with_the_program(
    digideep: Callable[..., Ended], toy: Callable[..., list[str]], leaves: str
) -> None:
    ended = digideep(*toy("one", *lasting(leaves=leaves)), env=PATHS)

    told = [line for line in ended.err.splitlines() if "the program ends without its threads" in line]
    assert [line.count("lasting") for line in told] == ([2] if leaves == "thread" else [])


def test_E5_what_an_environment_has_started_ends_with_a_run_that_is_given_up(
    start: Callable[..., Program], toy: Callable[..., list[str]], tmp_path: Path
) -> None:
    flag = tmp_path / "hangs"
    before = functools.partial(hang_in, "digideep.agent.ppo.agent:PPOAgent.update", flag=str(flag), call=1)
    program = start(*toy("one", *lasting(leaves="process"), "grace_s=1"), before=before, env=PATHS)
    wait_until(flag.exists)

    program.send(signal.SIGTERM)

    assert program.end().code == 143


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize(
    ("raises", "named"),
    [("cancelled", "CancelledError"), ("leaving", "Leaving"), ("interrupt", "KeyboardInterrupt"), ("mute", "Mute")],
)
def test_E2_whatever_an_environment_raises_is_its_failure(
    digideep: Callable[..., Ended], toy: Callable[..., list[str]], raises: str, named: str, num_workers: int
) -> None:
    ended = digideep(*toy("one", *lasting(raises=raises, num_workers=num_workers)), expect=7, env=PATHS)

    last = ended.err.splitlines()[-1]
    assert f"environment 0 ({NAME}, worker 0, seed " in last
    assert f"episode 0, step 3): {named}" in last


@pytest.mark.parametrize("num_workers", [0, 1])
def test_E2_whatever_an_environment_raises_can_be_forgiven(
    digideep: Callable[..., Ended], toy: Callable[..., list[str]], num_workers: int
) -> None:
    given = lasting(raises="cancelled", num_workers=num_workers)
    ended = digideep(*toy("one", *given, "on_env_error=reset", "env_error_budget=1000"), env=PATHS)

    assert json.loads((ended.session / "summary.json").read_text())["env_errors"] > 0


def test_J2_metrics_without_end_are_cut_and_the_first_that_is_left_out_is_named(
    digideep: Callable[..., Ended], toy: Callable[..., list[str]]
) -> None:
    ended = digideep(*toy("one", *lasting(metrics=20_000)), env=PATHS)

    (row,) = rows(ended.session / "varlog.jsonl")
    assert sum(name.startswith("env/") for name in row["data"]) == 1000
    assert [line.count("env/m1000: left out") for line in ended.err.splitlines() if "left out" in line] == [1]


def test_G_a_parameter_file_that_raises_an_interrupt_is_wrong_input(
    digideep: Callable[..., Ended], tmp_path: Path
) -> None:
    file = tmp_path / "interrupting.py"
    file.write_text("raise KeyboardInterrupt\n")

    ended = digideep("--params", str(file), expect=2)

    assert ended.err == (
        f"digideep: error: {file}:1: expected code that runs, found KeyboardInterrupt; correct it there\n"
    )


@pytest.mark.parametrize("moments", [{}, {"learnt 1": ["SIGTERM"]}], ids=["goal", "TERM"])
def test_A3_a_run_whose_session_was_removed_ends_with_9_and_makes_nothing_in_its_place(
    start: Callable[..., Program], toy: Callable[..., list[str]], tmp_path: Path, moments: dict[str, list[str]]
) -> None:
    program = start(*toy("one", *lasting(removes=str(tmp_path / "one"))), env=PATHS, moments=moments)

    ended = program.end()

    assert ended.code == 9, ended.err
    assert not (tmp_path / "one").exists()
