"""The methods of the runner that subclasses and notebooks use, and the order in which they come."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from fakes import TOY, read

import digideep
from digideep.pipeline.runner import Runner

METHODS = (
    "start", "lazy_init", "instantiate", "load", "load_memory", "override", "lazy_connect_signal", "on_sigint_received",
    "on_sigusr1_received", "train", "train_cycle", "termination_check", "monitor_epoch", "test", "log", "custom",
    "enjoy", "save", "save_final_checkpoint", "finalize", "state_dict", "load_state_dict",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


def _run(directory: Path, **knobs: Any) -> Any:
    return digideep.run(TOY, {"test_win_size": 1, **knobs}, session_path=str(directory), log_level="fatal")


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_there(name: str) -> None:
    assert callable(getattr(Runner, name))


def test_parts_of_an_epoch_come_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for name in (
        "override",
        "lazy_connect_signal",
        "train_cycle",
        "monitor_epoch",
        "log",
        "save",
        "finalize",
    ):
        really = getattr(Runner, name)

        def watching(self: Any, *arguments: Any, _name: str = name, _really: Any = really, **more: Any) -> Any:
            calls.append(_name)
            return _really(self, *arguments, **more)

        monkeypatch.setattr(Runner, name, watching)

    _run(tmp_path, number_epochs=1)

    assert calls == [
        "override", "lazy_connect_signal", "save", "train_cycle", "train_cycle", "monitor_epoch", "log", "save",
        "finalize",
    ]  # fmt: skip


def test_a_method_called_like_a_signal_does_what_the_signal_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = Runner.train_cycle

    def asking(self: Runner) -> None:
        really(self)
        if self.state.cycle == 1:
            self.on_sigusr1_received()
        if self.state.cycle == 3:
            self.on_sigint_received()

    monkeypatch.setattr(Runner, "train_cycle", asking)

    session = _run(tmp_path, keep_last=9)

    assert read(session.paths.summary)["exit_code"] == 130
    assert [entry["name"] for entry in read(session.paths.summary)["checkpoints"]] == [
        f"checkpoint-{number}" for number in (0, 1, 2, 3)
    ]


def test_a_test_that_a_subclass_replaces_need_not_return_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Runner, "test", lambda self: None)

    assert _run(tmp_path, number_epochs=2).summary.state == "done"


def test_the_memory_alone_can_be_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _run(tmp_path, max_exec_iter=1).paths.root
    loaded: list[str] = []
    monkeypatch.setattr(
        "digideep.pipeline.engine.SerialEngine.load_memories", lambda self, components: loaded.extend(components)
    )
    monkeypatch.setattr(Runner, "load", lambda self: self.load_memory())
    monkeypatch.setattr(Runner, "train", lambda self: self.stopped() or _outcome())

    digideep.run(load_checkpoint=str(path), resume=True, log_level="fatal")

    assert "memory.train" in loaded


def _outcome() -> Any:
    from digideep.pipeline.runner import Outcome

    return Outcome(75, "enough")


def test_custom_without_an_override_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        Runner.custom(object.__new__(Runner))

    assert "/runner/type" in caplog.text


def test_a_session_that_goes_on_says_so_before_its_first_cycle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = _run(tmp_path, max_exec_iter=1).paths
    assert (read(paths.summary)["state"], read(paths.summary)["exit_code"]) == ("stopped", 75)
    seen: list[Any] = []
    really = Runner.train_cycle
    monkeypatch.setattr(Runner, "train_cycle", lambda self: [seen.append(read(paths.summary)), really(self)][1])

    digideep.run(load_checkpoint=str(paths.root), resume=True, log_level="fatal")

    assert [seen[0][key] for key in ("state", "exit_code", "reason")] == ["running", None, ""]
    assert len(seen[0]["checkpoints"]) == 2


def test_a_deadline_after_the_end_says_nothing_of_a_cycle_and_keeps_how_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    session = _run(tmp_path, max_exec_iter=1)
    ended = read(session.paths.summary)

    session.requests.on_deadline(143)

    assert "inside a cycle" not in session.paths.report_log.read_text() + capfd.readouterr().err
    assert read(session.paths.summary) == ended and ended["exit_code"] == 75
