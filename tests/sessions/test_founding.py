"""A session that cannot be made whole goes away again, whatever the reason, and its name is free for the next start."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from fakes import TOY, Ended

from digideep.pipeline.filesystem import RealFileSystem

Run = Callable[..., Ended]
Toy = Callable[..., list[str]]

QUICK = ["number_epochs=1", "test_activate=false"]


def no_space(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def from_call(function: Callable[..., Any], *, first: int) -> tuple[Callable[..., Any], list[Any]]:
    """Return what answers as `function` up to call `first`, and has no space from there on; and a list of its calls."""
    calls: list[Any] = []

    def failing(*args: Any, **options: Any) -> Any:
        calls.append(args)
        return no_space() if len(calls) >= first else function(*args, **options)

    return failing, calls


def test_a_disk_that_is_full_from_any_file_of_a_new_session_on_leaves_nothing(
    command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, place, problems = RealFileSystem.create, tmp_path / "made" / "here", []
    make = ["--params", TOY, "--create-session-only", "--session-path", str(place), "--session-name", "a"]
    counted, calls = from_call(create, first=1000)
    monkeypatch.setattr(RealFileSystem, "create", counted)
    command(*make)
    shutil.rmtree(tmp_path / "made")

    for first in range(1, len(calls) + 1):
        monkeypatch.setattr(RealFileSystem, "create", from_call(create, first=first)[0])
        ended = command(*make, expect=9)
        if "ENOSPC" not in ended.err or list(tmp_path.iterdir()):
            problems.append((first, ended.err, sorted(place.rglob("*"))))
            shutil.rmtree(tmp_path / "made", ignore_errors=True)

    assert problems == []
    assert len(calls) > 8
    monkeypatch.setattr(RealFileSystem, "create", create)
    assert command(*make).session == place / "a"


STEPS = {
    "the lock": "digideep.pipeline.locks._write_content",
    "the copy of the code": "digideep.pipeline.snapshot._copy",
    "the entry of the run": "digideep.pipeline.meta.begin_run",
    "the change that the start has chosen": "digideep.pipeline.founding.append_changes",
    "the code on its way to the disk": "digideep.pipeline.snapshot.os.walk",
}
STORED = ("the lock", "the copy of the code", "the code on its way to the disk")
"""Those around which an OSError becomes a StorageError; from the others it would come as one."""


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("fault", [OSError(errno.ENOSPC, "No space left on device"), RuntimeError("a mistake of ours")])
def test_a_new_session_that_fails_at_any_step_of_its_making_leaves_its_name_free(
    command: Run, toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, fault: Exception
) -> None:
    (tmp_path / "other").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(STEPS[step], Mock(side_effect=fault))  # raises in a file that is nobody's
        is_told = isinstance(fault, OSError) and step in STORED
        ended = command(*toy("a", *QUICK), expect=9 if is_told else 1)
        assert ended.out == []  # no line names what is gone
        assert [path.name for path in tmp_path.iterdir()] == ["other"]

    assert command(*toy("a", *QUICK)).session == tmp_path / "a"


def test_a_session_that_stands_is_kept_where_its_first_save_fails(
    command: Run, toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("digideep.pipeline.checkpoint.write_stamped", no_space)

    command(*toy("a", *QUICK, "save_interval=1"), expect=9)

    assert (tmp_path / "a" / "report.log").exists()
