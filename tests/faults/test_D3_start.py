"""A signal during start-up neither kills nor gets lost, from the first lines of the program on."""

from __future__ import annotations

import functools
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import TOY, Ended, Program
from signalling import count_events, signal_at_event

Run = Callable[..., Ended]
Start = Callable[..., Program]
Toy = Callable[..., list[str]]

SHORT = ["number_epochs=1", "epoch_size=4", "n_steps=4", "num_envs=2", "minibatch_size=8", "test_activate=false"]

# The real program, every import included; the hook is there before it and counts as `signal_at_event` does.
REAL = """
import sys
sys.path[:0] = {path!r}
from signalling import signal_at_event
signal_at_event({number}, {event})
sys.argv = ["digideep", *{argv!r}]
from digideep.main import console
console()
"""


@pytest.fixture
def rng() -> random.Random:
    seed = int(os.environ.get("DIGIDEEP_TEST_SEED", random.randrange(2**32)))
    print("DIGIDEEP_TEST_SEED", seed)
    return random.Random(seed)


def test_D3_a_signal_at_any_moment_of_the_start_is_neither_lost_nor_deadly(
    start: Start, toy: Toy, tmp_path: Path, rng: random.Random
) -> None:
    _check_moments(start, toy, tmp_path, rng, cases=12)


@pytest.mark.nightly
def test_D3_a_signal_at_300_moments_of_the_start_is_neither_lost_nor_deadly(
    start: Start, toy: Toy, tmp_path: Path, rng: random.Random
) -> None:
    _check_moments(start, toy, tmp_path, rng, cases=300)


def _check_moments(start: Start, toy: Toy, tmp_path: Path, rng: random.Random, *, cases: int) -> None:
    counted = tmp_path / "events"
    start(*toy("counted", *SHORT), before=functools.partial(count_events, str(counted))).end()
    events = int(counted.read_text())
    assert events > 500

    for case in range(cases):
        event = int(events * (case + rng.random()) / cases)
        number = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP)[case % 4]
        before = functools.partial(signal_at_event, number, event)
        ended = start(*toy(f"case{case}", *SHORT), before=before).end()

        told = f"{number.name} at event {event} of {events}: {ended}"
        if number == signal.SIGUSR1:
            assert ended.code == 0, told
            assert ended.saved[:3] == ["checkpoint-0", "checkpoint-1", "checkpoint-4"], told
        else:
            assert ended.code == 128 + number, told
            # The last moments may lie in one of the four cycles already: the number of events varies by a few.
            assert ended.saved == [] or int(ended.saved[-1].partition("-")[2]) < 4, told
        assert "Traceback" not in ended.err, told


@pytest.mark.parametrize("fraction", [0.03, 0.5])
def test_D3_a_signal_among_the_imports_is_neither_lost_nor_deadly(tmp_path: Path, fraction: float) -> None:
    # Some 9,000 events with every import of a fresh interpreter; it is only needed that both are among the imports.
    argv = ["--params", TOY, "--session-path", str(tmp_path), "--session-name", "real", "--set", *SHORT]
    path = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    text = REAL.format(path=path, number=int(signal.SIGTERM), event=int(5000 * fraction), argv=argv)

    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)

    assert done.returncode == 143, done.stderr
    assert "Traceback" not in done.stderr


def test_D3_handlers_stand_before_anything_heavy_is_imported() -> None:
    program = (
        "import signal, sys\n"
        "from digideep.pipeline.signals import StopRequest\n"
        "heavy = {'torch', 'numpy', 'gymnasium', 'argparse', 'yaml'}\n"
        "tell = lambda self: (sys.stderr.write(str(sorted(heavy & set(sys.modules)))), sys.exit(0))\n"
        "StopRequest.install = tell\n"
        "from digideep.main import console\n"
        "console()\n"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stderr == "[]"
