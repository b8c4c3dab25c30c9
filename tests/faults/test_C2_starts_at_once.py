"""Sessions that start in the same second are distinct."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fakes import TOY, Program, read
from ledger import Tally

STARTS = 16


def test_C2_16_starts_at_once_make_16_sessions(start: Callable[..., Program], tmp_path: Path, tally: Tally) -> None:
    place = tmp_path / "sessions"
    programs = [
        start("--params", TOY, "--session-path", str(place), "--create-session-only", "--set", f"seed={seed}")
        for seed in range(STARTS)
    ]

    ended = [program.end() for program in programs]

    tally["starts at once"] += STARTS
    assert [e.code for e in ended] == [0] * STARTS
    assert [read(e.session / "cpanel.json")["seed"] for e in ended] == list(range(STARTS))
    assert sorted(path.name for path in place.iterdir()) == sorted(e.session.name for e in ended)
    assert len({read(e.session / "meta.json")["id"] for e in ended}) == STARTS
    seconds = {e.session.name[: len("session_YYYYMMDDHHMMSS")] for e in ended}
    assert len(seconds) < STARTS  # or none of them would have had to give way


def test_C2_trainings_that_start_at_once_do_not_mix(start: Callable[..., Program], tmp_path: Path) -> None:
    sets = ["--set", "number_epochs=1", "test_activate=false", "save_interval=0"]
    programs = [start("--params", TOY, "--session-path", str(tmp_path), *sets, f"seed={seed}") for seed in range(4)]

    ended = [program.end() for program in programs]

    assert [e.code for e in ended] == [0] * 4
    assert len({e.session for e in ended}) == 4
    assert [read(e.session / "cpanel.json")["seed"] for e in ended] == list(range(4))
