"""A process that saves as fast as it can, killed at random moments: nothing it has announced is lost."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from digideep.pipeline.checkpoint import CheckpointStore

# Goes on from the newest checkpoint and says each number after its save has returned.
DRIVER = """
import sys
import numpy as np
from digideep.pipeline.checkpoint import CheckpointMeta, CheckpointStore, Component, NoCheckpointError
store = CheckpointStore(sys.argv[1], session_id="session", run_id=sys.argv[2])
store.sweep()
try:
    loaded = store.load()
    number, weights = loaded.number, loaded.components["agents.agent"]["w"]
except NoCheckpointError:
    number, weights = 0, np.zeros(20_000)
while True:
    number, weights = number + 1, weights + 1.0
    meta = CheckpointMeta(0, number, 0, 0, "exact", None, {}, {}, "cpu", "")
    parts = [Component("agents.agent", "ppo", 1, {"w": weights}), Component("runner", "runner", 1, {"n": number})]
    store.save(number, parts, meta=meta, logs={})
    print(number, flush=True)
    store.retain(keep_last=2, keep_best=1, keep_every=10, best=[3])
"""


def run_and_kill(directory: Path, *, run_id: str, rng: random.Random) -> list[int]:
    """Return what the driver announced before it was killed."""
    command = [sys.executable, "-c", DRIVER, str(directory), run_id]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        announced = [int(driver.stdout.readline()) for _ in range(rng.randint(1, 4))]
        time.sleep(rng.random() * 0.01)  # anywhere inside the saves that follow
        driver.send_signal(signal.SIGKILL)
        announced += [int(line) for line in driver.stdout if line.endswith("\n")]
    return announced


def test_random_kills_lose_nothing_that_was_announced(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    directory = tmp_path / "checkpoints"
    best = 0
    for kill in range(10):
        announced = run_and_kill(directory, run_id=f"run{kill}", rng=rng)

        where = f"seed {seed}, kill {kill}"
        loaded = CheckpointStore(directory, session_id="session", run_id="look").load()
        assert announced[0] in (best + 1, best + 2), where  # a save may be complete and not yet announced
        assert announced == list(range(announced[0], announced[-1] + 1)), where
        assert loaded.number in (announced[-1], announced[-1] + 1), where
        assert set(loaded.components["agents.agent"]["w"].tolist()) == {float(loaded.number)}, where
        best = announced[-1]

    store = CheckpointStore(directory, session_id="session", run_id="last")
    store.sweep()
    store.retain(keep_last=2, keep_best=1, keep_every=10, best=[3])
    newest = store.load().number
    milestones = range(10, newest - 1, 10)
    assert store.numbers() == sorted({3, newest - 1, newest, *milestones})
    assert {path.name for path in directory.iterdir()} == {f"checkpoint-{number}" for number in store.numbers()}
