"""An exception in an environment is one line, and ends either the run or, where that is asked for, its episode."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from failing_parts import ALLOWED, NAME, copied, explorer
from fakes import Ended, read, rows

from digideep.environment.config import EnvConfig
from digideep.environment.crash import read_crash, replay_crash, write_crash
from digideep.environment.recovery import Supervision
from digideep.environment.vec.restart import RestartBudget
from digideep.errors import EnvironmentFailure

PATHS = {"PYTHONPATH": str(Path(__file__).resolve().parent)}


def once() -> Supervision:
    """Return a supervision that replaces no worker."""
    return Supervision(RestartBudget(0))


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize(
    ("call", "at", "place"),
    [("step", 3, "episode 0, step 3"), ("reset", 1, "episode 1, step 0"), ("reset", 0, "episode 0, step 0")],
)
def test_E2_an_exception_is_one_line_with_its_place(num_workers: int, call: str, at: int, place: str) -> None:
    made = explorer(num_workers=num_workers, kwargs={"call": call, "fault": "raise", "at": at})

    with contextlib.closing(made), pytest.raises(EnvironmentFailure) as raised:
        made.update()

    assert re.fullmatch(
        rf"environment 0 \({NAME}, worker 0, seed \d+, {place}\): KeyError: 'torque'", str(raised.value)
    )
    assert 'raise KeyError("torque")' in raised.value.traceback_text  # type: ignore[attr-defined]
    assert raised.value.exit_code == 7


@pytest.mark.parametrize("num_workers", [0, 1])
def test_E2_an_exception_in_close_ends_nothing(num_workers: int, caplog: pytest.LogCaptureFixture) -> None:
    made = explorer(num_workers=num_workers, kwargs={"call": "close", "fault": "raise"})
    made.update()

    with caplog.at_level(logging.INFO):
        made.close()

    said = [record.getMessage() for record in caplog.records if "close() raised" in record.getMessage()]
    speaker = "worker 0: " if num_workers else ""
    assert said == [f"{speaker}{NAME}: close() raised KeyError: 'torque'"] * 3


def settings(**fields: Any) -> dict[str, Any]:
    return {"on_env_error": "reset", "on_nonfinite": "reset", "env_error_budget": 1000, "num_envs": 4, **fields}


@pytest.mark.parametrize("fault", ["raise", "nan", "nan reward"])
def test_E2_forgiven_errors_give_the_same_numbers_whatever_the_workers(fault: str) -> None:
    results = []
    for num_workers in (0, 3):
        made = explorer(**settings(num_workers=num_workers), n_steps=32, kwargs={"fault": fault, "rate": 0.1})
        with contextlib.closing(made):
            chunks = [copied(made.update()) for _ in range(3)]
            results.append((chunks, made.episodes(), made.env_errors))

    (chunks, episodes, errors), *others = results
    assert errors > 5
    for other_chunks, other_episodes, other_errors in others:
        assert (other_episodes, other_errors) == (episodes, errors)
        for one, other in zip(chunks, other_chunks, strict=True):
            assert {key for key in one if one[key].tobytes() != other[key].tobytes()} == set()
    # What was dropped is no episode, and no transition of it is real.
    assert all((episode.length, episode.return_) == (5, 5.0) for episode in episodes)


def test_E2_the_state_after_forgiven_errors_resumes_to_the_same_bits() -> None:
    made = explorer(**settings(), n_steps=32, kwargs={"fault": "raise", "rate": 0.1})
    again = explorer(**settings(num_workers=2), n_steps=32, kwargs={"fault": "raise", "rate": 0.1})
    with contextlib.closing(made), contextlib.closing(again):
        made.update()
        state = made.state_dict()
        expected = copied(made.update())
        again.load_state_dict(state)
        found = copied(again.update())

        assert again.env_errors == made.env_errors > 0
        assert {key for key in expected if expected[key].tobytes() != found[key].tobytes()} == set()


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("call", ["step", "reset"])
def test_E2_a_crash_loop_inside_one_chunk_ends_at_the_budget(num_workers: int, call: str) -> None:
    fields = settings(num_workers=num_workers, env_error_budget=5, num_envs=2)
    made = explorer(**fields, n_steps=1000, kwargs={"call": call, "fault": "raise", "at": 1 if call == "step" else 0})

    with contextlib.closing(made), pytest.raises(EnvironmentFailure) as raised:
        made.update()

    text = str(raised.value)
    assert "env_error_budget 5 is spent; the first of this process was: environment 0 (" in text
    assert "\n" not in text
    assert made.env_errors == 5
    assert made._vec.tick <= 3


@pytest.mark.parametrize("num_workers", [0, 1])
def test_E2_an_environment_that_cannot_be_made_again_ends_at_the_budget(num_workers: int, tmp_path: Path) -> None:
    kwargs = {"call": "again", "mark": str(tmp_path / "made"), "at": 2}
    made = explorer(**settings(env_error_budget=3, num_envs=1, num_workers=num_workers), kwargs=kwargs)

    with contextlib.closing(made), pytest.raises(EnvironmentFailure, match="env_error_budget 3 is spent") as raised:
        made.update()

    text = str(raised.value)
    assert "making it with env_kwargs" in text and "raised ValueError: there is only one of these" in text
    assert text.endswith("KeyError: 'torque'")


@pytest.mark.parametrize("num_workers", [0, 2])
def test_E2_an_evaluation_plays_another_episode_for_one_that_failed(num_workers: int) -> None:
    made = explorer(
        mode="test",
        **settings(num_workers=num_workers, num_envs=2),
        n_episodes=6,
        kwargs={"fault": "raise", "rate": 0.1},
    )
    with contextlib.closing(made):
        episodes = made.evaluate()

    assert [episode.number for episode in episodes] == list(range(6))
    assert {episode.length for episode in episodes} == {5}
    assert made.env_errors > 0
    assert [episode.seed for episode in episodes] == SEEDS


SEEDS = [1532949860, 660166716, 1407690508, 367255064, 2056000232, 651905813]


@pytest.mark.parametrize(
    ("fault", "num_workers"), [("raise", 0), ("raise", 1), ("nan", 0), ("nan", 1), ("kill", 1), ("hang", 1)]
)
def test_E2_a_replay_walks_to_the_same_step(
    fault: str, num_workers: int, tmp_path: Path, execute: Callable[..., Ended]
) -> None:
    kwargs = {"fault": fault, "at": 4, "length": 6}
    made = explorer(
        num_workers=num_workers, num_envs=1, n_steps=64, kwargs=kwargs, step_timeout_s=1.0, supervision=once()
    )
    with contextlib.closing(made), pytest.raises(Exception) as raised:
        made.update()
    crash = raised.value.crash  # type: ignore[attr-defined]
    config = EnvConfig(model_name=NAME, env_kwargs=kwargs)
    write_crash(tmp_path / "crash", config, error=raised.value, **crash)

    assert (crash["phase"], crash["step"], crash["episode"]) == ("step", 4, 0)
    if fault == "raise":
        with pytest.raises(KeyError, match="torque"):
            replay_crash(read_crash(tmp_path), allowed=ALLOWED)
    elif fault == "kill":
        ended = execute(
            "--replay", str(tmp_path), "--module", "failing_parts",
            module="digideep.environment.play", expect=7, env=PATHS,
        )  # fmt: skip
        assert ended.err.splitlines()[-1] == (
            f"digideep: error: environment {NAME}, step 4: expected a process that goes on, found that this call "
            f"killed it: it died of signal 9 (SIGKILL)"
        )
    else:
        error = replayed(tmp_path)
        assert ("finite" in error or "nan" in error) if fault == "nan" else "expected an answer within 1 s" in error


def replayed(directory: Path) -> str:
    with pytest.raises(Exception) as raised:
        replay_crash(read_crash(directory), allowed=ALLOWED)
    return str(raised.value)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_E2_a_session_goes_on_after_errors_and_shows_their_count(
    digideep: Callable[..., Ended], toy: Callable[..., list[str]], num_workers: int
) -> None:
    ended = digideep(
        *toy(
            f"forgiving{num_workers}", f"model_name={NAME}", f"num_workers={num_workers}", "on_env_error=reset",
            "env_error_budget=100", 'env_kwargs={"fault": "raise", "rate": 0.05}', "play_env_kwargs={}",
        ),
        env=PATHS,
    )  # fmt: skip

    summary = read(ended.session / "summary.json")
    report = (ended.session / "report.log").read_text()
    assert summary["state"] == "done"
    assert summary["env_errors"] == 23
    assert f"its episode is dropped, error {summary['env_errors']} of 100" in ended.err
    assert 0 < report.count("Traceback (most recent call last)") <= 10
    assert read_crash(ended.session).error.endswith("KeyError: 'torque'")
    # A chunk has 4 x 16 steps; each that is no transition is a reset.
    assert rows(ended.session / "varlog.jsonl")[-1]["data"]["train/length"]["mean"] == 5.0
    assert "Traceback" not in ended.err


def test_E2_a_session_beyond_its_budget_ends_with_7_and_its_first_error(
    command: Callable[..., Ended], toy: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(PATHS["PYTHONPATH"])

    ended = command(
        *toy(
            "spent", f"model_name={NAME}", "on_env_error=reset", "env_error_budget=3", "save_interval=0",
            'env_kwargs={"fault": "raise", "rate": 0.05}', "play_env_kwargs={}", "test_activate=false",
        ),
        expect=7,
    )  # fmt: skip

    summary = read(ended.session / "summary.json")
    assert summary["env_errors"] == 3
    assert "env_error_budget 3 is spent; the first of this process was: environment " in ended.err.splitlines()[-1]
    assert summary["reason"] in ended.err


def test_E2_a_test_that_an_environment_ends_is_due_after_a_resume_and_no_epoch_is_counted_twice(
    digideep: Callable[..., Ended], resume: Callable[..., Ended], toy: Callable[..., list[str]]
) -> None:
    sets = [f"model_name={NAME}", "env_kwargs={}", 'play_env_kwargs={"fault": "raise"}', "save_interval=0"]

    ended = digideep(*toy("tested", *sets), expect=7, env=PATHS)

    assert ended.saved == ["checkpoint-0", "checkpoint-2"]
    assert read(ended.session / "summary.json")["epoch"] == 0
    again = resume(ended.session, "--set", "/env/play_env_kwargs={}", env=PATHS)
    assert again.saved[-1] == "checkpoint-8"
    assert read(ended.session / "summary.json")["epoch"] == 4
