"""A session whose directory goes while it runs: nothing is made in its place, and a save there is an error."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from saves import save, store_at

from digideep.errors import StorageError


def test_a_session_that_is_gone_is_not_begun_again(tmp_path: Path) -> None:
    session = tmp_path / "session"
    session.mkdir()
    store = store_at(session / "checkpoints")
    save(store, 1)
    shutil.rmtree(session)

    with pytest.raises(StorageError):
        save(store, 2)
    assert not session.exists()


def test_a_directory_of_checkpoints_that_is_gone_is_not_made_again(tmp_path: Path) -> None:
    store = store_at(tmp_path / "checkpoints")
    save(store, 1)
    shutil.rmtree(tmp_path / "checkpoints")

    with pytest.raises(StorageError, match="removed or replaced"):
        save(store, 2)
    assert not (tmp_path / "checkpoints").exists()


def test_another_directory_in_the_place_of_the_session_is_not_written(tmp_path: Path) -> None:
    session = tmp_path / "session"
    session.mkdir()
    store = store_at(session / "checkpoints")
    save(store, 1)
    session.rename(tmp_path / "moved")
    shutil.copytree(tmp_path / "moved", session)

    with pytest.raises(StorageError, match="removed or replaced"):
        save(store, 2)
    assert [path.name for path in (session / "checkpoints").iterdir()] == ["checkpoint-1"]
