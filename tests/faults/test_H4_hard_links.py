"""H4: a file of a session that has a second name somewhere else is not written to."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from cold import Cold

from digideep.utility.appendfile import open_append, open_plain


@pytest.mark.parametrize("name", ["running.lock", "varlog.jsonl", "prolog.jsonl", "monlog.jsonl", "report.log",
                                  "monitor/train/0.monitor.csv",
                                  "tensorboard/events"])  # fmt: skip
def test_H4_a_log_with_a_second_name_elsewhere_is_not_written(
    warm: Cold, trained: Path, tmp_path: Path, name: str
) -> None:
    session, outside = tmp_path / "s", tmp_path / "outside"
    shutil.copytree(trained, session, symlinks=True)
    outside.write_bytes(b"mine\n" * 1000)
    place = session / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    os.link(outside, place)

    ended = warm.ask("main", "--load-checkpoint", str(session), "--trust-session", "--resume", cwd=tmp_path)

    assert ended.code == 2, ended
    assert "expected a file of its own, found one with 2 names; copy the session without hard links" in ended.error
    assert outside.read_bytes() == b"mine\n" * 1000


def test_H4_a_second_name_that_comes_later_is_noticed_when_the_file_is_opened(tmp_path: Path) -> None:
    outside, log = tmp_path / "outside", tmp_path / "log"
    outside.write_bytes(b"mine\n")
    os.link(outside, log)

    with pytest.raises(OSError, match="expected a regular file of its own, found one with 2 names"):
        open_append(log)
    os.close(open_plain(log, os.O_RDONLY))
