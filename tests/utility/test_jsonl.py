from __future__ import annotations

import logging
import math
import os
from pathlib import Path

import numpy as np
import pytest

from digideep.errors import ShapeError
from digideep.utility.jsonl import JsonlWriter, columns, read_rows


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "varlog.jsonl"


def _row(epoch: int, **data: object) -> dict:
    return {"meta": {"epoch": epoch, "clock": 0.5 * epoch}, "data": data}


def test_rows_come_back_as_they_were_written(path: Path) -> None:
    rows = [_row(0, a=1.5), _row(1, b={"c": [1, 2.25, None, "ü\n"]}), {}]
    writer = JsonlWriter(path)
    for row in rows:
        writer.append(row)
    writer.close()

    assert read_rows(path) == rows
    assert path.read_bytes().count(b"\n") == 3
    assert b", " not in path.read_bytes()


def test_the_file_is_made_by_the_first_row(path: Path) -> None:
    writer = JsonlWriter(path)
    assert not path.exists()
    assert read_rows(path) == []

    writer.append({})

    assert path.read_bytes() == b"{}\n"


def test_sync_and_truncate_continue_a_log_without_gap_or_repeat(path: Path) -> None:
    first = JsonlWriter(path)
    first.append(_row(0))
    length = first.sync()
    first.append(_row(1))
    first.close()
    assert length == len('{"meta":{"epoch":0,"clock":0.0},"data":{}}\n')

    second = JsonlWriter(path)
    assert second.truncate(length) == length
    second.append(_row(1))

    assert [row["meta"]["epoch"] for row in read_rows(path)] == [0, 1]


@pytest.mark.parametrize("value", [math.nan, math.inf, np.float32(1.0), {1, 2}])
def test_what_json_lacks_is_refused_before_anything_is_written(path: Path, value: object) -> None:
    writer = JsonlWriter(path)

    with pytest.raises(ShapeError, match=r"varlog\.jsonl: expected a row of finite plain data, found"):
        writer.append({"x": value})

    assert not path.exists()


def test_a_torn_last_line_is_no_problem_for_reader_or_writer(path: Path) -> None:
    writer = JsonlWriter(path)
    for epoch in range(4):
        writer.append(_row(epoch, text="x" * 60))
    writer.close()
    whole = path.read_bytes()

    for length in range(len(whole) - 200, len(whole)):
        path.write_bytes(whole[:length])
        complete = whole[:length].count(b"\n")
        assert len(read_rows(path)) == complete

        writer = JsonlWriter(path)
        writer.append({"next": True})
        writer.close()
        assert len(read_rows(path)) == complete + 1


def test_a_torn_line_longer_than_a_block_is_removed(path: Path) -> None:
    path.write_bytes(b'{"a":1}\n{"b":"' + b"x" * 200_000)

    writer = JsonlWriter(path)
    writer.append({"c": 2})

    assert path.read_bytes() == b'{"a":1}\n{"c":2}\n'


def test_damage_in_the_middle_is_left_out_with_one_warning(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.write_bytes(b'{"a":1}\n\x00\xff\xfe\n[1]\n' + b"[" * 100_000 + b'\n{"a":2}\n')

    with caplog.at_level(logging.WARNING):
        rows = read_rows(path)

    assert rows == [{"a": 1}, {"a": 2}]
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: 3 lines are no rows and were left out, first line 2"
    ]


def test_reading_does_not_wait_for_a_fifo_nor_follow_a_link(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("/etc/hostname")

    for name in ("fifo", "link"):
        with pytest.raises(OSError, match=name):
            read_rows(tmp_path / name)


def test_columns_of_varlog_have_the_mean_under_the_name() -> None:
    entry = {"num": 2, "mean": 3.0, "std": 0.5, "min": 2.5, "max": 3.5}
    table = columns([_row(1, **{"train/return": entry}), _row(2)])

    assert set(table) == {
        "epoch",
        "clock",
        "train/return",
        "train/return/num",
        "train/return/std",
        "train/return/min",
        "train/return/max",
    }
    assert table["epoch"].dtype == np.int64
    assert table["epoch"].tolist() == [1, 2]
    assert table["clock"].tolist() == [0.5, 1.0]
    np.testing.assert_array_equal(table["train/return"], [3.0, np.nan])
    np.testing.assert_array_equal(table["train/return/num"], [2.0, np.nan])


def test_columns_of_prolog_have_the_total_under_the_name() -> None:
    table = columns([_row(1, **{"/cycle": {"count": 4, "total": 1.5}, "/cycle/count": {"count": 9, "total": 2.5}})])

    del table["epoch"], table["clock"]
    assert {name: column.tolist() for name, column in table.items()} == {
        "/cycle": [1.5],
        "/cycle/count": [2.5],
        "/cycle/count/count": [9.0],
    }


def test_columns_of_monlog_have_the_path_of_their_keys() -> None:
    usage = {
        "cpu": {"total": 0.5, "per_cpu": [0.25, 0.75]},
        "process": {"cpu": 1.5, "rss_mb": 90.0, "count": 3},
        "gpu": [{"index": 0, "name": "H", "load": 0.5, "power_w": None}],
    }
    table = columns([_row(1, **usage), _row(2, cpu={"total": 1.0, "per_cpu": [1.0, 1.0]}, gpu="unavailable")])

    np.testing.assert_array_equal(table["cpu/total"], [0.5, 1.0])
    np.testing.assert_array_equal(table["cpu/per_cpu/1"], [0.75, 1.0])
    np.testing.assert_array_equal(table["process/count"], [3.0, np.nan])
    np.testing.assert_array_equal(table["gpu/0/load"], [0.5, np.nan])
    assert not {"cpu", "gpu/0/name", "gpu/0/power_w"} & set(table)


def test_columns_survive_rows_of_any_shape() -> None:
    table = columns([{}, {"meta": 3, "data": []}, {"data": {"x": 10**30, "y": True}}, {"meta": {"epoch": None}}])

    np.testing.assert_array_equal(table["y"], [np.nan, np.nan, 1.0, np.nan])
    assert set(table) == {"y"}
    assert columns([]) == {}
