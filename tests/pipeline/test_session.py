"""A session as an object: where its options come from, and what entering and leaving do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from digideep.errors import DigideepError, UsageError
from digideep.pipeline.options import Mode, SessionOptions
from digideep.pipeline.session import Session


def test_without_options_the_command_line_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["digideep", "--params", "digideep.params.cartpole_ppo", "--dry-run"])

    options = Session("digideep").options

    assert (options.mode, options.params, options.dry_run) == (Mode.TRAIN, "digideep.params.cartpole_ppo", True)


def test_a_wrong_command_line_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["digideep", "--parms", "x"])

    with pytest.raises(UsageError, match="did you mean '--params'"):
        Session("digideep")


def test_entering_needs_parameters_and_makes_nothing_without(tmp_path: Path) -> None:
    session = Session("digideep", SessionOptions(session_path=str(tmp_path)))

    with pytest.raises(DigideepError, match="expected parameters before it is entered"), session:
        pass

    assert list(tmp_path.iterdir()) == []
