"""The examination of the documentation finds what it is there to find, and finds nothing in this repository."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def check_docs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_docs", ROOT / "scripts" / "check_docs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "one.md").write_text("# One `x`\n\n## Some heading\n\n[back](../README.md)\n")
    (tmp_path / "README.md").write_text("# Top\n\n[one](docs/one.md#some-heading)\n")
    return tmp_path


def test_documentation_of_this_repository_has_no_faults(check_docs: ModuleType) -> None:
    assert check_docs.faults() == []


def test_tree_in_order_has_no_faults(check_docs: ModuleType, tree: Path) -> None:
    assert check_docs.faults(tree) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[a](missing.md)", "link to missing.md: there is no such file"),
        ("![a](missing.png 'title')", "link to missing.png: there is no such file"),
        ("[a][b]\n\n[b]: missing.md", "link to missing.md: there is no such file"),
        ("[a](one.md#nowhere)", "link to one.md#nowhere: one.md has no such heading"),
        ("[a](#nowhere)", "link to #nowhere: one.md has no such heading"),
        ("[a](/tmp)", "link to /tmp: leads out of the repository"),
        ("see `digideep.errors.Missing`", "digideep.errors.Missing: there is no such name"),
        ("see `digideep.missing`", "digideep.missing: there is no such name"),
        ("```\ntype: digideep.errors:Missing\n```", "digideep.errors:Missing: there is no such name"),
        ("see `digideep/missing.py`", "digideep/missing.py: there is no such file"),
    ],
)
def test_fault_is_found(check_docs: ModuleType, tree: Path, text: str, fault: str) -> None:
    (tree / "docs" / "one.md").write_text(f"# One\n\n## Some heading\n\n{text}\n")

    assert check_docs.faults(tree) == [f"docs/one.md: {fault}"]


def test_page_that_nothing_leads_to_is_found(check_docs: ModuleType, tree: Path) -> None:
    (tree / "docs" / "two.md").write_text("# Two\n")

    assert check_docs.faults(tree) == ["docs/two.md: no link leads here from README.md"]


@pytest.mark.parametrize(
    "text",
    [
        "`digideep.errors.UsageError.exit_code`",
        "`digideep.errors:UsageError`",
        "`digideep/errors.py`",
        "[a](https://example.org/missing.md)",
        "`[a](missing.md)`",
        "```\n[a](missing.md)\n# heading\n```",
        "/tmp/digideep_sessions and modules/digideep.missing-x",
    ],
)
def test_what_is_right_is_not_complained_about(check_docs: ModuleType, tree: Path, text: str) -> None:
    (tree / "docs" / "one.md").write_text(f"# One\n\n## Some heading\n\n{text}\n")

    assert check_docs.faults(tree) == []
