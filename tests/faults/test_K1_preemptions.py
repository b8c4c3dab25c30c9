"""Jobs that a queue stops, kills and starts again: the real scripts, in a queue that is made for tests."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_slurm import FakeSlurm, Job
from fakes import Ended, check_logs_continue, differences, read, wait_until

SCRIPTS = Path(__file__).resolve().parents[2] / "examples" / "slurm"
TOY_PPO = "digideep.testing.toy_ppo"
GRACE_S = 55
LASTS_S = 9  # more than a start takes on a busy machine: one that finds less than grace_s left trains on for a while

Run = Callable[..., Ended]


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory as on a file system that all nodes see: sessions of jobs on /tmp are refused."""
    directory = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="digideep-test-"))
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def slurm(tmp_path: Path, shared: Path) -> FakeSlurm:
    environ = {**os.environ, "DIGIDEEP_SESSIONS": str(shared), "OMP_NUM_THREADS": "1"}
    return FakeSlurm(tmp_path / "slurm", environ=environ)


@pytest.fixture
def rng() -> random.Random:
    seed = int(os.environ.get("DIGIDEEP_TEST_SEED", random.randrange(2**32)))
    print("DIGIDEEP_TEST_SEED", seed)
    return random.Random(seed)


def _saves(path: Path) -> int:
    return path.read_text().count("\nsaved ") if path.exists() else 0


class Preemption:
    """What a queue does to one run of a job; `kind` says what, once it has happened.

    Signals come at a random moment: while the program starts, or after a few more checkpoints. They are TERM, to the
    shell alone or to all processes, or a KILL of all, and sometimes USR1 to the shell shortly before.
    """

    def __init__(self, slurm: FakeSlurm, job: Job, rng: random.Random) -> None:
        self._slurm, self._job, self._rng = slurm, job, rng
        self.kind = ""

    def __call__(self, process: subprocess.Popen[bytes]) -> None:
        rng, output = self._rng, self._slurm.output(self._job)
        before = _saves(output)
        if rng.random() < 0.3:
            due = time.monotonic() + 2.0 * rng.random()
            self._wait(process, lambda: time.monotonic() > due or _saves(output) > before)
        else:
            wanted = before + rng.choice([1, 2])
            self._wait(process, lambda: _saves(output) >= wanted)
        self._pause()
        if rng.random() < 0.4:
            self.kind += "USR1 "
            self._slurm.signal(process, signal.SIGUSR1)
            self._pause()
        number = rng.choice([signal.SIGTERM, signal.SIGTERM, signal.SIGKILL])
        self.kind += signal.Signals(number).name
        self._slurm.signal(process, number, to_all=number == signal.SIGKILL or rng.random() < 0.5)

    def _wait(self, process: subprocess.Popen[bytes], condition: Callable[[], object]) -> None:
        wait_until(lambda: condition() or process.poll() is not None)

    def _pause(self) -> None:
        # No synchronisation: this is the moment of the queue's clock, and epochs are of this length.
        time.sleep(self._rng.random() * self._rng.choice([0.005, 0.06]))


def _until_its_end(slurm: FakeSlurm, job: Job) -> Callable[[subprocess.Popen[bytes]], None]:
    """Let a job train a little, then stand still until its end is near: on no machine does it reach its goal first."""
    output, start = slurm.output(job), time.monotonic()
    before = _saves(output)

    def during(process: subprocess.Popen[bytes]) -> None:
        wait_until(lambda: _saves(output) > before or process.poll() is not None)
        slurm.signal(process, signal.SIGSTOP, to_all=True)
        wait_until(lambda: time.monotonic() > start + LASTS_S)
        slurm.signal(process, signal.SIGCONT, to_all=True)

    return during


def _preempt(slurm: FakeSlurm, job: Job, rng: random.Random, *, kind: str) -> str:
    """Run a job that is preempted, and return what was done to it."""
    if kind == "end":
        launch, done = slurm.run(job, _until_its_end(slurm, job), lasts_s=GRACE_S + LASTS_S), "end of the job"
    elif kind == "founding":
        place = Path(slurm.environ["DIGIDEEP_SESSIONS"]) / "job"

        def during(process: subprocess.Popen[bytes]) -> None:
            wait_until(lambda: place.exists() or process.poll() is not None)
            slurm.signal(process, signal.SIGKILL, to_all=True)

        launch, done = slurm.run(job, during), "KILL while the session is made"
    else:
        preemption = Preemption(slurm, job, rng)
        launch, done = slurm.run(job, preemption), preemption.kind
    print(f"{done}: {launch}")
    assert launch.is_requeued, slurm.output(job).read_text()
    assert launch.code == (75 if kind == "end" else -9 if done.endswith("KILL") or kind == "founding" else 143)
    return done


def _preempted_and_finished(slurm: FakeSlurm, tmp_path: Path, rng: random.Random, *, times: int) -> Job:
    """Hand a job in, preempt it so many times in all ways, and let it end."""
    kinds = ["random"] * (times - 2) + ["end"]
    rng.shuffle(kinds)
    arguments = ["--params", TOY_PPO, "--session-name", "job", "--set", f"grace_s={GRACE_S}", "keep_last=2"]
    arguments += ["test_win_size=1", f"number_epochs={8 * times + 4}"]
    (job,) = slurm.submit(str(SCRIPTS / "digideep.sbatch"), *arguments, cwd=tmp_path)

    done = [_preempt(slurm, job, rng, kind=kind) for kind in ["founding", *kinds]]
    last = slurm.run(job)

    assert (last.code, last.is_requeued, len(done)) == (0, False, times), slurm.output(job).read_text()
    return job


def test_K1_ten_preemptions_end_as_if_undisturbed(
    slurm: FakeSlurm, command: Run, rng: random.Random, tmp_path: Path, shared: Path
) -> None:
    _check_preemptions(slurm, command, rng, tmp_path, shared, times=10)


@pytest.mark.nightly
def test_K1_fifty_preemptions_end_as_if_undisturbed(
    slurm: FakeSlurm, command: Run, rng: random.Random, tmp_path: Path, shared: Path
) -> None:
    _check_preemptions(slurm, command, rng, tmp_path, shared, times=50)


def _check_preemptions(
    slurm: FakeSlurm, command: Run, rng: random.Random, tmp_path: Path, shared: Path, *, times: int
) -> None:
    job = _preempted_and_finished(slurm, tmp_path, rng, times=times)

    sets = [f"grace_s={GRACE_S}", "keep_last=2", "test_win_size=1", f"number_epochs={8 * times + 4}"]
    straight = command("--params", TOY_PPO, "--session-path", str(tmp_path / "straight"), "--set", *sets).session
    assert differences(straight, shared / "job") == []
    check_logs_continue(shared / "job")
    output = slurm.output(job).read_text()
    assert "Traceback" not in output
    summary, runs = read(shared / "job" / "summary.json"), read(shared / "job" / "meta.json")["runs"]
    assert summary["state"] == "done"
    assert [run["exit_code"] for run in runs].count(75) == 1
    assert next(run["reason"] for run in runs if run["exit_code"] == 75).startswith("job ends at 20")


TELLS = """#!/bin/sh
printf '%s\\n' "$@" > "told-$SLURM_ARRAY_TASK_ID"
[ "$SLURM_ARRAY_TASK_ID" = 2 ] && [ -z "$SLURM_RESTART_COUNT" ] && exit 75
exit 0
"""


def test_K1_each_task_of_an_array_has_its_session_and_comes_back_alone(slurm: FakeSlurm, tmp_path: Path) -> None:
    (slurm.programs / "digideep").write_text(TELLS)
    (slurm.programs / "digideep").chmod(0o755)
    (tmp_path / "sweep.jsonl").write_text('{"seed": 5}\n{"seed": 6, "lr": 1e-3}\n')
    arguments = ["sweep", "sweep.jsonl", "--params", TOY_PPO, "--set", "number_epochs=1"]
    tasks = slurm.submit("--array=1-3", str(SCRIPTS / "digideep-array.sbatch"), *arguments, cwd=tmp_path)

    # The number of the last task is that of the array too: a requeue by number would bring back all.
    first, second, again, third = (slurm.run(tasks[i]) for i in (0, 1, 1, 2))

    assert [task.task for task in tasks] == [1, 2, 3]
    assert (first.code, first.is_requeued) == (0, False)
    assert (second.code, second.is_requeued, again.code, again.is_requeued) == (75, True, 0, False)
    assert (third.code, third.is_requeued) == (2, False)  # there is no third line
    told = [(tmp_path / f"told-{task}").read_text().splitlines() for task in (1, 2)]
    assert told[0] == ["--autoresume", "--session-name", "sweep-1", "--cpanel", '{"seed": 5}', *arguments[2:]]
    assert told[1][1:5] == ["--session-name", "sweep-2", "--cpanel", '{"seed": 6, "lr": 1e-3}']
    assert not slurm.output(tasks[2]).read_text().count("\n") > 1


def test_K1_the_last_task_of_an_array_does_not_bring_back_the_others(slurm: FakeSlurm, tmp_path: Path) -> None:
    (slurm.programs / "digideep").write_text("#!/bin/sh\nexit 143\n")
    (slurm.programs / "digideep").chmod(0o755)
    (tmp_path / "sweep.jsonl").write_text("{}\n{}\n")
    script = str(SCRIPTS / "digideep-array.sbatch")
    tasks = slurm.submit("--array=1-2", script, "sweep", "sweep.jsonl", cwd=tmp_path)

    slurm.run(tasks[1])

    assert [path.name for path in slurm.jobs.glob("requeue*")] == [f"requeue{tasks[1].number}"]


@pytest.mark.parametrize("script", ["digideep.sbatch", "digideep-array.sbatch"])
@pytest.mark.parametrize("code", [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 75, 130, 138, 143])
def test_K1_only_what_stopped_early_comes_back(slurm: FakeSlurm, tmp_path: Path, code: int, script: str) -> None:
    (slurm.programs / "digideep").write_text(f"#!/bin/sh\nexit {code}\n")
    (slurm.programs / "digideep").chmod(0o755)
    (tmp_path / "sweep.jsonl").write_text("{}\n")
    more = ["sweep", "sweep.jsonl"] if "array" in script else []
    job = slurm.submit("--array=1-1", str(SCRIPTS / script), *more, cwd=tmp_path)[0]

    launch = slurm.run(job)

    assert launch.code == code
    assert launch.is_requeued == (code in (75, 138, 143))


@pytest.mark.parametrize(
    ("script", "task", "path", "arguments", "message"),
    [
        ("digideep-array.sbatch", "", None, ["lr", "sweep.jsonl"], "expected a task of an array"),
        ("digideep-array.sbatch", "1", None, [], "expected a name and a file of control panels"),
        ("digideep-array.sbatch", "1", None, ["lr", "missing.jsonl"], "no control panel in line 1 of missing.jsonl"),
        ("digideep-array.sbatch", "1", "/usr/bin:/bin", ["lr", "sweep.jsonl"], "expected digideep on the PATH"),
        ("digideep.sbatch", "", "/usr/bin:/bin", [], "expected digideep on the PATH"),
    ],
)
def test_K1_a_script_that_lacks_something_says_so_in_one_line(
    slurm: FakeSlurm, script: str, task: str, path: str | None, arguments: list[str], message: str
) -> None:
    (slurm.programs / "digideep").write_text("#!/bin/sh\nexit 0\n")
    (slurm.programs / "digideep").chmod(0o755)
    environ = {"HOME": "/nowhere", "PATH": path or f"{slurm.programs}:/usr/bin:/bin"}
    environ |= {"SLURM_ARRAY_TASK_ID": task} if task else {}

    ended = subprocess.run(
        ["bash", str(SCRIPTS / script), *arguments], env=environ, cwd=SCRIPTS, capture_output=True, text=True
    )

    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"{script}: {message}") and ended.stderr.count("\n") == 1


WAITS = """#!{python} -S
import os, signal, sys, time
def note(number, frame):
    open({seen!r}, "a").write(signal.Signals(number).name + "\\n")
    if number != signal.SIGUSR1:
        sys.exit(128 + number)
for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, note)
open({ready!r}, "w").close()
while True:
    time.sleep(1)
"""


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGINT", 130), ("SIGHUP", 129)])
def test_K1_signals_to_the_shell_reach_the_program(slurm: FakeSlurm, tmp_path: Path, name: str, code: int) -> None:
    seen, ready = tmp_path / "seen", tmp_path / "ready"
    (slurm.programs / "digideep").write_text(WAITS.format(python=sys.executable, seen=str(seen), ready=str(ready)))
    (slurm.programs / "digideep").chmod(0o755)
    (job,) = slurm.submit(str(SCRIPTS / "digideep.sbatch"), cwd=tmp_path)

    def during(process: subprocess.Popen[bytes]) -> None:
        wait_until(ready.exists)
        for count in (1, 2):
            slurm.signal(process, signal.SIGUSR1)
            wait_until(lambda count=count: seen.exists() and len(seen.read_text().split()) == count)
        slurm.signal(process, signal.Signals[name])

    launch = slurm.run(job, during)

    assert launch.code == code
    assert seen.read_text().split() == ["SIGUSR1", "SIGUSR1", name]


def test_K1_the_scripts_ask_for_what_they_need() -> None:
    for name in ("digideep.sbatch", "digideep-array.sbatch"):
        text = (SCRIPTS / name).read_text()
        subprocess.run(["bash", "-n", str(SCRIPTS / name)], check=True)
        for wanted in ("--requeue", "--open-mode=append", "--signal=B:USR1@", "--autoresume", "/tmp"):
            assert wanted in text, (name, wanted)
    lines = (SCRIPTS / "sweep.jsonl").read_text().splitlines()
    assert all(isinstance(json.loads(line), dict) for line in lines)
    assert f"--array=1-{len(lines)}" in (SCRIPTS / "digideep-array.sbatch").read_text()
