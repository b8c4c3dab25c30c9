"""What environments print neither floods a terminal nor a log, and never reaches the program's standard output."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from failing_parts import NAME
from fakes import Ended

from digideep.pipeline.stdout import bounded, say

PATHS = {"PYTHONPATH": str(Path(__file__).resolve().parent)}


@pytest.mark.parametrize("num_workers", [0, 1])
def test_J2_an_environment_that_prints_is_bounded(
    digideep: Callable[..., Ended], toy: Callable[..., list[str]], num_workers: int
) -> None:
    ended = digideep(
        *toy(
            "loud", f"model_name={NAME}", f"num_workers={num_workers}", "num_envs=2", "number_epochs=1",
            "test_activate=false", "play_env_kwargs={}", 'env_kwargs={"fault": "print"}',
        ),
        env=PATHS,
    )  # fmt: skip

    # 40,000 lines an episode.
    assert 1000 <= len(ended.err.splitlines()) < 1500
    assert len((ended.session / "report.log").read_text().splitlines()) < 1500
    assert all(line.startswith(("session: ", "saved ")) for line in ended.out)
    assert "the rest is not" in ended.err
    assert "the session is in" in ended.err


def test_J2_what_the_program_says_itself_is_not_counted(capsys: pytest.CaptureFixture[str]) -> None:
    with bounded():
        for i in range(3000):
            print(i)
        print("lost", file=sys.stderr)
        say("session: here")
        assert sys.stdout.encoding
    print("afterwards")

    out, err = capsys.readouterr()
    assert out.splitlines()[-2:] == ["session: here", "afterwards"]
    assert 990 < len(out.splitlines()) <= 1002
    assert out.splitlines()[:3] == ["0", "1", "2"]
    assert "lost" not in err
