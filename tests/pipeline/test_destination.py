"""What a start has made goes away whole, also while something still writes into it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from digideep.pipeline.destination import remove_tree


def test_directory_goes_away_although_a_file_is_made_in_it_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, real, rounds = tmp_path / "scratch", shutil.rmtree, []
    (directory / "logs").mkdir(parents=True)

    def removed_while_a_thread_writes(path: Path, **options: Any) -> None:
        real(path / "logs", **options)
        if not rounds:
            (path / "late.json").write_text("{}")
            with pytest.raises(OSError):
                path.rmdir()
        else:
            real(path, **options)
        rounds.append(path)

    monkeypatch.setattr(shutil, "rmtree", removed_while_a_thread_writes)
    remove_tree(directory)

    assert not directory.exists()
    assert len(rounds) == 2


def test_directory_that_is_not_there_is_no_fault(tmp_path: Path) -> None:
    remove_tree(tmp_path / "none")

    assert not (tmp_path / "none").exists()
