from __future__ import annotations

import errno
import io
import logging
import os
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from digideep.errors import UsageError
from digideep.utility import logging as module
from digideep.utility.livelog import SafeStream
from digideep.utility.logging import Report, open_report, parse_level

log = logging.getLogger("digideep.pipeline.runner")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "report.log"


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def report(path: Path, stream: io.StringIO) -> Iterator[Report]:
    report = open_report(path, "info", stream=stream)
    yield report
    report.close()


def test_messages_go_to_stderr_plain_and_to_the_file_with_time_and_place(
    report: Report, path: Path, stream: io.StringIO
) -> None:
    log.info("epoch %d", 3)
    log.warning("slow")
    log.debug("not shown")

    assert stream.getvalue() == "epoch 3\nwarning: slow\n"
    first, second = path.read_text().splitlines()
    assert first[4] == first[7] == "-" and first[10] == "T" and first[23] == "Z"
    assert first[24:] == " INFO digideep.pipeline.runner: epoch 3"
    assert second[24:] == " WARNING digideep.pipeline.runner: slow"


def test_a_quiet_terminal_does_not_thin_out_the_file(path: Path, stream: io.StringIO) -> None:
    report = open_report(path, "error", stream=stream)
    log.info("epoch 1")
    report.close()

    assert stream.getvalue() == ""
    assert "epoch 1" in path.read_text()


def test_a_run_without_a_directory_logs_to_stderr_only(stream: io.StringIO) -> None:
    report = open_report(None, logging.INFO, stream=stream)
    log.info("dry")
    report.close()

    assert stream.getvalue() == "dry\n"


@pytest.mark.parametrize("moment", ["before", "after"])
def test_nothing_is_printed_twice_whatever_is_done_to_the_root_logger(tmp_path: Path, moment: str) -> None:
    code = f"""
        import logging, sys
        from digideep.utility.logging import open_report
        def others():
            logging.basicConfig(level=logging.DEBUG, force=True)
            logging.getLogger().addHandler(logging.StreamHandler(sys.stdout))
            logging.getLogger().setLevel(logging.DEBUG)
        {"others()" if moment == "before" else ""}
        report = open_report({str(tmp_path / "report.log")!r}, "info")
        {"others()" if moment == "after" else ""}
        logging.getLogger("digideep.pipeline").info("hello")
        report.close()
    """

    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)

    assert (done.stdout, done.stderr) == ("", "hello\n")
    assert (tmp_path / "report.log").read_text().count("hello") == 1


def test_closing_restores_what_was_there(path: Path, stream: io.StringIO) -> None:
    logger = logging.getLogger("digideep")
    mine = logging.NullHandler()
    logger.addHandler(mine)
    try:
        before = (logger.level, logger.propagate, logger.handlers[:], warnings.showwarning)

        outer = open_report(path, "debug", stream=stream)
        inner = open_report(None, "info", stream=stream)
        log.info("once")
        inner.close()
        log.info("again")
        outer.close()
        outer.close()

        assert (logger.level, logger.propagate, logger.handlers, warnings.showwarning) == before
        assert stream.getvalue() == "once\nagain\n"
        assert "once" not in path.read_text()
    finally:
        logger.removeHandler(mine)


def test_a_resume_goes_on_in_the_same_file(path: Path, stream: io.StringIO) -> None:
    for text in ("first run", "second run"):
        report = open_report(path, "info", stream=stream)
        log.info(text)
        report.close()

    assert [line[24:].split(": ")[1] for line in path.read_text().splitlines()] == ["first run", "second run"]


def test_repeated_messages_are_counted(report: Report, path: Path, stream: io.StringIO) -> None:
    for i in range(1000):
        log.warning("buffer %s is full", "a")
        log.info("epoch %d", i % 500)
    log.warning("buffer %s is full", "a")

    report.close()

    for text in (stream.getvalue(), path.read_text()):
        assert text.count("buffer a is full") == 5 + 1 + 1  # five, another place, and the summary
        assert text.count("995 more times: buffer a is full") == 1
        assert text.count("epoch 7\n") == 2


def test_the_table_of_repeats_is_bounded(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_PLACES", 10)
    for _ in range(7):
        log.info("again and again")
    for i in range(100):
        log.info("epoch %d", i)

    assert len(report._repeats._counts) == 10
    assert report._repeats.summary() == ["2 more times: again and again"]


def test_control_characters_forge_no_line(report: Report, path: Path, stream: io.StringIO) -> None:
    log.info("name %s", "x\nsaved /forged\r\x1b[2K\u2028y")

    assert stream.getvalue() == "name x saved /forged [2K y\n"
    assert len(path.read_text().splitlines()) == 1


def test_rows_of_a_table_keep_their_indent(report: Report, stream: io.StringIO) -> None:
    log.info("    train/return   3.5  ")

    assert stream.getvalue() == "    train/return   3.5\n"


def test_tracebacks_and_details_are_in_the_file_only(report: Report, path: Path, stream: io.StringIO) -> None:
    try:
        raise KeyError("a\x1b[1m")
    except KeyError:
        log.exception("worker 3 failed", extra={"details": "remote:\n  line 1\x07"})
    log.error("for the file", extra={"report_only": True})

    assert stream.getvalue() == "error: worker 3 failed\n"
    lines = path.read_text().splitlines()
    assert lines[0].endswith("ERROR digideep.pipeline.runner: worker 3 failed")
    assert lines[1:4] == ["    remote:", "      line 1 ", "    Traceback (most recent call last):"]
    assert lines[-2].startswith("    KeyError: ")
    assert lines[-1].endswith("for the file")
    assert "\x1b" not in path.read_text() and "\x07" not in path.read_text()


def test_arguments_that_do_not_fit_end_nothing(report: Report, stream: io.StringIO) -> None:
    # Straight to the handlers, since pytest's own raises for such a record.
    record = log.makeRecord(log.name, logging.INFO, __file__, 1, "%d frames", ("many",), None)
    for handler in report._handlers:
        handler.handle(record)

    assert "'%d frames' ('many',)" in stream.getvalue()


def test_warnings_of_other_libraries_become_lines(path: Path, stream: io.StringIO) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        report = open_report(path, "info", stream=stream)
        for _ in range(8):
            warnings.warn("old name", DeprecationWarning, stacklevel=1)
        report.close()

    lines = stream.getvalue().splitlines()
    assert lines[0].startswith("warning: DeprecationWarning: old name (") and lines[0].endswith(")")
    assert len(lines) == 6
    assert lines[5].startswith("warning: 3 more times: DeprecationWarning: old name")


def test_warnings_stay_visible_to_tests(report: Report, stream: io.StringIO) -> None:
    with pytest.warns(UserWarning, match="mine"):
        warnings.warn("mine", UserWarning, stacklevel=1)
    with pytest.raises(UserWarning, match="an error"):
        warnings.warn("an error", UserWarning, stacklevel=1)

    assert stream.getvalue() == ""


def test_the_files_are_bounded_together(
    path: Path, stream: io.StringIO, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "FILE_BYTES", 1000)
    report = open_report(path, "info", stream=stream)
    for i in range(300):
        log.info("epoch %d ü", i)
    report.close()

    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["report.log", *(f"report.log.{i}" for i in range(1, 5))]
    assert all(file.stat().st_size <= 1000 for file in files)
    assert "epoch 299" in path.read_text()
    numbers = [
        int(line.split("epoch ")[1].split()[0]) for file in files[:0:-1] for line in file.read_text().splitlines()
    ]
    assert numbers == list(range(numbers[0], numbers[-1] + 1))


def test_the_promise_of_50_mb_is_kept_by_the_limits() -> None:
    assert module.FILE_BYTES * (1 + module.OLDER_FILES) == 50 * 2**20


def test_a_report_that_cannot_be_written_is_told_once(tmp_path: Path, stream: io.StringIO) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("mine\n")
    (tmp_path / "report.log").symlink_to(elsewhere)
    report = open_report(tmp_path / "report.log", "info", stream=stream)

    log.info("one")
    log.info("two")
    (tmp_path / "report.log").unlink()
    log.info("three")
    report.close()

    assert elsewhere.read_text() == "mine\n"
    lines = stream.getvalue().splitlines()
    assert lines[:3] == ["one", lines[1], "two"]
    assert "report.log: cannot be written" in lines[1]
    text = (tmp_path / "report.log").read_text()
    assert "WARNING 2 messages are missing here" in text and "three" in text


def test_a_full_disk_leaves_whole_messages_and_their_number(
    report: Report, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, room = os.write, 1000

    def limited(descriptor: int, data: bytes) -> int:
        nonlocal room
        if room == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = write(descriptor, data[:room])
        room -= written
        return written

    with monkeypatch.context() as patch:
        patch.setattr(module.os, "write", limited)
        for i in range(50):
            log.info("epoch %d", i)
    log.info("room again")

    lines = path.read_text().splitlines()
    written = [line for line in lines if "epoch" in line]
    assert 10 < len(written) < 20
    assert [line[24:] for line in lines[len(written) :]] == [
        f" WARNING {50 - len(written)} messages are missing here",
        " INFO digideep.pipeline.runner: room again",
    ]


def test_a_closed_or_broken_stderr_raises_nothing(path: Path) -> None:
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    closed = io.StringIO()
    closed.close()
    for stream in (closed, Broken()):
        report = open_report(path, "info", stream=stream)
        log.info("heard")
        report.close()

    assert path.read_text().count("heard") == 2


def test_a_missing_or_narrow_stderr_takes_what_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)

    assert SafeStream(narrow).write("ü\n") is True
    assert narrow.buffer.getvalue() == b"\\xfc\n"  # type: ignore[attr-defined]
    monkeypatch.setattr(sys, "stderr", None)
    assert SafeStream().write("x") is False
    assert SafeStream().is_terminal is False


@pytest.mark.parametrize(
    ("text", "level"),
    [("debug", 10), ("info", 20), ("WARN", 30), ("warning", 30), ("error", 40), ("fatal", 50), ("0", 10), (4, 50)],
)
def test_levels_have_names_and_numbers(text: str | int, level: int) -> None:
    assert parse_level(text) == level


@pytest.mark.parametrize("text", ["loud", "5", "-1", "", "²"])
def test_an_unknown_level_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match=r"--log-level: expected debug, info, warn, error, fatal or 0 to 4, found"):
        parse_level(text)
