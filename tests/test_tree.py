"""The shape of the source: short files, short functions, docstrings on public names, nothing left for later."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LONGEST_FILE = 400
LONGEST_FUNCTION = 70
COMMAND_LINES = {
    "digideep/main.py",
    "digideep/sessions.py",
    "digideep/environment/play.py",
    "digideep/environment/check.py",
}
LEFT_FOR_LATER = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" * 3)) + r")\b")

SOURCES = sorted(
    path.relative_to(ROOT)
    for top in ("digideep", "tests", "benchmarks", "examples", "scripts", "sessions_template")
    for path in (ROOT / top).rglob("*.py")
)
MODULES = [path for path in SOURCES if path.parts[0] == "digideep"]


def read(path: Path) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def without_docstring(tree: ast.Module) -> list[str]:
    """Return the public classes and functions, and the public methods of those classes, that lack a docstring."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    public = [node for node in tree.body if isinstance(node, kinds) and not node.name.startswith("_")]
    for owner in [node for node in public if isinstance(node, ast.ClassDef)]:
        public += [node for node in owner.body if isinstance(node, kinds) and not node.name.startswith("_")]
    return [node.name for node in public if not ast.get_docstring(node) and not is_overload(node)]


def is_overload(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    return any(ast.unparse(decorator).rpartition(".")[2] in ("overload", "setter") for decorator in node.decorator_list)


def comments(source: str) -> Iterator[str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return (token.string for token in tokens if token.type in (tokenize.COMMENT, tokenize.STRING))


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_file_can_be_read_in_one_sitting(path: Path) -> None:
    source = read(path)

    too_long = [
        f"{node.name}: {(node.end_lineno or 0) - node.lineno + 1} lines"
        for node in functions(ast.parse(source))
        if (node.end_lineno or 0) - node.lineno + 1 > LONGEST_FUNCTION
    ]

    assert len(source.splitlines()) <= LONGEST_FILE
    assert too_long == []


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_nothing_is_left_for_later(path: Path) -> None:
    assert [text for text in comments(read(path)) if LEFT_FOR_LATER.search(text)] == []


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_public_names_say_what_they_give(path: Path) -> None:
    tree = ast.parse(read(path))

    if path.name != "__init__.py" or tree.body:
        assert ast.get_docstring(tree), "the module has no docstring"
    assert without_docstring(tree) == []


@pytest.mark.parametrize("path", [path for path in MODULES if path.as_posix() not in COMMAND_LINES], ids=str)
def test_library_code_prints_nothing(path: Path) -> None:
    calls = [node for node in ast.walk(ast.parse(read(path))) if isinstance(node, ast.Call)]

    assert [node.lineno for node in calls if ast.unparse(node.func) == "print"] == []


@pytest.mark.parametrize("path", [path for path in MODULES if path.as_posix() not in COMMAND_LINES], ids=str)
def test_annotations_are_not_evaluated(path: Path) -> None:
    tree = ast.parse(read(path))

    first = [node for node in tree.body if isinstance(node, ast.ImportFrom)][:1]

    assert not tree.body[1:] or [node.module for node in first] == ["__future__"]


def test_missing_docstrings_are_found() -> None:
    tree = ast.parse("class A:\n    'Text.'\n    def f(self): ...\n    def _g(self): ...\ndef h(): ...\ndef _i(): ...")

    assert without_docstring(tree) == ["h", "f"]


def test_words_in_comments_are_found_and_those_in_names_are_not() -> None:
    word = "TO" + "DO"

    assert LEFT_FOR_LATER.search(f"# {word}: later")
    assert not LEFT_FOR_LATER.search(f"{word}_LIST")
