from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as driver
from benchmarks import installing, measure, operations
from benchmarks.contenders import CONTENDERS, present
from benchmarks.installing import PEERS, Peer, install, packages_of
from benchmarks.measure import Cores, Failed, environment, on_cores, run_in_turns, run_one
from benchmarks.operations import paired
from benchmarks.result import Result
from benchmarks.tables import Table, store_table

CONSTRAINTS = "# Pins.\ntorch==2.13.0\nnumpy==2.4.6  # why\n"
PROGRAM = "import sys; print('chatter'); {}"


def names(found: list[Any]) -> list[str]:
    return [contender.name for contender in found]


def installed(place: Path, *peers: str) -> Path:
    for peer in peers:
        (place / peer).mkdir()
        (place / peer / "installed.txt").touch()
    return place


def test_peers_that_are_not_installed_are_left_out_with_a_line_each(tmp_path: Path) -> None:
    found, missing = present("B1", cores=1, peers=installed(tmp_path, "rllib"))

    assert names(found) == [
        "digideep",
        "digideep, exact: false",
        "rllib (sync vectorisation)",
        "rllib (vector_entry_point)",
    ]
    assert len(missing) == 4
    assert missing[0] == "stable-baselines3: is not installed and is left out; scripts/bench --setup installs it"


def test_contenders_take_part_where_their_settings_and_cores_say(tmp_path: Path) -> None:
    peers = installed(tmp_path, *PEERS)

    subprocess_row = "stable-baselines3 (cpu, SubprocVecEnv)"
    assert subprocess_row in names(present("B4", cores=2, peers=peers)[0])
    assert subprocess_row not in names(present("B4", cores=1, peers=peers)[0])
    assert subprocess_row not in names(present("B1", cores=2, peers=peers)[0])


def test_choice_of_contenders_keeps_ours(tmp_path: Path) -> None:
    peers = installed(tmp_path, *PEERS)

    assert names(present("B1", cores=1, names=["rllib (sync"], peers=peers)[0]) == [
        "digideep",
        "rllib (sync vectorisation)",
    ]
    assert names(present("B1", cores=1, quick=True, peers=peers)[0]) == ["digideep", "stable-baselines3 (cpu)"]


def test_every_peer_has_a_program_that_exists() -> None:
    for contender in CONTENDERS:
        if contender.peer is not None:
            assert contender.peer in PEERS
            assert (installing.ROOT / contender.program).is_file()


def test_contenders_take_turns_seed_by_seed(make_result: Callable[..., Result]) -> None:
    order = []

    def run(contender: Any, setting_id: str, *, seed: int, frames: int, cores: Cores) -> Result:
        order.append((seed, contender.name, setting_id, frames, cores))
        return make_result(contender.name, seed=seed)

    chosen = CONTENDERS[:2]
    run_in_turns(chosen, "B2", seeds=(1, 2), cores=Cores(1, 1), frames=500, run=run, show=lambda line: None)

    cores = Cores(1, 1)
    assert order == [(s, c.name, "B2", 500, cores) for s in (1, 2) for c in chosen]


def test_other_peers_may_repeat_less_often(make_result: Callable[..., Result]) -> None:
    def run(contender: Any, setting_id: str, *, seed: int, **options: Any) -> Result:
        return make_result(contender.name, seed=seed)

    wanted = ("digideep", "stable-baselines3", "rllib (sync vectorisation)")
    chosen = [contender for contender in CONTENDERS if contender.name in wanted and "B1" in contender.settings]
    results = run_in_turns(chosen, "B1", seeds=(1, 2, 3), cores=Cores(1, 1), others=1, run=run, show=lambda line: None)

    counts = {name: sum(result.contender == name for result in results) for name in wanted}
    assert counts == {"digideep": 3, "stable-baselines3": 3, "rllib (sync vectorisation)": 1}


def test_contender_that_fails_is_told_once_and_left_out_altogether(make_result: Callable[..., Result]) -> None:
    def run(contender: Any, setting_id: str, *, seed: int, **options: Any) -> Result:
        if contender.name == "stable-baselines3" and seed == 2:
            raise Failed("expected exit code 0, found 1: no memory")
        return make_result(contender.name, seed=seed)

    lines: list[str] = []
    both = ("digideep", "stable-baselines3")
    chosen = [contender for contender in CONTENDERS if contender.name in both and "B1" in contender.settings]
    results = run_in_turns(chosen, "B1", seeds=(1, 2, 3), cores=Cores(1, 1), run=run, show=lines.append)

    assert [(result.contender, result.seed) for result in results] == [("digideep", seed) for seed in (1, 2, 3)]
    left_out = [line for line in lines if "is left out" in line]
    assert left_out == ["stable-baselines3: is left out of B1: expected exit code 0, found 1: no memory"]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("sys.exit('no such game')", "expected exit code 0, found 1: no such game"),
        ("pass", "expected a result in the last line, found 'chatter'"),
    ],
)
def test_program_without_a_result_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str, expected: str
) -> None:
    program = tmp_path / "peer.py"
    program.write_text(PROGRAM.format(code))
    contender = CONTENDERS[0]._replace(peer="here", program=str(program))
    monkeypatch.setattr("benchmarks.contenders.python_of", lambda name: Path(driver.sys.executable))

    with pytest.raises(Failed, match=expected):
        run_one(contender, "B1", seed=1, frames=10, cores=Cores(2, 1))


def test_every_contender_gets_the_same_threads_and_its_own_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    monkeypatch.setenv("PYTHONPATH", "/somewhere")

    found = environment(2)

    assert found["OMP_NUM_THREADS"] == "2"
    assert not {"OPENBLAS_CORETYPE", "OPENBLAS_NUM_THREADS", "PYTHONPATH"} & set(found)


def test_runs_are_bound_to_as_many_cores_as_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure.shutil, "which", lambda name: "/bin/taskset")
    monkeypatch.setattr(measure.os, "cpu_count", lambda: 4)

    assert on_cores(["a"], 1) == ["taskset", "-c", "0", "a"]
    assert on_cores(["a"], 2) == ["taskset", "-c", "0,1", "a"]

    monkeypatch.setattr(measure.os, "cpu_count", lambda: 2)
    assert on_cores(["a"], 2) == ["a"]

    monkeypatch.setattr(measure.shutil, "which", lambda name: None)
    with pytest.raises(Failed, match="taskset: expected the command"):
        on_cores(["a"], 1)


def test_torch_is_installed_in_the_spelling_of_the_constraints() -> None:
    assert packages_of(Peer(("a-peer==1",), ("torch", "numpy")), CONSTRAINTS) == [
        "torch==2.13.0",
        "numpy==2.4.6",
        "a-peer==1",
    ]
    with pytest.raises(LookupError, match="expected a version of gymnasium, found none"):
        packages_of(Peer((), ("torch", "gymnasium")), CONSTRAINTS)


def test_constraints_pin_what_the_peers_share() -> None:
    constraints = (installing.ROOT / "requirements" / "constraints.txt").read_text()

    for peer in PEERS.values():
        assert "torch==2.13.0" in packages_of(peer, constraints)


def test_peer_that_cannot_be_installed_is_a_line_and_the_others_are_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def pip(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        place = Path(command[-1] if "venv" in command else command[0]).parts
        fails = "rllib" in place and "pip" in command
        if "venv" in command:
            Path(command[-1]).mkdir()
        return subprocess.CompletedProcess(command, int(fails), "chatter\nERROR: no such version\n" if fails else "")

    monkeypatch.setattr(installing.subprocess, "run", pip)

    failed = install(("rllib", "sb3"), peers=tmp_path)

    first, second = capsys.readouterr().out.splitlines()
    assert failed == ["rllib"]
    assert first == "rllib: is left out: ERROR: no such version"
    assert second.startswith("sb3: torch==2.13.0, ")
    assert names(present("B1", cores=1, quick=True, peers=tmp_path)[0]) == ["digideep", "stable-baselines3 (cpu)"]


def test_operations_are_paired_by_name_and_with_what_stands_behind_the_stroke() -> None:
    ours = [
        {"act": 1.0, "act / its other way": 2.0, "load": 3.0},
        {"act": 1.5, "act / its other way": 2.5, "load": 4.0},
    ]
    theirs = [{"act": 10.0}, {"act": 11.0}]

    found = [(one.name, one.against, one.ours, one.theirs) for one in paired(ours, theirs)]

    assert found == [
        ("act", "Stable-Baselines3", [1.0, 1.5], [10.0, 11.0]),
        ("act", "its other way", [1.0, 1.5], [2.0, 2.5]),
    ]


def test_operation_of_the_peer_that_we_do_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="found act for 9"):
        paired([{"act for 8": 1.0}], [{"act for 9": 1.0}])


def test_report_prints_what_was_stored(
    make_table: Callable[..., Table], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store_table(tmp_path / "a.json", make_table("B1"))
    store_table(tmp_path / "b.json", make_table("B2"))

    code = driver.main(["--report", str(tmp_path / "a.json"), str(tmp_path / "b.json")])

    out = capsys.readouterr().out
    assert code == 0
    assert "### B1: " in out
    assert "### B2: " in out


def test_report_of_another_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.json").write_text("{}")

    code = driver.main(["--report", str(tmp_path / "a.json")])

    assert code == 2
    assert capsys.readouterr().err.startswith(f"scripts/bench: error: {tmp_path}/a.json: expected results")


def test_unknown_benchmark_names_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        driver.main(["B99"])

    assert (
        "expected benchmarks of B0, B0-clip, B0-ddpg, B0-halfcheetah, B0-module, B0-sac, B1, B1-module, B10,"
        in capsys.readouterr().err
    )


def test_alias_stands_for_its_benchmarks_and_each_is_stored(
    monkeypatch: pytest.MonkeyPatch, make_table: Callable[..., Table], tmp_path: Path
) -> None:
    measured = []

    def table(name: str, options: Any) -> Table:
        measured.append((name, options.cores))
        return make_table(name, cores=options.cores)

    monkeypatch.setattr(driver, "_table", table)

    code = driver.main(["B3", "B1", "--two-cores", "--output", str(tmp_path / "r.json")])

    assert (code, measured) == (0, [("B3-pendulum", 2), ("B3-halfcheetah", 2), ("B1", 2)])
    assert len(driver.read_tables([tmp_path / "r.json"])) == 3


def test_program_that_does_not_end_is_one_line() -> None:
    with pytest.raises(Failed, match="expected an end within 0 s, found none"):
        measure.output_of([driver.sys.executable, "-c", "import time; time.sleep(60)"], Cores(2, 1), longest_s=0.2)


@pytest.mark.parametrize(("change", "says"), [("lr=fast", "'fast'"), ("model_name=CartPol-v1", "CartPole-v1")])
def test_the_errors_that_are_timed_are_those_that_are_meant(change: str, says: str) -> None:
    assert operations.error_s(change, Cores(2, 1), says=says) > 0.0

    with pytest.raises(Failed, match="expected an error with another one, found digideep: error"):
        operations.error_s(change, Cores(2, 1), says="another one")
