"""The shape of the source: short files, short functions, docstrings on public names, nothing left for later."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

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


def is_print(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "print"


def comments(source: str) -> Iterator[str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return (token.string for token in tokens if token.type in (tokenize.COMMENT, tokenize.STRING))


def test_every_file_can_be_read_in_one_sitting() -> None:
    lengths = {str(path): len(read(path).splitlines()) for path in SOURCES}

    assert {path: length for path, length in lengths.items() if length > LONGEST_FILE} == {}


def test_every_function_can_be_seen_at_once() -> None:
    lengths = {
        f"{path}:{node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path in SOURCES
        for node in functions(ast.parse(read(path)))
    }

    assert {name: length for name, length in lengths.items() if length > LONGEST_FUNCTION} == {}


def test_nothing_is_left_for_later() -> None:
    found = [f"{path}: {text}" for path in SOURCES for text in comments(read(path)) if LEFT_FOR_LATER.search(text)]

    assert found == []


def test_public_names_say_what_they_give() -> None:
    trees = {path: ast.parse(read(path)) for path in MODULES}

    silent = [str(path) for path, tree in trees.items() if tree.body and not ast.get_docstring(tree)]
    silent += [f"{path}:{name}" for path, tree in trees.items() for name in without_docstring(tree)]

    assert silent == []


def test_library_code_prints_nothing() -> None:
    prints = [
        f"{path}:{node.lineno}"
        for path in MODULES
        if path.as_posix() not in COMMAND_LINES
        for node in ast.walk(ast.parse(read(path)))
        # An environment for tests may print on purpose, and says so.
        if is_print(node) and "noqa: T201" not in read(path).splitlines()[node.lineno - 1]
    ]

    assert prints == []


def test_no_annotation_is_evaluated() -> None:
    evaluated = [
        str(path)
        for path in MODULES
        if len(ast.parse(read(path)).body) > 1 and "from __future__ import annotations\n" not in read(path)
    ]

    assert evaluated == []


def test_missing_docstrings_are_found() -> None:
    tree = ast.parse("class A:\n    'Text.'\n    def f(self): ...\n    def _g(self): ...\ndef h(): ...\ndef _i(): ...")

    assert without_docstring(tree) == ["h", "f"]


def test_words_in_comments_are_found_and_those_in_names_are_not() -> None:
    word = "TO" + "DO"

    assert LEFT_FOR_LATER.search(f"# {word}: later")
    assert not LEFT_FOR_LATER.search(f"{word}_LIST")
