from __future__ import annotations

import io
import logging
import os
import pty
from pathlib import Path

import pytest

from digideep.utility.livelog import LiveLine, SafeStream
from digideep.utility.logging import open_report


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "20")
    return Terminal()


def test_the_line_is_written_over_and_cut_to_the_width(terminal: Terminal) -> None:
    live = LiveLine(SafeStream(terminal), interval_s=0.0)

    live.update("epoch 1")
    live.update("epoch 2 " + "x" * 50)
    live.clear()

    assert terminal.getvalue() == "\r\x1b[Kepoch 1\r\x1b[Kepoch 2 xxxxxxxxxxx\r\x1b[K"


def test_updates_that_follow_too_soon_are_left_out(terminal: Terminal) -> None:
    live = LiveLine(SafeStream(terminal), interval_s=1000.0)

    for i in range(10):
        live.update(f"epoch {i}")

    assert terminal.getvalue() == "\r\x1b[Kepoch 0"


def test_log_lines_go_above_it(terminal: Terminal, tmp_path: Path) -> None:
    report = open_report(tmp_path / "report.log", "info", stream=terminal)
    report.live.update("epoch 1")

    logging.getLogger("digideep.x").info("saved")
    report.close()

    assert terminal.getvalue() == "\r\x1b[Kepoch 1" + "\r\x1b[Ksaved\nepoch 1" + "\r\x1b[K"
    assert "epoch 1" not in (tmp_path / "report.log").read_text()


@pytest.mark.parametrize("stream", [io.StringIO(), None])
def test_without_a_terminal_nothing_is_written(
    stream: io.StringIO | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    live = LiveLine(SafeStream(stream))
    live.update("epoch 1")
    live.clear()

    assert not live.enabled
    assert capsys.readouterr().err == ""
    assert stream is None or stream.getvalue() == ""


def test_a_dumb_terminal_gets_plain_lines(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")

    assert not LiveLine(SafeStream(terminal)).enabled


def test_a_terminal_that_goes_away_raises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    master, slave = pty.openpty()
    stream = os.fdopen(slave, "w")
    live = LiveLine(SafeStream(stream), interval_s=0.0)
    assert live.enabled
    live.update("epoch 1")
    assert os.read(master, 100) == b"\r\x1b[Kepoch 1"

    os.close(master)
    live.update("epoch 2")
    live.update("epoch 3")

    assert not live.enabled
    assert live.stream.failures == 1
    try:
        stream.close()
    except OSError:
        assert stream.closed
