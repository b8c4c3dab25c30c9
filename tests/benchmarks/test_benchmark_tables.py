from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import operations
from benchmarks.explorers import Compared
from benchmarks.measure import Cores
from benchmarks.report import BEGIN, END, better_reference, fill_page, render
from benchmarks.result import Result
from benchmarks.settings import SETTINGS
from benchmarks.tables import Figure, Table, read_tables, store_table


def test_tables_are_read_as_they_were_stored(make_table: Callable[..., Table], tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    table = make_table()._replace(figures=[Figure("act", "us", "a peer", [1.0], [2.0], group="g")])

    store_table(path, table)

    assert read_tables([path]) == [table]


def test_new_table_replaces_the_one_of_the_same_benchmark_and_cores(
    make_table: Callable[..., Table], tmp_path: Path
) -> None:
    path = tmp_path / "results.json"
    store_table(path, make_table("B2", cores=2))
    store_table(path, make_table("B1", cores=2))
    store_table(path, make_table("B1", cores=1))

    store_table(path, make_table("B1", cores=2)._replace(threads=2))

    assert [(table.id, table.cores, table.threads) for table in read_tables([path])] == [
        ("B1", 1, 1),
        ("B1", 2, 2),
        ("B2", 2, 1),
    ]


@pytest.mark.parametrize("text", ["", "[]", '{"format": 9, "tables": []}', '{"format": 1, "tables": [{"id": "B1"}]}'])
def test_other_files_are_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)

    with pytest.raises(ValueError, match=r"other\.json: expected results of scripts/bench"):
        read_tables([path])


def test_summary_compares_with_the_better_row_of_the_peer(make_table: Callable[..., Table]) -> None:
    table = make_table()

    text = render([table])

    assert better_reference(table) == "stable-baselines3 (cpu)"
    summary = "| B1 | PPO-small on CartPole | 1 | 50,002 | 12,500 | **4.00** | 4.00 to 4.00 | yes |"
    assert summary in text


def test_row_shows_speed_ratio_start_return_and_memory(make_table: Callable[..., Table]) -> None:
    text = render([make_table()])

    row = "| stable-baselines3 | 10,000 | 5.00 (5.00 to 5.00) | 2.00 s | 200 (200 to 200) | 250 MB | in no run |"
    assert row in text
    assert "Transitions, gradient steps, networks and returns passed every check." in text
    assert "A CPU, 2 cores, Python 3.11.7, load 0.1 to 0.2, 2026-01-02." in text


def test_peer_with_fewer_repetitions_says_so_and_is_compared_seed_by_seed(make_table: Callable[..., Table]) -> None:
    table = make_table()
    runs = [run for run in table.runs if run.contender != "stable-baselines3" or run.seed == 3]

    text = render([table._replace(runs=runs)])

    assert "| stable-baselines3, 1 of 3 repetitions | 10,000 | 5.00 (5.00 to 5.00) |" in text


def test_unequal_work_is_told_beside_the_ratio(
    make_table: Callable[..., Table], make_result: Callable[..., Result]
) -> None:
    table = make_table()
    runs = [run._replace(parameters=1) if run.contender == "digideep" else run for run in table.runs]

    text = render([table._replace(runs=runs)])

    assert "| not: parameters |" in text
    assert "- stable-baselines3 does not do the same: parameters, 1 against 9,155." in text


def test_learning_curves_are_told_to_overlap_or_not(make_table: Callable[..., Table]) -> None:
    table = make_table("B0")
    lower = [run._replace(curve=[-1.0] * 10) if run.contender == "digideep" else run for run in table.runs]

    assert "the curves overlap" in render([table])
    assert "At 10 of 10 points 0 lies outside" in render([table._replace(runs=lower)])


def test_figures_are_compared_as_they_say(make_table: Callable[..., Table]) -> None:
    about = make_table().machine
    eight = Table("B8", 1, 1, about, [], [Figure("act", "us", "a peer", [2.0, 2.0], [10.0, 10.0])])
    ten = Table("B10", 1, 1, about, [], [Figure("help", "s", "nothing", [0.5], [0.25], compares="difference")])

    text = render([eight, ten])

    assert "| act | 2 us | a peer | 10 us | 5.00 | 5.00 to 5.00 |" in text
    assert "| help | 0.5 s | nothing | 0.25 s | +0.25 s | +0.25 to +0.25 |" in text


def test_stepping_shows_the_hardest_to_beat_way_of_each_group(make_table: Callable[..., Table]) -> None:
    figures = [
        Figure("CartPole-v1 x 8", "steps/s", "workers", [100.0], [50.0], "rate", "saves state"),
        Figure("CartPole-v1 x 8", "steps/s", "native", [100.0], [100.0], "rate", "saves state"),
        Figure("CartPole-v1 x 8", "steps/s", "envpool", [100.0], [125.0], "rate"),
    ]

    text = render([Table("B7", 2, 1, make_table().machine, [], figures)])

    assert "| CartPole-v1 x 8 | 100 | 1.00 (1.00 to 1.00): native | 0.80 (0.80 to 0.80): envpool |" in text


def test_what_auto_chose_itself_is_not_compared(
    make_table: Callable[..., Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = ("CartPole-v1", 8)
    rows = [
        Compared(*name, "digideep: native", 1.0, 0.0, 0.0, True),
        Compared(*name, "digideep: this process", 2.0, 400.0, 200.0, True),
    ]
    monkeypatch.setattr(operations, "_output", lambda *_, **__: json.dumps([row._asdict() for row in rows]))
    monkeypatch.setattr(operations, "say", lambda line: None)

    figures = operations.stepping(repetitions=2, cores=Cores(1, 1))

    text = render([Table("B7", 1, 1, make_table().machine, [], figures)])
    shown = "2.00 (2.00 to 2.00): digideep: this process"
    assert f"| CartPole-v1 x 8 | 400 | {shown} | {shown} |" in text


def test_time_of_a_benchmark_stands_above_its_limit(make_table: Callable[..., Table]) -> None:
    table = make_table()
    parts = ("environments", "acting", "rest of a rollout", "learning", "rest of an update", "logs and the rest")
    runs = [run._replace(profile=dict.fromkeys(parts, 3.0), steps_per_s=50_000.0) for run in table.runs]
    least = [Figure(part, "us", "", [2.0], [], group="B1") for part in ("environments", "acting", "learning")]

    text = render([table._replace(runs=runs), Table("limits", 1, 1, table.machine, [], least)])

    assert "| B1 | 3 | 3 | 3 | 3 | 3 | 3 | 20 | 50,000 |" in text
    assert "| B1, limit | 2 | 2 |  | 2 |  |  | 6 | 166,667 |" in text


def test_page_is_filled_between_its_marks_only(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")

    fill_page(page, "new\n")

    assert page.read_text() == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"


def test_page_without_marks_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n")

    with pytest.raises(ValueError, match="expected <!-- results: begin -->"):
        fill_page(page, "new\n")

    assert page.read_text() == "before\n"


def test_picture_of_the_same_results_has_the_same_bytes(make_table: Callable[..., Table], tmp_path: Path) -> None:
    from benchmarks.plot import draw

    tables = [make_table("B0"), make_table("B1")]

    draw(tables, tmp_path / "a.svg")
    draw(tables, tmp_path / "b.svg")

    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert b"<svg" in (tmp_path / "a.svg").read_bytes()


def test_benchmarks_are_in_the_order_of_their_numbers(make_table: Callable[..., Table], tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    for name in ("limits", "B10", "B1-module", "B2", "B1"):
        store_table(path, make_table()._replace(id=name))

    assert [table.id for table in read_tables([path])] == ["B1", "B1-module", "B2", "B10", "limits"]


def test_returns_are_those_of_the_benchmark_of_learning_where_there_is_one(make_table: Callable[..., Table]) -> None:
    speed, learning = make_table("B1"), make_table("B0-clip")
    unlucky = speed._replace(
        runs=[run._replace(final_return=-1.0) if run.contender == "digideep" else run for run in speed.runs]
    )

    assert "| not: return at the end |" in render([unlucky])
    assert "| not: return at the end |" not in render([unlucky, learning])


def test_table_tells_the_setting_that_it_was_measured_with(make_table: Callable[..., Table], tmp_path: Path) -> None:
    stored = SETTINGS["B1"]._replace(title="as it was then", value_clip=0.125, hidden_sizes=(8, 9))
    store_table(tmp_path / "results.json", make_table("B1")._replace(setting=stored._asdict()))

    text = render(read_tables([tmp_path / "results.json"]))

    assert "### B1: as it was then" in text
    assert "value clip 0.125" in text
    assert "two networks of 8 x 9" in text
