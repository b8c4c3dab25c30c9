"""A save writes the state as of the call, whatever training does while the disk is still busy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from savers import Bench

from digideep.types import LiveSegments, Segment


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "session")
    yield bench
    bench.close()


class Training:
    """Everything that a save copies, and a step that changes all of it in place."""

    def __init__(self) -> None:
        self.weights = np.arange(500, dtype="float32")
        self.strided = np.arange(64.0).reshape(8, 8)[:, ::2]
        self.ring = np.zeros((4, 30, 3), "float32")
        self.generator = np.random.default_rng(3)
        self.counters = {"frames": 1, "nested": [1, {"deep": (1, 2.5)}]}
        self.sealed = ["0-30", "1-30"]

    def state(self) -> dict[str, Any]:
        segments = [Segment(name, {"/rows": self.ring[index]}) for index, name in enumerate(self.sealed)]
        return {
            "agents.agent": {"w": self.weights, "s": self.strided, "rng": self.generator.bit_generator.state},
            "memory.train": {"cursor": self.counters["frames"], "segments": LiveSegments(segments)},
            "runner": self.counters,
        }

    def step(self) -> None:
        self.weights += 1.0
        self.strided *= -2.0
        self.ring += 7.0
        self.generator.random(100)
        self.counters["frames"] += 1
        self.counters["nested"][1]["deep"] = "changed"
        self.sealed[:] = [f"{self.counters['frames']}-30"]


def plain(components: dict[str, Any]) -> Any:
    """Return a state as text, arrays and segments included, without what a clock has touched."""

    def value(item: Any) -> Any:
        if isinstance(item, np.ndarray):
            return [str(item.dtype), item.tolist()]
        if hasattr(type(item), "names"):
            return [[segment.name, value(dict(segment.arrays))] for segment in item]
        if isinstance(item, dict):
            return {str(key): value(entry) for key, entry in item.items()}
        return [value(entry) for entry in item] if isinstance(item, list | tuple) else item

    return json.dumps({name: value(state) for name, state in components.items() if name != "clocks"}, sort_keys=True)


def test_A8_what_changes_right_after_the_call_is_not_in_the_checkpoint(bench: Bench) -> None:
    training, expected = Training(), plain(Training().state())
    bench.disk.gate.clear()

    bench.begin(1, training.state())
    for _ in range(3):
        training.step()
    bench.disk.gate.set()
    bench.saver.look(wait=True)

    loaded = bench.load(1)
    assert plain({name: loaded[name] for name in training.state()}) == expected
    assert plain(training.state()) != expected


def test_A8_the_copy_of_one_save_is_not_changed_by_the_next(bench: Bench) -> None:
    training, expected = Training(), []
    for number in range(1, 5):
        expected.append(plain(training.state()))
        bench.begin(number, training.state())
        training.step()
    bench.saver.look(wait=True)

    for number in (3, 4):  # what is kept
        loaded = bench.load(number)
        assert plain({name: loaded[name] for name in training.state()}) == expected[number - 1]


def test_A8_rows_and_metrics_after_the_call_are_not_in_it_either(bench: Bench) -> None:
    bench.logs.monitor.set_meta(epoch=1, frame=10, episode=0)
    bench.logs.monitor.monitor("train/return", 1.0)
    bench.logs.log_epoch()
    lengths = bench.logs.lengths()
    bench.logs.monitor.monitor("train/length", 5.0)
    bench.disk.gate.clear()

    bench.begin(1, {"runner": {}})
    bench.logs.monitor.monitor("train/length", 500.0)
    bench.logs.log_epoch()
    bench.disk.gate.set()
    bench.saver.look(wait=True)

    manifest = json.loads((bench.paths.checkpoint(1) / "MANIFEST.json").read_text())
    assert manifest["logs"] == lengths != bench.logs.lengths()
    pending = bench.load(1)["monitor"]["series"]["train/length"]
    assert "500" not in plain({"monitor": pending}) and "5.0" in plain({"monitor": pending})


def test_A8_the_summary_tells_of_the_moment_of_the_call(bench: Bench) -> None:
    bench.logs.monitor.monitor("train/return", 3.0)
    bench.disk.gate.clear()

    bench.begin(1, {"runner": {}})
    bench.logs.monitor.monitor("train/return", 1000.0)
    bench.disk.gate.set()
    bench.saver.look(wait=True)

    summary = json.loads(bench.paths.summary.read_text())
    assert summary["checkpoints"] == [{"name": "checkpoint-1", "epoch": 1, "frame": 10, "mean_return": 3.0}]
