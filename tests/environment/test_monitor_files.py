"""Monitor files, as other tools read them."""

from __future__ import annotations

import csv
import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from digideep.environment.monitor_files import MonitorFiles
from digideep.types import Episode


def episode(number: int = 0, *, env: int = 0, **metrics: float) -> Episode:
    return Episode(env=env, number=number, return_=0.1 + 0.2, length=3, seed=None, metrics=metrics)


def files(directory: Path | None, *, mode: str = "train") -> MonitorFiles:
    return MonitorFiles(directory, mode=mode, env_id="CartPole-v1", keys=("is_success",))


def test_a_file_has_a_comment_a_header_and_a_row_an_episode(tmp_path: Path) -> None:
    monitor = files(tmp_path)

    monitor.write(episode(env=2, speed=1.5), worker=0)
    monitor.close()

    comment, *table = (tmp_path / "train" / "0.monitor.csv").read_text().splitlines()
    about = json.loads(comment.removeprefix("#"))
    (row,) = csv.DictReader(table)
    assert (about["env_id"], about["mode"], about["worker"]) == ("CartPole-v1", "train", 0)
    assert about["t_start"] > 1e9
    assert float(row["r"]) == 0.1 + 0.2
    assert (row["l"], row["env"], row["is_success"], row["speed"]) == ("3", "2", "", "1.5")
    assert float(row["t"]) >= 0


def test_no_file_before_the_first_episode_and_none_without_a_directory(tmp_path: Path) -> None:
    monitor, nowhere = files(tmp_path), files(None)

    nowhere.write(episode(), worker=0)

    assert list(tmp_path.iterdir()) == []
    assert monitor.sync() == nowhere.sync() == {}


def test_columns_stay_those_of_the_first_episode_and_one_warning_says_what_has_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monitor = files(tmp_path)

    monitor.write(episode(speed=1.0), worker=0)
    monitor.write(episode(speed=2.0, late=1.0), worker=0)
    monitor.write(episode(late=1.0), worker=0)
    monitor.close()

    lines = (tmp_path / "train" / "0.monitor.csv").read_text().splitlines()
    assert lines[1] == "r,l,t,env,is_success,speed"
    assert [line.split(",")[4:] for line in lines[2:]] == [["", "1.0"], ["", "2.0"], ["", ""]]
    assert sum("no column for late" in message for message in caplog.messages) == 1


def test_a_file_that_exists_is_gone_on_with(tmp_path: Path) -> None:
    first = files(tmp_path)
    first.write(episode(speed=1.0), worker=0)
    length = first.sync()["monitor/train/0.monitor.csv"]
    first.close()

    second = files(tmp_path)
    second.write(episode(other=5.0, speed=2.0), worker=0)
    second.close()

    content = (tmp_path / "train" / "0.monitor.csv").read_bytes()
    lines = content.decode().splitlines()
    assert length < len(content)
    assert len(lines) == 4
    assert lines[3].split(",")[4:] == ["", "2.0"]


@pytest.mark.parametrize("torn", ["", '#{"t_start": 1', '#{"t_start": 1}\nr,l'])
def test_a_file_without_a_whole_header_begins_anew(tmp_path: Path, torn: str) -> None:
    path = tmp_path / "train" / "0.monitor.csv"
    path.parent.mkdir()
    path.write_text(torn)

    monitor = files(tmp_path)
    monitor.write(episode(), worker=0)
    monitor.close()

    lines = path.read_text().splitlines()
    assert len(lines) == 3
    assert lines[0].startswith('#{"t_start"')
    assert lines[1] == "r,l,t,env,is_success"


def test_more_workers_than_files_share_them(tmp_path: Path) -> None:
    monitor = files(tmp_path)

    for worker in range(20):
        monitor.write(episode(env=worker), worker=worker)
    lengths = monitor.sync()
    monitor.close()

    assert sorted(lengths) == [f"monitor/train/{i}.monitor.csv" for i in range(8)]
    rows = (tmp_path / "train" / "3.monitor.csv").read_text().splitlines()[2:]
    assert [row.split(",")[3] for row in rows] == ["3", "11", "19"]


def test_train_and_test_write_different_files(tmp_path: Path) -> None:
    for mode in ("train", "test"):
        monitor = files(tmp_path, mode=mode)
        monitor.write(episode(), worker=0)
        monitor.close()

    assert sorted(path.parent.name for path in tmp_path.glob("*/*.csv")) == ["test", "train"]


def test_a_link_in_the_place_of_a_file_is_not_followed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "train").mkdir()
    target = tmp_path / "elsewhere"
    target.write_text("precious\n")
    (tmp_path / "train" / "0.monitor.csv").symlink_to(target)

    monitor = files(tmp_path)
    monitor.write(episode(), worker=0)
    monitor.write(episode(), worker=0)

    monitor.flush()

    assert target.read_text() == "precious\n"
    assert sum("rows are kept and tried again" in message for message in caplog.messages) == 1
    (tmp_path / "train" / "0.monitor.csv").unlink()
    monitor.close()
    assert len((tmp_path / "train" / "0.monitor.csv").read_text().splitlines()) == 4


def full_disk(monkeypatch: pytest.MonkeyPatch, *, room: int) -> None:
    """Let files take `room` bytes more, as a full disk does it: one short write, then ENOSPC."""
    left = [room]
    write = os.write

    def limited(descriptor: int, data: Any) -> int:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return write(descriptor, data)
        if left[0] <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = write(descriptor, memoryview(data)[: left[0]])
        left[0] -= written
        return written

    monkeypatch.setattr(os, "write", limited)


def test_rows_that_a_full_disk_refused_are_there_once_it_has_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "train" / "0.monitor.csv"
    monitor = files(tmp_path)
    monitor.write(episode(env=0), worker=0)
    length = monitor.sync()["monitor/train/0.monitor.csv"]

    with pytest.MonkeyPatch.context() as patch:
        full_disk(patch, room=5)
        for env in (1, 2):
            monitor.write(episode(env=env), worker=0)
            monitor.flush()
        expected = monitor.sync()["monitor/train/0.monitor.csv"]  # with the rows that come as soon as there is room
        assert path.stat().st_size == length < expected  # nothing of a row that was cut in two
    assert monitor.sync() == {"monitor/train/0.monitor.csv": expected}
    assert path.stat().st_size == expected
    monitor.write(episode(env=3), worker=0)
    monitor.close()

    assert [row.split(",")[3] for row in path.read_text().splitlines()[2:]] == ["0", "1", "2", "3"]
    assert len([message for message in caplog.messages if "cannot be written" in message]) == 1


def test_a_header_that_a_full_disk_refused_comes_before_the_rows(tmp_path: Path) -> None:
    monitor = files(tmp_path)

    with pytest.MonkeyPatch.context() as patch:
        full_disk(patch, room=5)
        monitor.write(episode(env=0), worker=0)
        monitor.flush()
        monitor.write(episode(env=1), worker=0)
        monitor.flush()
    monitor.close()

    lines = (tmp_path / "train" / "0.monitor.csv").read_text().splitlines()
    assert lines[1] == "r,l,t,env,is_success"
    assert [line.split(",")[3] for line in lines[2:]] == ["0", "1"]


def test_a_row_that_a_kill_cut_in_two_is_removed(tmp_path: Path) -> None:
    first = files(tmp_path)
    first.write(episode(env=0), worker=0)
    first.close()
    path = tmp_path / "train" / "0.monitor.csv"
    path.write_bytes(path.read_bytes() + b"0.3,3,0.1")

    second = files(tmp_path)
    second.write(episode(env=1), worker=0)
    second.close()

    assert [row.split(",")[3] for row in path.read_text().splitlines()[2:]] == ["0", "1"]


def test_rows_that_could_never_be_written_are_told_at_the_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "train").write_text("a file where the directory should be")
    monitor = files(tmp_path)

    monitor.write(episode(), worker=0)
    monitor.close()

    assert any("its last rows are lost" in message for message in caplog.messages)


def test_names_of_metrics_cannot_forge_rows(tmp_path: Path) -> None:
    monitor = files(tmp_path)

    monitor.write(episode()._replace(metrics={"a\nb,c": 1.0}), worker=0)
    monitor.close()

    lines = (tmp_path / "train" / "0.monitor.csv").read_text().splitlines()
    assert len(lines) == 3
    assert lines[1] == 'r,l,t,env,is_success,"a b,c"'
