"""Commits, uncommitted changes without secrets, and versions."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from digideep.pipeline import provenance
from digideep.pipeline.provenance import collect_provenance, describe_machine, installed_versions, without_secrets
from digideep.pipeline.snapshot import Source
from digideep.utility.device import cpu_model


def _git(directory: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(
        ["git", *identity, "-C", str(directory), *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    package = tmp_path / "repo" / "tug_game"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("speed = 1\n")
    _git(tmp_path / "repo", "init", "-q")
    _git(tmp_path / "repo", "add", ".")
    _git(tmp_path / "repo", "commit", "-q", "-m", "first")
    return package


def test_commit_and_uncommitted_changes_are_kept(repository: Path) -> None:
    clean = collect_provenance([Source("tug_game", repository)])
    (repository / "__init__.py").write_text("speed = 2\n")

    changed = collect_provenance([Source("tug_game", repository)])

    head = _git(repository, "rev-parse", "HEAD")
    assert clean.commits == {"tug_game": {"commit": head, "changed": False}}
    assert clean.patch == ""
    assert changed.commits == {"tug_game": {"commit": head, "changed": True}}
    assert "-speed = 1\n+speed = 2\n" in changed.patch


def test_code_that_only_lies_in_a_repository_is_no_part_of_it(repository: Path) -> None:
    installed = repository.parent / ".venv" / "lib" / "other"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("")

    assert collect_provenance([Source("other", installed)]).commits == {}


def test_a_machine_without_git_has_less_to_tell(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    assert collect_provenance([Source("tug_game", repository)]) == ({}, "")


def test_a_git_that_hangs_is_left_behind(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "git").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    began = time.monotonic()

    found = collect_provenance([Source("tug_game", repository)] * 50, time_limit_s=0.2)

    assert found.commits == {}
    assert time.monotonic() - began < 5.0


def test_a_repository_runs_nothing_of_its_own(repository: Path, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    _git(repository, "config", "core.fsmonitor", f"touch {canary}; false")
    _git(repository, "config", "diff.external", f"touch {canary}")
    _git(repository, "config", "core.pager", f"touch {canary}")
    (repository / "__init__.py").write_text("speed = 3\n")

    patch = collect_provenance([Source("tug_game", repository)]).patch

    assert "+speed = 3" in patch
    assert not canary.exists()


def test_a_patch_is_cut_at_its_limit(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "PATCH_LIMIT", 2000)
    (repository / "__init__.py").write_text("".join(f"line_{n} = {n}\n" for n in range(10_000)))

    patch = collect_provenance([Source("tug_game", repository)]).patch

    assert len(patch.encode()) <= 2000
    assert patch.endswith("[cut: more than 1 MB of changes]\n")


SECRETS = [
    "API_KEY = 'abc'",
    "password: hunter2",
    "Authorization: Bearer abcdef",
    "key = 'AKIAABCDEFGHIJKLMNOP'",
    "t = 'ghp_abcdefghijklmnopqrstuv'",
    "url = 'https://user:hunter2@example.org/x'",
    "aws_thing = 1",
    "k = 'sk-abcdefghijklmnopqrstuvwx'",
]


@pytest.mark.parametrize("line", SECRETS)
def test_lines_that_look_like_secrets_are_left_out(line: str) -> None:
    patch = f"diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1,2 +1,2 @@\n kept = 1\n-{line}\n+{line}\n"

    cleaned = without_secrets(patch)

    assert line not in cleaned
    assert " kept = 1\n-[left out: looks like a secret]\n+[left out: looks like a secret]\n" in cleaned


def test_a_private_key_is_left_out_from_its_first_line_to_its_last() -> None:
    patch = (
        "diff --git a/x b/x\n@@ -1 +1 @@\n+-----BEGIN RSA KEY-----\n+MIIEow\n+-----END RSA KEY-----\n+after = 1\n"
        "diff --git a/.env.local b/.env.local\n@@ -1 +1 @@ A=b\n+A=b\ndiff --git a/y.py b/y.py\n@@ -1 +1 @@\n+y = 1\n"
    )

    cleaned = without_secrets(patch)

    assert "MIIEow" not in cleaned
    assert "A=b" not in cleaned
    assert "+after = 1\n" in cleaned
    assert "+y = 1\n" in cleaned


def test_versions_and_machine_hold_nothing_of_the_environment_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "do-not-keep-me")

    told = f"{installed_versions()} {describe_machine()}"

    assert "do-not-keep-me" not in told
    assert {"python", "numpy", "torch", "gymnasium", "digideep"} <= installed_versions().keys()
    assert describe_machine().keys() == {"host", "os", "cpu", "cores"}


def test_the_machine_is_described_as_the_choice_of_device_and_threads_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "1")

    machine = describe_machine()

    assert (machine["cpu"], machine["cores"]) == (cpu_model(), 1)
    assert machine["cpu"]
