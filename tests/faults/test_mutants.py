"""Each way to be wrong turns the test red that is there for it, for the reason that is expected."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

import pytest
from mutants import MUTANTS
from promises import ROOT


def run(test: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-vv", "-x", *options, test]
    with tempfile.TemporaryDirectory() as directory:  # a short name: paths of sockets have to fit below it
        environment = {**os.environ, "TMPDIR": directory}
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, env=environment)


@pytest.mark.open_to_others
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_turns_its_test_red(name: str) -> None:
    mutant = MUTANTS[name]

    done = run(mutant.test, "--mutant", name)

    assert done.returncode == 1, f"{name} survives {mutant.test}:\n{done.stdout}\n{done.stderr}"
    failure = done.stdout[done.stdout.index("= FAILURES =" if "= FAILURES =" in done.stdout else "= ERRORS =") :]
    reason = "\n".join(line for line in failure.splitlines() if line.startswith("E  "))
    assert mutant.because in reason, f"{name} fails {mutant.test} for another reason:\n{failure}"


@pytest.mark.nightly
@pytest.mark.parametrize("test", sorted({mutant.test for mutant in MUTANTS.values()}))
def test_without_a_mutant_its_test_is_green(test: str) -> None:
    """The ordinary run has all these tests; this one runs them as the mutants are run."""
    done = run(test)

    assert done.returncode == 0, done.stdout


def test_a_mutant_that_there_is_not_is_refused() -> None:
    done = run("tests/faults/test_mutants.py", "--mutant", "no such mutant")

    assert done.returncode == 4
    assert "no such mutant" in done.stderr
