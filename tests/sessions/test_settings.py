"""Knobs of a run that are seen in its session: saves, what is kept, hooks, subclasses, metrics, profile, devices."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import Ended, checkpoints, differences, event_steps, manifest, monitor_rows, read, rows, state

Run = Callable[..., Ended]
Toy = Callable[..., list[str]]

QUICK = ["number_epochs=2", "test_win_size=1"]


def test_saves_follow_the_calendar_and_the_last_one_is_always_made(command: Run, toy: Toy) -> None:
    ended = command(*toy("calendar", "number_epochs=5", "test_win_size=1", "save_interval=2", "keep_last=9"))

    assert ended.saved == ["checkpoint-0", "checkpoint-4", "checkpoint-8", "checkpoint-10"]
    assert checkpoints(ended.session) == [0, 4, 8, 10]


def test_without_a_calendar_the_first_and_the_last_are_saved(command: Run, toy: Toy) -> None:
    assert command(*toy("rare", *QUICK, "save_interval=0")).saved == ["checkpoint-0", "checkpoint-4"]


def test_saves_may_follow_the_clock(command: Run, toy: Toy) -> None:
    ended = command(*toy("clock", *QUICK, "save_interval=0", "save_every_s=1e-6"))

    assert ended.saved == ["checkpoint-0", "checkpoint-2", "checkpoint-4", "checkpoint-4"]


def test_newest_best_and_milestones_are_kept(command: Run, toy: Toy) -> None:
    sets = ["number_epochs=8", "test_win_size=2", "keep_last=2", "keep_best=1", "keep_every=6"]

    session = command(*toy("kept", *sets)).session

    summary = read(session / "summary.json")
    best = int(summary["best_test"]["checkpoint"].partition("-")[2])
    assert set(checkpoints(session)) == {0, 6, 12, 14, 16, best}
    assert [entry["name"] for entry in summary["checkpoints"]] == [f"checkpoint-{n}" for n in checkpoints(session)]
    scores = [row["data"]["test/return"]["mean"] for row in rows(session / "varlog.jsonl")]
    assert summary["best_test"]["mean_return"] == pytest.approx(max(scores))
    assert best == 2 * (len(scores) - scores[::-1].index(max(scores)))  # among equals the latest


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("/agents/agent/model/hidden_sizes=[32]", "/agents/agent/model/hidden_sizes: expected [16, 16] as in the "),
        ("/env/model_name=CartPole-v1", "/env/model_name: expected "),
    ],
)
def test_a_network_or_environment_that_does_not_fit_the_checkpoint_is_one_line_that_names_the_change(
    command: Run, toy: Toy, change: str, message: str
) -> None:
    session = command(*toy("first", *QUICK, "test_activate=false")).session
    before = (session / "repeal.json").read_bytes()

    sets = ["/runner/n_epochs=4", "/env/env_kwargs={}", change]
    ended = command("--load-checkpoint", str(session), "--resume", "--set", *sets, expect=2)

    (line,) = [line for line in ended.err.splitlines() if line.startswith("digideep: error: ")]
    assert message in line and "start a new session with it" in line
    assert (session / "repeal.json").read_bytes() == before


def test_a_network_that_does_not_fit_although_nothing_was_changed_is_damage(command: Run, toy: Toy) -> None:
    session = command(*toy("first", *QUICK, "test_activate=false")).session
    tree = (session / "params.yaml").read_text()
    (session / "params.yaml").write_text(tree.replace("hidden_sizes: [16, 16]", "hidden_sizes: [32]"))
    assert (session / "params.yaml").read_text() != tree

    command("--load-checkpoint", str(session), "--resume", "--set", "/runner/n_epochs=4", expect=5)


def test_every_kind_of_save_holds_the_same_parts(command: Run, toy: Toy) -> None:
    sets = ["number_epochs=2", "test_win_size=1", "keep_last=9"]
    session = command(*toy("parts", *sets), moments={"learnt 1": ["SIGUSR1"]}).session

    parts = [sorted(manifest(session, number)["components"]) for number in checkpoints(session)]

    assert checkpoints(session) == [0, 1, 2, 4]
    assert parts == [parts[0]] * 4
    assert {"agents.agent", "memory.train", "explorer.train", "statistics", "rng", "runner", "monitor"} <= set(parts[0])


def test_a_function_is_called_after_each_epoch_before_saving(command: Run, toy: Toy) -> None:
    session = command(*toy("hook", *QUICK, "on_epoch=toy_parts:on_epoch")).session

    frames = [row["meta"]["frame"] for row in rows(session / "varlog.jsonl")]
    assert (session / "customs.txt").read_text() == f"1 {frames[0]} True\n2 {frames[1]} True\n"


@pytest.mark.parametrize(
    ("value", "found"), [("toy_parts:nothing", "nothing"), ("nowhere_at_all:f", "nowhere_at_all"), ("toy_parts", ":")]
)
def test_a_function_that_is_not_there_is_a_usage_error_and_nothing_is_left(
    command: Run, toy: Toy, tmp_path: Path, value: str, found: str
) -> None:
    before = sorted(tmp_path.iterdir())

    ended = command(*toy("hook", *QUICK, f"on_epoch={value}"), expect=2)

    error = ended.err.splitlines()[-1]
    assert error.startswith("digideep: error: ") and found in error
    assert "Traceback" not in ended.err
    assert sorted(tmp_path.iterdir()) == before


def test_metrics_of_an_environment_reach_every_place(command: Run, toy: Toy) -> None:
    knobs = {
        "model_name": "toy_parts:ToyRecording-v0", "info_keys": ["is_success", "colour"], "number_epochs": 2,
        "normalize_rewards": False, "normalize_observations": False, "test_win_size": 2,
    }  # fmt: skip

    session = command(*toy("metrics", "--cpanel", json.dumps(knobs))[:6], "--cpanel", json.dumps(knobs)).session
    played = command("--load-checkpoint", str(session), "--play")

    last = rows(session / "varlog.jsonl")[-1]["data"]
    assert last["env/colour"]["mean"] == 3.0
    assert "env/unheard" not in last
    assert {"env/epoch", "env/frame", "env/fraction", "env/is_success", "test/colour"} <= last.keys()
    header = monitor_rows(session)["monitor/train/0.monitor.csv"][0].split(",")
    assert {"r", "l", "env", "is_success", "colour", "epoch", "frame", "fraction"} <= set(header)
    assert event_steps(session)["env/colour"] == [row["meta"]["frame"] for row in rows(session / "varlog.jsonl")]
    results = read(played.evaluation / "results.json")
    assert results["episodes"][0]["metrics"]["colour"] == 3.0
    assert results["success_rate"] in (0.0, 1.0)


def test_environments_are_told_the_progress_at_each_epoch(command: Run, toy: Toy) -> None:
    knobs = {"model_name": "toy_parts:ToyRecording-v0", "normalize_rewards": False, "test_win_size": 1}

    session = command(*toy("told"), "--cpanel", json.dumps(knobs)).session

    data = [row["data"] for row in rows(session / "varlog.jsonl")]
    assert [entry["env/epoch"]["max"] for entry in data] == [0.0, 1.0, 2.0, 3.0]
    assert [entry["env/fraction"]["max"] for entry in data] == [0.0, 0.25, 0.5, 0.75]


def test_the_profile_is_one_tree_and_goes_on_after_a_resume(command: Run, toy: Toy) -> None:
    first = command(*toy("timers", "num_workers=2", "test_win_size=1", "max_exec_iter=2"), expect=75)
    before = read(first.session / "timers.json")
    command("--load-checkpoint", str(first.session), "--resume")
    after = read(first.session / "timers.json")

    def check(node: dict[str, object]) -> None:
        assert {"total", "count", "self", "children"} <= node.keys()
        assert all(isinstance(node[key], int | float) and node[key] >= 0 for key in ("total", "count", "self"))
        for child in node["children"].values():
            check(child)

    for tree in (before, after):
        check(tree)
        assert (tree["name"], set(tree["metadata"]) >= {"command_line", "versions"}) == ("root", True)
    cycle = after["children"]["cycle"]
    assert (before["children"]["cycle"]["count"], cycle["count"]) == (4, 8)
    assert set(cycle["children"]) >= {"explore", "store", "update"}
    explore = cycle["children"]["explore"]
    assert explore["children"]["envstep"]["count"] == 8 * 16
    assert explore["children"]["worker0"]["is_parallel"] is True
    assert explore["children"]["worker0"]["children"]["step"]["count"] > 0
    profile = rows(first.session / "prolog.jsonl")
    assert [row["data"]["/cycle"]["count"] for row in profile] == [2, 2, 2, 2]
    assert [row["data"]["/cycle/explore/envstep"]["count"] for row in profile] == [32] * 4
    assert [row["meta"]["epoch"] for row in profile] == [1, 2, 3, 4]


def test_the_level_of_the_profiler_limits_its_depth(command: Run, toy: Toy) -> None:
    session = command(*toy("shallow", *QUICK), "--profiler-level", "1").session

    children = read(session / "timers.json")["children"]
    assert set(children) >= {"cycle", "test", "save", "log"}
    assert all(child["children"] == {} for child in children.values())


def test_logs_and_learning_are_the_same_at_any_profiler_level(command: Run, toy: Toy) -> None:
    every, none = (command(*toy(f"level{n}", *QUICK), "--profiler-level", n).session for n in ("-1", "0"))

    assert differences(every, none) == []


def test_the_last_row_of_each_monitor_file_belongs_to_its_mode(command: Run, toy: Toy) -> None:
    session = command(*toy("monitors", *QUICK, "num_workers=2")).session

    files = monitor_rows(session)
    assert set(files) == {
        "monitor/train/0.monitor.csv", "monitor/train/1.monitor.csv", "monitor/test/0.monitor.csv",
    }  # fmt: skip
    trained = sum(len(lines) - 1 for name, lines in files.items() if "/train/" in name)
    assert trained == read(session / "summary.json")["episode"]


def test_at_most_60_files_whatever_the_workers_and_resumes(command: Run, toy: Toy) -> None:
    session = command(*toy("many", *QUICK, "num_envs=9", "num_workers=9", "max_exec_iter=1"), expect=75).session
    sets = ["/runner/max_iter=0", "/explorer/train/num_workers=0", "/explorer/test/num_workers=0"]
    for _ in range(3):
        earlier = ["--load-checkpoint", str(session), "--checkpoint", "2", "--resume", "--set", *sets]
        command(*earlier, moments={"learnt 3": ["SIGTERM"]}, expect=143)
        command("--load-checkpoint", str(session), "--resume")

    apart = {"checkpoints", "modules", "evaluations"}
    files = [p for p in session.rglob("*") if p.is_file() and p.relative_to(session).parts[0] not in apart]
    assert len(files) <= 60
    assert len(list((session / "monitor" / "train").iterdir())) <= 8
    assert len(list((session / "tensorboard").iterdir())) == 1


def test_policies_of_another_session_are_where_a_new_one_starts(command: Run, toy: Toy) -> None:
    first = command(*toy("first", *QUICK)).session
    source = first / "checkpoints" / "checkpoint-4"

    second = command(*toy("second", *QUICK, f"init_from={source}", "max_exec_iter=1"), expect=75).session

    begun = state(second, 0)
    assert begun["runner"]["epoch"] == 0
    assert begun["counters"] == {"env_steps": 0, "agent_steps": 0, "episodes": 0, "updates": 0}
    assert begun["statistics"]["returns"]["rows"] == state(first)["statistics"]["returns"]["rows"] > 0
    lineage = read(second / "meta.json")["lineage"]
    assert (lineage["session"], lineage["checkpoint"]) == (read(first / "meta.json")["id"], "checkpoint-4")
    other = command(*toy("other", *QUICK)).session
    weights = [_policy(s, n) for s, n in ((second, 0), (first, 4), (other, 0))]
    assert weights[0] == weights[1] != weights[2]
    command("--load-checkpoint", str(second), "--resume")
    assert read(second / "summary.json")["epoch"] == 2


def _policy(session: Path, number: int) -> dict[str, bytes]:
    from safetensors.numpy import load_file

    tensors = load_file(session / "checkpoints" / f"checkpoint-{number}" / "agents.agent.safetensors")
    return {name: array.tobytes() for name, array in tensors.items() if "/policy/" in name}


@pytest.mark.parametrize("name", ["/nowhere/at/all", "first"])
def test_a_start_from_nothing_is_a_usage_error(command: Run, toy: Toy, tmp_path: Path, name: str) -> None:
    command(*toy("first"), "--create-session-only")
    value = name if name.startswith("/") else str(tmp_path / name)

    ended = command(*toy("second", f"init_from={value}"), expect=2 if name.startswith("/") else 5)

    assert ended.err.splitlines()[-1].startswith("digideep: error: ")
    assert not (tmp_path / "second" / "checkpoints").exists()


def test_a_time_budget_ends_a_run_with_75(command: Run, toy: Toy) -> None:
    ended = command(*toy("short", "number_epochs=1000", "max_exec_time=1e-9"), expect=75)

    assert ended.saved[-1] == "checkpoint-0"
    assert read(ended.session / "summary.json")["reason"].startswith("max_time")
    again = command(
        "--load-checkpoint",
        str(ended.session),
        "--resume",
        "--set",
        "/runner/max_time=0",
        "/runner/max_iter=1",
        expect=75,
    )
    assert again.saved[-1] == "checkpoint-2"


def test_a_device_that_is_not_there_is_a_usage_error(command: Run, toy: Toy, tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is one here")

    ended = command(*toy("gpu", *QUICK), "--device", "cuda", expect=2)

    assert ended.err.startswith("digideep: error: --device: ")
    assert not (tmp_path / "gpu").exists()


def test_a_repeal_is_recorded_and_params_stay_what_they_were(command: Run, toy: Toy) -> None:
    session = command(
        *toy("repealed", "/runner/n_epochs=3", "/runner/max_iter=1", "test_win_size=1"), expect=75
    ).session
    params = (session / "params.yaml").read_text()

    command("--load-checkpoint", str(session), "--resume", "--repeal", '{"/runner/n_epochs": 2, "/runner/max_iter": 0}')

    entries = [(e["path"], e["old"], e["new"], e["epoch"]) for e in read(session / "repeal.json")]
    assert entries[:2] == [("/runner/n_epochs", 4, 3, 0), ("/runner/max_iter", 0, 1, 0)]
    assert entries[2][0] == "/engine/chosen"
    assert entries[3:] == [("/runner/n_epochs", 3, 2, 1), ("/runner/max_iter", 1, 0, 1)]
    assert (session / "params.yaml").read_text() == params
    assert "n_epochs: 4" in params


def test_a_play_forgets_its_changes(command: Run, toy: Toy) -> None:
    session = command(*toy("played", *QUICK)).session
    before = (session / "repeal.json").read_text()

    command("--load-checkpoint", str(session), "--play", "--set", "/explorer/eval/n_episodes=3")

    assert (session / "repeal.json").read_text() == before
