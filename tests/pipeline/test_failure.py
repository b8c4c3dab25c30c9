"""How a run ends is written down where that is possible, and never hides why it ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from digideep.errors import EnvironmentFailure, StorageError, UsageError
from digideep.pipeline.failure import finish_in_passing, recorded_failure


def test_a_file_that_cannot_be_read_any_more_does_not_hide_the_error_that_ended_a_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def finish(exit_code: int, reason: str) -> None:
        raise UsageError("meta.json: expected a readable JSON file, found an I/O error")

    failing = recorded_failure(finish=finish, keep=lambda error: None, report=tmp_path / "report.log")
    with pytest.raises(EnvironmentFailure, match="the environment"), failing:
        raise EnvironmentFailure("the environment failed")

    assert "how the run ended could not be written: meta.json" in caplog.text


def test_last_words_that_the_disk_refuses_are_a_line_and_no_traceback(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    def finish(exit_code: int, reason: str) -> None:
        raise StorageError("summary.json: expected room, found none")

    finish_in_passing(finish, 143, "stopped inside a cycle")

    assert "how the run ended could not be written: summary.json" in caplog.text
    assert "Traceback" not in capfd.readouterr().err
