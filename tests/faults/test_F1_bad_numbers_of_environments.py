"""NaN and infinity in what an environment gives end the run with 8 and their exact place."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from failing_parts import ALLOWED, NAME, explorer
from fakes import Ended, checkpoints

from digideep.environment.config import EnvConfig
from digideep.environment.crash import read_crash, replay_crash, write_crash
from digideep.errors import NonFiniteError

CASES = {
    "nan": ("/observations/a", "nan", 1),
    "inf": ("/observations/a", "inf", 2),
    "nan reward": ("/rewards", "nan", 0),
    "inf reward": ("/rewards", "-inf", 0),
    "huge reward": ("/rewards", "inf", 0),
}


@pytest.mark.parametrize(("mode", "num_workers"), [("train", 0), ("train", 1), ("test", 0)])
@pytest.mark.parametrize("fault", CASES)
def test_F1_a_bad_number_is_found_where_it_is_and_can_be_walked_to(
    fault: str, num_workers: int, mode: str, tmp_path: Path
) -> None:
    key, value, index = CASES[fault]
    kwargs = {"fault": fault, "at": 3, "once": str(tmp_path / "once")}
    made = explorer(mode=mode, num_envs=1, num_workers=num_workers, kwargs=kwargs)  # type: ignore[arg-type]

    with contextlib.closing(made), pytest.raises(NonFiniteError) as raised:
        made.update() if mode == "train" else made.evaluate()

    explorer_of_tests = "" if mode == "train" else "explorer/test: "
    text = str(raised.value)
    assert text.startswith(f"{explorer_of_tests}environment 0 ({NAME}, worker 0, seed ")
    assert text.endswith(
        f"episode 0, step 3): expected finite numbers in {key}, found {value} (first bad index {index})"
    )
    assert raised.value.exit_code == 8
    (tmp_path / "once").unlink()
    crash = raised.value.crash  # type: ignore[attr-defined]
    assert (crash["episode"], crash["step"]) == (0, 3)
    write_crash(tmp_path, EnvConfig(model_name=NAME, env_kwargs=kwargs), error=raised.value, **crash)
    with pytest.raises(NonFiniteError, match=key):
        replay_crash(read_crash(tmp_path), allowed=ALLOWED)


def test_F1_a_bad_number_of_an_episode_that_has_ended_since_is_walked_to(tmp_path: Path) -> None:
    # An episode lasts 5 steps and a reset; the number goes bad in the first of three episodes of the chunk.
    kwargs = {"fault": "nan", "at": 3, "once": str(tmp_path / "once")}
    made = explorer(num_envs=1, n_steps=16, kwargs=kwargs)

    with contextlib.closing(made), pytest.raises(NonFiniteError, match="episode 0, step 3") as raised:
        made.update()

    crash = raised.value.crash  # type: ignore[attr-defined]
    assert made._vec.tick == 16
    assert (crash["episode"], crash["step"], len(crash["actions"][""])) == (0, 3, 3)
    assert crash["seed"] is not None


def test_F1_a_simulator_that_gives_nan_once_costs_an_episode_and_no_run(
    command: Callable[..., Ended], toy: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parent))
    nan = f'env_kwargs={{"fault": "nan", "once": "{tmp_path / "once"}"}}'

    stopped = command(*toy("stops", f"model_name={NAME}", nan, "play_env_kwargs={}", "number_epochs=1"), expect=8)
    (tmp_path / "once").unlink()
    forgiven = command(
        *toy("goes", f"model_name={NAME}", nan, "play_env_kwargs={}", "number_epochs=1", "on_nonfinite=reset")
    )

    assert "expected finite numbers in /observations/a, found nan (first bad index 1)" in stopped.err.splitlines()[-1]
    assert checkpoints(stopped.session) == [0]
    assert checkpoints(forgiven.session) == [0, 2]
    assert "its episode is dropped, error 1 of 10" in forgiven.err
