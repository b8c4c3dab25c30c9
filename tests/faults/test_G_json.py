"""G: JSON that is malformed in every way, wherever JSON is read: one line that says where and what, nothing left."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from cold import Cold, parser_complaints

from digideep.errors import UsageError
from digideep.params.overrides import read_value
from digideep.pipeline.layout import SessionPaths, check_session

NEW = ["--params", "digideep.params.cartpole_ppo"]

# Texts of which no strict reader makes a value; the word is in what is said of them.
MALFORMED: Mapping[str, tuple[str, str]] = {
    "nothing": ("", "JSON"),
    "blanks": (" \n\t", "JSON"),
    "truncated object": ('{"seed": 3', "column"),
    "truncated key": ('{"see', "column"),
    "truncated text": ('{"seed": "x', "column"),
    "truncated list": ('{"hidden_sizes": [64, ', "column"),
    "truncated number": ('{"lr": 1e', "column"),
    "truncated escape": ('{"model_name": "\\u00', "column"),
    "truncated word": ('{"shared": tru', "column"),
    "text behind": ('{"seed": 3} x', "column"),
    "two values": ('{"seed": 3}{"seed": 4}', "column"),
    "trailing comma": ('{"seed": 3,}', "column"),
    "leading comma": ('{,"seed": 3}', "column"),
    "no comma": ('{"seed": 3 "lr": 1}', "column"),
    "no colon": ('{"seed" 3}', "column"),
    "no value": ('{"seed":}', "column"),
    "no quotes": ("{seed: 3}", "column"),
    "single quotes": ("{'seed': 3}", "column"),
    "line comment": ('{"seed": 3} // mine', "column"),
    "block comment": ('{/* mine */ "seed": 3}', "column"),
    "hash comment": ('# mine\n{"seed": 3}', "column"),
    "python words": ('{"shared": True}', "column"),
    "python none": ('{"lr_final": None}', "column"),
    "leading zero": ('{"seed": 03}', "column"),
    "plus": ('{"seed": +3}', "column"),
    "hexadecimal": ('{"seed": 0x10}', "column"),
    "bare point": ('{"lr": .5}', "column"),
    "control character": ('{"model_name": "a\nb"}', "column"),
    "wrong escape": ('{"model_name": "\\x41"}', "column"),
    "key of another type": ('{3: "seed"}', "column"),
    "byte order mark": ('\ufeff{"seed": 3}', "BOM"),
    "key twice": ('{"seed": 3, "seed": 4}', "twice"),
    "key twice, spelt otherwise": ('{"seed": 3, "\\u0073eed": 4}', "twice"),
    "key twice inside": ('{"env_kwargs": {"a": 1, "a": 2}}', "twice"),
    "NaN": ('{"lr": NaN}', "NaN"),
    "infinity": ('{"lr": Infinity}', "Infinity"),
    "minus infinity": ('{"lr": -Infinity}', "-Infinity"),
    "beyond a float": ('{"lr": 1e999}', "1e999"),
    "beyond a float, below": ('{"lr": -1e999}', "-1e999"),
    "digits without end": ('{"seed": ' + "9" * 5000 + "}", "length"),
    "deep list": ("[" * 100_000, "100 nested"),
    "deep list that ends": ("[" * 20_000 + "]" * 20_000, "100 nested"),
    "deep object": ('{"a":' * 20_000 + "1" + "}" * 20_000, "100 nested"),
    "half of a pair": ('{"model_name": "\\ud800"}', "surrogate"),
    "other half": ('{"model_name": "\\udc00x"}', "surrogate"),
    "half of a pair in a key": ('{"\\ud800": 3}', "surrogate"),
}
OTHER_TYPES = ["[]", "3", "1.5", '"x"', "null", "true", '["seed"]', '[{"seed": 3}]']
# Bytes and kinds of files that hold no JSON at all.
FILES: Mapping[str, Callable[[Path], object]] = {
    "missing": lambda path: None,
    "utf-16": lambda path: path.write_bytes('{"seed": 3}'.encode("utf-16")),
    "latin-1": lambda path: path.write_bytes('{"model_name": "é"}'.encode("latin-1")),
    "zeros": lambda path: path.write_bytes(bytes(100)),
    "nested too deep for the stack": lambda path: path.write_text("[" * 900_000),
    "gigabytes": lambda path: os.truncate(os.open(path, os.O_CREAT | os.O_WRONLY), 1 << 40),
    "directory": lambda path: path.mkdir(),
    "fifo": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "dangling link": lambda path: path.symlink_to("nowhere.json"),
    "loop": lambda path: path.symlink_to(path.name),
}


@pytest.mark.parametrize("option", ["--cpanel", "--repeal"])
def test_G_malformed_json_on_the_command_line_is_refused(option: str) -> None:
    found: list[str] = []
    for text, word in MALFORMED.values():
        found += parser_complaints([*NEW, option, text], option, word)
    for text in OTHER_TYPES:
        found += parser_complaints([*NEW, option, text], option, "JSON object")

    assert found == []


def test_G_malformed_json_in_a_file_is_refused_with_the_name_of_the_file(tmp_path: Path) -> None:
    found: list[str] = []
    file = tmp_path / "knobs.json"
    for text, word in MALFORMED.values():
        file.write_text(text)
        found += parser_complaints([*NEW, "--cpanel", f"@{file}"], "knobs.json", word)
    for text in OTHER_TYPES:
        file.write_text(text)
        found += parser_complaints([*NEW, "--repeal", f"@{file}"], "JSON object")

    assert found == []


@pytest.mark.parametrize("name", ["key twice", "NaN", "deep list", "half of a pair", "byte order mark"])
def test_G_the_program_refuses_malformed_json_before_anything_is_made(cold: Cold, tmp_path: Path, name: str) -> None:
    text, word = MALFORMED[name]

    found = cold.complaints("main", *NEW, "--cpanel", text, cwd=tmp_path, names=["--cpanel", word])
    found += cold.complaints("main", *NEW, "--set", f"env_kwargs={text}", cwd=tmp_path)

    assert found == []


@pytest.mark.parametrize("kind", FILES)
def test_G_a_file_that_holds_no_json_at_all_is_refused(cold: Cold, tmp_path: Path, kind: str) -> None:
    FILES[kind](tmp_path / "knobs.json")

    found = [
        line
        for option in ("--cpanel", "--repeal")
        for line in cold.complaints("main", *NEW, option, "@knobs.json", cwd=tmp_path, names=["knobs.json"])
    ]

    assert found == []


def test_G_malformed_json_behind_set_is_refused_with_the_key() -> None:
    taken: list[str] = []
    for name, (text, _) in MALFORMED.items():
        try:
            found = read_value(text.replace('{"seed": ', "[", 1), tuple[int, ...], where="--set: hidden_sizes")
        except UsageError as error:
            assert str(error).startswith("--set: hidden_sizes: expected ")
        else:
            taken += [name] if isinstance(found, list | dict) else []

    assert taken == []


@pytest.mark.parametrize("name", ["meta.json", "cpanel.json", "repeal.json"])
def test_G_malformed_json_in_a_session_is_refused_wherever_it_is_read(
    cold: Cold, new_session: Callable[..., SessionPaths], tmp_path: Path, name: str
) -> None:
    file = new_session().root / name
    session, found = str(file.parent), list[str]()
    for text, word in MALFORMED.values():
        file.write_text(text)
        with pytest.raises(UsageError, match=rf"{name}.*: .*expected .*, found .*{word}|.*{word}.*found.*; ") as caught:
            check_session(file.parent)
        assert name in str(caught.value)
    for argv in (
        ("sessions", "show", session),
        ("sessions", "trust", session),
        ("main", "--load-checkpoint", session, "--resume"),
        ("main", "--load-checkpoint", session, "--play"),
        ("load", session, "params"),
    ):
        found += cold.complaints(*argv, cwd=tmp_path, names=[name, "surrogate"])

    assert found == []


@pytest.mark.parametrize("name", ["summary.json", "signature.json"])
def test_G_malformed_json_that_a_session_can_do_without_stops_no_reader(
    cold: Cold, new_session: Callable[..., SessionPaths], tmp_path: Path, name: str
) -> None:
    file = new_session().root / name
    wrong: list[str] = []
    for number, text in enumerate([text for text, _ in MALFORMED.values()][::4] + OTHER_TYPES):
        file.write_text(text)
        argv = (["show", str(file.parent)], ["list", str(tmp_path)], ["fsck", str(file.parent)])[number % 3]
        answer = cold.ask("sessions", *argv, cwd=tmp_path)
        told = name != "summary.json" or argv[0] == "fsck" or "damaged" in answer.out
        if answer.code != 0 or answer.err or not told:
            wrong.append(f"{argv[0]} {text[:40]!r}: {answer}")

    assert wrong == []


def _values(kind: str) -> list[Any]:
    return {
        "types": [None, True, 3, -1, 1.5, "x", [], {}, [[]], {"": {}}],
        "sizes": [2**63, -(2**63), 10**400, 1e308, "x" * 100_000, ["x"] * 10_000],
        "text": ["", "\0", "\x1b[2J\r\n", "\u202etxt", "../../x", "/etc/passwd", "a:b"],
    }[kind]


@pytest.mark.parametrize("kind", ["types", "sizes", "text"])
def test_G_every_value_of_a_session_may_be_another_one(
    new_session: Callable[..., SessionPaths], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each key of meta.json, summary.json and an entry of repeal.json in turn: read, or refused in one line."""
    from digideep import sessions

    paths = new_session(epoch=1, frame=10)
    shutil.rmtree(paths.modules)  # whose hashes take most of the time of each look
    monkeypatch.setattr("sys.stdout", None)
    monkeypatch.setattr("sys.stderr", None)
    entry = {"path": "/runner/n_epochs", "old": 3, "new": 4, "epoch": 0, "time": "now"}
    contents = {
        paths.meta: {**json.loads(paths.meta.read_text()), "runs": [{"start": "x", "end": "y", "exit_code": 0}]},
        paths.summary: {**json.loads(paths.summary.read_text()), "best_test": None},
        paths.repeal: {**entry},
    }
    codes: dict[str, set[int]] = {}
    for file, content in contents.items():
        whole = file.read_text()
        for key in [*content, "another"]:
            for value in _values(kind):
                changed = {**content, key: value}
                file.write_text(json.dumps([changed] if file == paths.repeal else changed))
                codes.setdefault(f"{file.name}: {key}", set()).add(_read_all(sessions.main, paths.root))
        file.write_text(whole)

    assert {name: found for name, found in codes.items() if not found <= {0, 2}} == {}


def _read_all(main: Callable[[list[str]], int], root: Path) -> int:
    import sys
    from io import StringIO

    from digideep.pipeline.inventory import effective_params
    from digideep.pipeline.layout import check_session

    sys.stdout, sys.stderr = StringIO(), StringIO()
    code = max(main([command, str(root)]) for command in ("show", "fsck"))
    code = max(code, main(["list", str(root.parent)]))
    lines = sys.stderr.getvalue().splitlines()
    assert all(line.startswith("digideep: error: ") for line in lines), lines
    assert not set(sys.stdout.getvalue()) & set("\x1b\r\0\u202e")
    try:
        effective_params(check_session(root))
    except UsageError:
        code = max(code, 2)
    return code
