"""B6: where a resume cannot give the same bits one warning a reason says so; the number of workers is no reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import Ended, manifest, read
from toys import arguments, same_run, straight_run, toys

from digideep.pipeline import exactness, saving
from digideep.pipeline import session as sessions

Run = Callable[..., Ended]
Toy = Callable[..., list[str]]

QUICK = ["number_epochs=3", "test_win_size=1", "max_exec_iter=1"]

MODULES = (exactness, saving, sessions)
VERSIONS = exactness.versions()
REASONS: dict[str, tuple[str, Callable[..., object], str]] = {
    "versions": ("versions", lambda: {**VERSIONS, "torch": "0.1"}, "other versions: torch 0.1 -> "),
    "threads": ("thread_counts", lambda: {"torch": 3, "numpy": 1}, "other threads: "),
    "device": ("device_name", lambda device: "cpu (Abacus 1)", "other device: cpu (Abacus 1) -> "),
}


@pytest.mark.parametrize("reason", REASONS)
def test_B6_another_machine_or_version_is_one_warning_and_stands_in_every_later_checkpoint(
    command: Run, toy: Toy, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    function, elsewhere, sentence = REASONS[reason]
    with monkeypatch.context() as other:
        for module in MODULES:
            other.setattr(module, function, elsewhere)
        session = command(*toy("moved", *QUICK), expect=75).session
    assert manifest(session)["exactness"] == "exact"

    resumed = command("--load-checkpoint", str(session), "--resume", expect=75)
    again = command("--load-checkpoint", str(session), "--resume")

    lines = [line for line in resumed.err.splitlines() if "not exact" in line]
    assert len(lines) == 1
    assert f"resume is not exact: {sentence}" in lines[0]
    # The second resume is on the machine of the checkpoint it goes on from, whose bits are lost all the same.
    assert "not exact" not in again.err
    assert manifest(session)["exactness"] == read(session / "summary.json")["exactness"] == f"none ({reason})"


def test_B6_several_reasons_are_one_warning_each(command: Run, toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as other:
        for function, elsewhere, _ in REASONS.values():
            for module in MODULES:
                other.setattr(module, function, elsewhere)
        session = command(*toy("moved", *QUICK), expect=75).session

    resumed = command("--load-checkpoint", str(session), "--resume", expect=75)

    assert resumed.err.count("resume is not exact") == 3
    assert manifest(session)["exactness"] == "none (device, threads, versions)"


def test_B6_an_environment_without_state_is_one_warning(command: Run, toy: Toy) -> None:
    knobs = {"model_name": "toy_parts:ToyStateless-v0", "number_epochs": 2, "max_exec_iter": 1, "test_win_size": 1}

    first = command(*toy("stateless"), "--cpanel", json.dumps(knobs), expect=75)
    second = command("--load-checkpoint", str(first.session), "--resume")

    for ended in (first, second):
        assert ended.err.count("resume starts new episodes: ToyStateless-v0 has no state to save") == 1
    assert manifest(first.session)["exactness"] == "none (environment)"


def test_B6_other_code_is_one_line_and_stands_in_every_later_checkpoint(command: Run, toy: Toy) -> None:
    session = command(*toy("edited", *QUICK), expect=75).session
    changed = session / "modules" / "digideep" / "agent" / "schedules.py"
    changed.write_text(changed.read_text() + "\n# Later.\n")

    resumed = command(
        "--load-checkpoint", str(session), "--resume", "--code", "installed", "--trust-session", expect=75
    )

    assert sum("agent/schedules.py" in line for line in resumed.err.splitlines()) == 1
    assert manifest(session)["exactness"] == "none (code)"


@pytest.mark.parametrize("toy", toys())
def test_B6_the_number_of_workers_is_no_reason(digideep: Run, resume: Run, tmp_path: Path, toy: str) -> None:
    straight = straight_run(toy, tmp_path)
    workers = "/explorer/train/num_workers"

    sessions = [digideep(*arguments(toy, tmp_path, f"workers{n}", f"num_workers={n}")).session for n in (1, 2)]
    argv = arguments(toy, tmp_path, "changing", "num_workers=2")
    sessions.append(digideep(*argv, moments={"learnt 3": ["SIGTERM"]}, expect=143).session)
    resumed = resume(sessions[-1], "--set", f"{workers}=0", moments={"learnt 5": ["SIGTERM"]}, expect=143)
    last = resume(sessions[-1], "--set", f"{workers}=1")

    assert "exact" not in resumed.err + last.err
    for session in sessions:
        assert same_run(straight, session) == []
        assert manifest(session)["exactness"] == "exact"
