from __future__ import annotations

import errno
import json
import os
import socket
import stat
import time
from pathlib import Path

import pytest

from digideep.errors import StorageError, UsageError
from digideep.pipeline.fsio import (
    RealFileSystem,
    loads_json,
    publish,
    publish_json,
    read_json,
    remove_tree,
    sweep_temporaries,
    write_new,
)


class DribblingFileSystem(RealFileSystem):
    """Takes three bytes at a time, and nothing more after `room` bytes, without an error: as a full disk does."""

    def __init__(self, room: int = 1 << 30) -> None:
        self.room = room

    def write(self, descriptor: int, content: memoryview) -> int:
        count = min(3, len(content), self.room)
        self.room -= count
        return super().write(descriptor, content[:count])


class FailingFileSystem(RealFileSystem):
    """Raises ENOSPC at one kind of call."""

    def __init__(self, call: str) -> None:
        self.call = call

    def _fail(self, call: str) -> None:
        if call == self.call:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def create(self, path: Path, *, mode: int) -> int:
        self._fail("create")
        return super().create(path, mode=mode)

    def fsync(self, descriptor: int) -> None:
        self._fail("fsync")
        super().fsync(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        self._fail("rename")
        super().rename(source, target)

    def fsync_directory(self, path: Path) -> None:
        self._fail("fsync_directory")
        super().fsync_directory(path)


def test_published_file_has_the_content_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    publish(tmp_path / "summary.json", b"one")
    publish(tmp_path / "summary.json", b"two", mode=0o640)

    assert (tmp_path / "summary.json").read_bytes() == b"two"
    assert os.listdir(tmp_path) == ["summary.json"]


def test_mode_of_a_published_file_is_the_one_asked_for(tmp_path: Path) -> None:
    publish(tmp_path / "private", b"")
    publish(tmp_path / "public", b"", mode=0o644)

    assert stat.S_IMODE((tmp_path / "private").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "public").stat().st_mode) == 0o644


def test_publishing_over_a_link_replaces_the_link_and_not_its_target(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"precious")
    (tmp_path / "summary.json").symlink_to("precious")

    publish(tmp_path / "summary.json", b"new")

    assert (tmp_path / "precious").read_bytes() == b"precious"
    assert not (tmp_path / "summary.json").is_symlink()


def test_short_writes_are_continued(tmp_path: Path) -> None:
    publish(tmp_path / "file", b"0123456789", fs=DribblingFileSystem())

    assert (tmp_path / "file").read_bytes() == b"0123456789"


def test_a_disk_that_takes_nothing_more_is_an_error_and_the_old_content_stays(tmp_path: Path) -> None:
    publish(tmp_path / "file", b"old")

    with pytest.raises(StorageError, match=r"file: expected to write 10 bytes, found ENOSPC .*, \d+ bytes free; free"):
        publish(tmp_path / "file", b"0123456789", fs=DribblingFileSystem(room=7))

    assert (tmp_path / "file").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("call", ["create", "fsync", "rename", "fsync_directory"])
def test_a_failing_call_while_publishing_leaves_no_temporary_file(tmp_path: Path, call: str) -> None:
    publish(tmp_path / "file", b"old")

    with pytest.raises(StorageError, match="ENOSPC"):
        publish(tmp_path / "file", b"new", fs=FailingFileSystem(call))

    assert os.listdir(tmp_path) == ["file"]


def test_publishing_into_a_missing_directory_names_the_path(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="nowhere/file: expected to write 1 bytes, found ENOENT"):
        publish(tmp_path / "nowhere" / "file", b"x")


def test_published_json_keeps_the_order_of_keys_and_ends_with_a_newline(tmp_path: Path) -> None:
    publish_json(tmp_path / "meta.json", {"b": 1, "a": [True, None]})

    text = (tmp_path / "meta.json").read_text()
    assert text == '{\n  "b": 1,\n  "a": [\n    true,\n    null\n  ]\n}\n'
    assert read_json(tmp_path / "meta.json") == {"b": 1, "a": [True, None]}


def test_nan_is_not_published(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        publish_json(tmp_path / "meta.json", {"x": float("nan")})

    assert os.listdir(tmp_path) == []


def test_a_new_file_is_never_written_over_an_old_one_or_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"old")
    (tmp_path / "link").symlink_to("elsewhere")

    for name in ("old", "link"):
        with pytest.raises(FileExistsError):
            write_new(tmp_path / name, [b"new"])

    assert (tmp_path / "old").read_bytes() == b"old"
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1, "a": 2}', "expected every key once, found 'a' twice"),
        ('{"x": {"b": 1, "c": 0, "b": 1}}', "found 'b' twice"),
        ("[NaN]", "expected a finite number, found NaN"),
        ("[-Infinity]", "expected a finite number, found -Infinity"),
        ("1e999", "expected a number below 1.8e308, found 1e999"),
        ("[" * 100_000, "expected at most 100 nested levels, found more"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "expected at most 100 nested levels"),
        ("9" * 5000, "expected JSON numbers of reasonable length"),
        ('"\\ud800"', "half of a surrogate pair"),
        ("", "Expecting value at line 1 column 1"),
        ('{"a": 1,}', "at line 1 column"),
        ("{'a': 1}", "at line 1 column 2"),
        ("1 2", "Extra data at line 1 column 3"),
        ('"abc', "Unterminated string"),
        ('"a\nb"', "Invalid control character"),
    ],
)
def test_json_that_is_not_strict_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        loads_json(text, where="--cpanel")

    assert str(caught.value).startswith("--cpanel: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_names_in_json_cannot_forge_output() -> None:
    with pytest.raises(UsageError) as caught:
        loads_json('{"\\u001b[31m\\nok": 1, "\\u001b[31m\\nok": 2}', where="file\nname")

    assert "\x1b" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_brackets_inside_strings_are_no_nesting() -> None:
    text = json.dumps(["[" * 500, '\\"[[' * 50, "]"])

    assert loads_json(text, where="text") == ["[" * 500, '\\"[[' * 50, "]"]


def test_values_keep_their_types_and_digits() -> None:
    value = loads_json(
        '[1, 1.0, 1e-4, 0.1, -0.0, 170141183460469231731687303715884105727, "\\ud83d\\ude00"]', where="x"
    )

    assert repr(value) == "[1, 1.0, 0.0001, 0.1, -0.0, 170141183460469231731687303715884105727, '\U0001f600']"


@pytest.mark.parametrize("text", ["[" * 2_000_000, '"' + '\\"' * 1_000_000, '{"' * 1_000_000, '"\\' * 1_000_000])
def test_json_bombs_are_refused_quickly(text: str) -> None:
    started = time.monotonic()

    with pytest.raises(UsageError):
        loads_json(text, where="bomb")

    assert time.monotonic() - started < 5.0  # a scan that is not linear takes minutes


def test_reading_json_from_what_is_no_file_neither_hangs_nor_follows(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "real").write_text("1")
    (tmp_path / "link").symlink_to("real")
    unix = socket.socket(socket.AF_UNIX)
    unix.bind(os.path.relpath(tmp_path / "socket"))
    unix.close()
    kinds = {"directory": "a directory", "fifo": "a FIFO", "link": "a symbolic link", "socket": "a socket"}

    for name, kind in kinds.items():
        with pytest.raises(UsageError, match=f"{name}: expected a readable JSON file, found {kind} instead"):
            read_json(tmp_path / name)
    with pytest.raises(UsageError, match="expected a readable JSON file, found a device instead"):
        read_json("/dev/zero")
    with pytest.raises(UsageError, match="missing: expected a JSON file, found none"):
        read_json(tmp_path / "missing")
    assert read_json(tmp_path / "link", follow_links=True) == 1


def test_reading_json_is_bounded_and_wants_utf8(tmp_path: Path) -> None:
    (tmp_path / "large").write_text("[" + " " * 100 + "]")
    (tmp_path / "latin").write_bytes(b'"\xe9"')

    with pytest.raises(UsageError, match="found more than 50 bytes"):
        read_json(tmp_path / "large", limit_bytes=50)
    with pytest.raises(UsageError, match="expected UTF-8 text, found byte 0xe9 at offset 1"):
        read_json(tmp_path / "latin")
    assert read_json(tmp_path / "large", limit_bytes=102) == []


def test_removing_a_tree_removes_links_and_not_what_they_point_to(tmp_path: Path) -> None:
    (tmp_path / "keep").mkdir()
    (tmp_path / "keep" / "file").write_text("x")
    (tmp_path / "gone" / "below").mkdir(parents=True)
    (tmp_path / "gone" / "below" / "link").symlink_to(tmp_path / "keep")
    (tmp_path / "gone" / "file").write_text("y")

    remove_tree(tmp_path / "gone")
    remove_tree(tmp_path / "gone")

    assert os.listdir(tmp_path) == ["keep"]
    assert (tmp_path / "keep" / "file").read_text() == "x"


def test_sweeping_removes_temporary_files_only(tmp_path: Path) -> None:
    (tmp_path / ".tmp-summary.json-1-2").write_text("torn")
    (tmp_path / ".tmp-directory").mkdir()
    (tmp_path / "summary.json").write_text("{}")

    swept = sweep_temporaries(tmp_path)

    assert swept == [".tmp-summary.json-1-2"]
    assert sorted(os.listdir(tmp_path)) == [".tmp-directory", "summary.json"]
