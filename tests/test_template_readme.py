"""The page that is copied into every session says what the loader really gives."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

from digideep.utility.jsonl import columns, read_rows

README = Path(__file__).resolve().parent.parent / "sessions_template" / "README.md"


def test_metrics_are_indexed_as_the_loader_gives_them(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    keys = [
        [index.slice.value for index in chain if isinstance(index.slice, ast.Constant)]
        for chain in (_indices(statement) for statement in ast.walk(ast.parse(code)) if isinstance(statement, ast.Expr))
        if chain
    ]
    log = tmp_path / "varlog.jsonl"
    meta = {"epoch": 1, "frame": 8, "episode": 2, "clock": 0.5}
    data = {"train/return": {"num": 2, "mean": 3.0, "std": 0.0, "min": 3.0, "max": 3.0}}
    log.write_text(json.dumps({"meta": meta, "data": data}) + "\n")
    metrics = columns(read_rows(log))

    assert keys == [["train/return"]]
    assert metrics["train/return"].tolist() == [3.0]


def _indices(statement: ast.Expr) -> list[ast.Subscript]:
    """Return the subscripts of `session.loader.varlog()[...][...]`, outermost first; empty for other statements."""
    chain = []
    node = statement.value
    while isinstance(node, ast.Subscript):
        chain.append(node)
        node = node.value
    is_varlog = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "varlog"
    return chain if is_varlog else []
