"""A queue for one machine: sbatch, scontrol, squeue and srun as small programs, and jobs that are sent signals.

What is imitated is what a job sees: its environment variables, its options from the script, its output file, signals
to the shell of the script alone (`--signal=B:`) or to all of its processes, a kill of everything as when a node dies,
and a place in the queue again after `scontrol requeue` or, with --requeue, after the node has died.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import psutil

__all__ = ["FakeSlurm", "Job", "Launch"]

# The programs know nothing but a directory: each job is a file there.
_SBATCH = """
import json, os, re, shlex, sys
place = os.environ["FAKE_SLURM"]
given = sys.argv[1:]
count = next((i for i, word in enumerate(given) if not word.startswith("-")), len(given))
options, rest = given[:count], given[count:]
if not rest or not os.path.exists(rest[0]):
    sys.exit("sbatch: error: Unable to open file")
text = open(rest[0]).read()
if not text.startswith("#!"):
    sys.exit("sbatch: error: This does not look like a batch script.")
found = {}
for line in text.splitlines():
    if line and not line.startswith("#"):
        break  # directives end where commands begin
    match = re.match(r"#SBATCH\\s+(.*)", line)
    for word in shlex.split(match[1], comments=True) if match else []:
        name, _, value = word.lstrip("-").partition("=")
        found[name] = value
for word in options:
    name, _, value = word.lstrip("-").partition("=")
    found[name] = value
first = 1 + max([int(name[3:-5]) for name in os.listdir(place) if re.fullmatch(r"job[0-9]+\\.json", name)], default=16)
tasks = [None]
if "array" in found:
    low, _, high = found["array"].partition("-")
    tasks = list(range(int(low), int(high or low) + 1))
# As with SLURM the last task of an array has the number of the array.
numbers = [first] if tasks == [None] else [*range(first + 1, first + len(tasks)), first]
for number, task in zip(numbers, tasks):
    spool = os.path.join(place, f"slurm_script_{number}")  # a copy: what lies beside the script is not there
    with open(spool, "w") as file:
        file.write(text)
    job = {"number": number, "array": first if task is not None else None, "task": task, "options": found,
           "arguments": rest[1:], "script": spool, "directory": os.getcwd(), "restarts": 0, "state": "PENDING"}
    with open(os.path.join(place, f"job{number}.json"), "w") as file:
        json.dump(job, file)
print(f"Submitted batch job {first}")
"""

_SCONTROL = """
import json, os, sys
place = os.environ["FAKE_SLURM"]
words = [word for word in sys.argv[1:] if word != "-o"]
named = words[-1]
for name in sorted(os.listdir(place)):
    if name.startswith("job") and name.endswith(".json"):
        job = json.load(open(os.path.join(place, name)))
        own = f"{job['array']}_{job['task']}" if job["array"] else str(job["number"])
        if named not in (own, str(job["array"])):
            continue
        if words[0] == "requeue":
            open(os.path.join(place, f"requeue{job['number']}"), "w").close()
        elif words[:2] == ["show", "job"]:
            print(f"JobId={job['number']} Requeue=1 Restarts={job['restarts']} StartTime=2026-01-01T00:00:00 "
                  f"EndTime={job.get('end', 'Unknown')} Deadline=N/A")
        else:
            sys.exit(f"scontrol: error: invalid keyword: {words[0]}")
        found = True
if "found" not in globals():
    sys.exit(f"scontrol: error: Invalid job id specified: {named}")
"""

_SQUEUE = """
import sys
print("EndTime=N/A")
"""

_SRUN = """
import os, sys
words = [word for word in sys.argv[1:]]
while words and words[0].startswith("-"):
    words.pop(0)
os.execvp(words[0], words)
"""


class Job(NamedTuple):
    """A job, or one task of an array, as it was handed in."""

    number: int
    task: int | None


class Launch(NamedTuple):
    """How one run of a job ended: the code of its script (negative: killed) and whether it is in the queue again."""

    code: int
    is_requeued: bool


class FakeSlurm:
    """A queue that lives in `directory`.

    Args:
        directory: for its programs and jobs.
        environ: variables that jobs see, beside those of SLURM.
    """

    def __init__(self, directory: Path, *, environ: Mapping[str, str]) -> None:
        self.directory = directory
        self.programs = directory / "bin"
        self.jobs = directory / "jobs"
        self.jobs.mkdir(parents=True)
        self.programs.mkdir()
        for name, text in {"sbatch": _SBATCH, "scontrol": _SCONTROL, "squeue": _SQUEUE, "srun": _SRUN}.items():
            (self.programs / name).write_text(f"#!{sys.executable} -S\n{text}")
            (self.programs / name).chmod(0o755)
        path = f"{self.programs}:{Path(sys.executable).parent}:{environ.get('PATH', '/usr/bin:/bin')}"
        self.environ = {**environ, "PATH": path, "FAKE_SLURM": str(self.jobs)}

    def submit(self, *words: str, cwd: Path) -> list[Job]:
        """Hand a script in, as `sbatch WORDS` does, and return its job, or the tasks of its array."""
        before = set(self.jobs.glob("job*.json"))
        subprocess.run(["sbatch", *words], cwd=cwd, env=self.environ, check=True, capture_output=True)
        records = [json.loads(path.read_text()) for path in sorted(set(self.jobs.glob("job*.json")) - before)]
        return sorted((Job(r["number"], r["task"]) for r in records), key=lambda job: job.task or 0)

    def output(self, job: Job) -> Path:
        """Return the file that the job prints to."""
        record = self._record(job)
        name = record["options"].get("output", "slurm-%j.out")
        for mark, value in (("%j", job.number), ("%A", record["array"]), ("%a", job.task)):
            name = name.replace(mark, str(value))
        return Path(record["directory"]) / name

    def run(
        self,
        job: Job,
        during: Callable[[subprocess.Popen[bytes]], None] = lambda process: None,
        *,
        lasts_s: float | None = None,
        timeout_s: float = 120.0,
    ) -> Launch:
        """Run a job once, and say whether it is in the queue again.

        Args:
            job: which.
            during: called with the shell of the script once it runs, to send signals.
            lasts_s: how long SLURM says that it may last.
            timeout_s: after which it counts as a failure of the test.
        """
        record = self._record(job)
        marker = self.jobs / f"requeue{job.number}"
        marker.unlink(missing_ok=True)
        mode = "ab" if record["options"].get("open-mode") == "append" else "wb"
        with open(self.output(job), mode) as out:
            process = subprocess.Popen(
                ["bash", record["script"], *record["arguments"]],
                cwd=record["directory"],
                env={**self.environ, **self._variables(record, lasts_s)},
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        try:
            during(process)
            code = process.wait(timeout_s)
        finally:
            self.kill(process)
        has_died = code == -signal.SIGKILL and "requeue" in record["options"]
        record["restarts"] += 1
        (self.jobs / f"job{job.number}.json").write_text(json.dumps(record))
        return Launch(code, marker.exists() or has_died)

    def signal(self, process: subprocess.Popen[bytes], number: int, *, to_all: bool = False) -> None:
        """Send a signal to the shell of the script, or to every process of the job."""
        members = self._members(process)
        for member in members if to_all else members[:1]:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.send_signal(number)

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """End all processes of a job at once, as when its node dies or its container is removed."""
        self.signal(process, signal.SIGKILL, to_all=True)
        process.wait()

    def _members(self, process: subprocess.Popen[bytes]) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            shell = psutil.Process(process.pid)
            return [shell, *shell.children(recursive=True)]
        return []

    def _variables(self, record: Mapping[str, Any], lasts_s: float | None) -> dict[str, str]:
        variables = {"SLURM_JOB_ID": str(record["number"]), "SLURM_CPUS_PER_TASK": "2"}
        if record["restarts"]:
            variables["SLURM_RESTART_COUNT"] = str(record["restarts"])
        if record["task"] is not None:
            variables["SLURM_ARRAY_JOB_ID"] = str(record["array"])
            variables["SLURM_ARRAY_TASK_ID"] = str(record["task"])
        if lasts_s is not None:
            variables["SLURM_JOB_END_TIME"] = str(int(time.time() + lasts_s))
        return variables

    def _record(self, job: Job) -> dict[str, Any]:
        record: dict[str, Any] = json.loads((self.jobs / f"job{job.number}.json").read_text())
        return record
