"""Without a package that digideep needs, in another Python say, one line says which one, and what to do."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from digideep.utility.requirements import NEEDED

ROOT = Path(__file__).parents[2]
WITHOUT = """
import sys
_, module, *arguments = sys.argv
sys.modules[module] = None  # as if it were not installed
from digideep.main import main
sys.exit(main(arguments))
"""


def without(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program where a module is not installed."""
    command = [sys.executable, "-c", WITHOUT, module, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)


def test_the_packages_are_among_those_that_the_project_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert set(NEEDED) <= {re.split(r"[<>=~ ]", one)[0] for one in project["dependencies"]}


@pytest.mark.parametrize("module", NEEDED)
def test_the_program_names_what_is_missing_in_one_line_and_leaves_nothing(module: str, tmp_path: Path) -> None:
    ended = without(module, "--params", "digideep.params.cartpole_ppo", "--session-path", str(tmp_path))

    (line,) = ended.stderr.splitlines()
    assert line.startswith("digideep: error: python: expected the packages that digideep needs, ")
    assert f"found no {module} for {sys.executable}; use the environment" in line
    assert ended.returncode == 2
    assert not ended.stdout and not any(tmp_path.iterdir())


@pytest.mark.parametrize("option", ["--help", "--list-params"])
def test_help_and_the_list_of_presets_need_none_of_them(option: str) -> None:
    ended = without("torch", option)

    assert ended.returncode == 0 and not ended.stderr
    assert "digideep" in ended.stdout
