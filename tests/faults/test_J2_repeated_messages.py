"""What repeats is shown a few times, and then counted."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from fakes import Ended

from digideep.testing.environments import ToyEnv

Run = Callable[..., Ended]
Toy = Callable[..., list[str]]


def test_J2_a_warning_that_repeats_is_counted(command: Run, toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    step = ToyEnv.step

    def warning(self: ToyEnv, action: object) -> object:
        logging.getLogger("digideep.testing").warning("the same again")
        return step(self, action)

    monkeypatch.setattr(ToyEnv, "step", warning)

    ended = command(*toy("warns", "number_epochs=2", "test_activate=false", "num_workers=0"))

    assert ended.err.count("warning: the same again\n") == 5
    counted = [line for line in ended.err.splitlines() if line.endswith(" more times: the same again")]
    assert len(counted) == 1
    assert int(counted[0].split()[1]) > 200
    assert (ended.session / "report.log").read_text().count("the same again") == 6
