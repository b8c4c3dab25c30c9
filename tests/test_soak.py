"""The soak of benchmarks/soak.py, with a run that ends before its time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# The run has a session and waits; after the first look at it it ends, and somebody has taken its end or nobody has.
SOAK = """
import os, subprocess, sys
from benchmarks import soak

RUN = '''
import pathlib, sys
session = pathlib.Path(sys.argv[1]) / "soak"
session.mkdir()
(session / "varlog.jsonl").touch()
sys.stdin.read()
sys.exit(7)
'''
start, look, runs = subprocess.Popen, soak._look, []

def begin(command, **options):
    place = command[command.index("--session-path") + 1]
    runs.append(start([sys.executable, "-c", RUN, place], stdin=subprocess.PIPE, **options))
    return runs[0]

def look_and_end(program):
    seen = look(program)
    runs[0].stdin.close()
    if IS_TAKEN:
        runs[0].wait()
    else:
        os.waitid(os.P_PID, runs[0].pid, os.WEXITED | os.WNOWAIT)
    return seen

subprocess.Popen, soak._look, soak._MINUTE_S = begin, look_and_end, 0.3
sys.exit(soak.main(["3"]))
"""


@pytest.mark.parametrize("is_taken", [False, True])
def test_a_run_that_ends_during_a_soak_is_one_line_with_its_exit_code(is_taken: bool) -> None:
    program = SOAK.replace("IS_TAKEN", str(is_taken))

    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)

    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == "soak: expected a run of 3 minutes, found exit code 7\n"
