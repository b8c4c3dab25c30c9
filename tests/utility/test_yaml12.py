from __future__ import annotations

import math
import random
import string
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from digideep.errors import UsageError
from digideep.utility.yaml12 import LIMIT_BYTES, dumps_yaml, loads_yaml, read_yaml


@pytest.fixture(params=["in C", "in Python"], autouse=True)
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test runs with both parsers of the library, of which some installations have one only."""
    if request.param == "in Python":
        monkeypatch.delattr(yaml, "CSafeLoader", raising=False)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("1.5E+3", 1500.0),
        (".5", 0.5),
        ("-3", -3),
        ("012", 12),
        ("0o17", 15),
        ("0xfF", 255),
        ("NO", "NO"),
        ("yes", "yes"),
        ("on", "on"),
        ("True", True),
        ("false", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("2026-11-29", "2026-11-29"),
        ("'1'", "1"),
        ('"null"', "null"),
        ("-.inf", -math.inf),
        ("<<", "<<"),
    ],
)
def test_scalars_follow_the_core_schema_of_1_2(text: str, value: object) -> None:
    read = loads_yaml(f"a: {text}", where="f")["a"]

    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &x 1", "expected values, found an anchor or alias in line 1"),
        ("a: &a [x]\nb: [*a, *a]", "expected values, found an anchor or alias in line 1"),
        ("b: *a", "expected values, found an anchor or alias in line 1"),
        (
            "a: !!python/object/apply:os.system [x]",
            "expected no tags, found 'tag:yaml.org,2002:python/object/apply:os.sy",
        ),
        ("a: !!str 1", "expected no tags"),
        ("a: 1\nb: 2\na: 3", "expected every key once, found 'a' twice in line 3"),
        ("1: 2", "expected text as a key, found 1 in line 1; put it in quotes"),
        ("? [a]\n: b", "expected text as a key"),
        ("a\n---\nb", "expected one document, found another in line 2"),
        ("a: {b", "expected YAML, found"),
        ("a: \x00", "expected YAML, found"),
        ("\ta: 1", "expected YAML, found"),
        ("a: " + "9" * 5000, "expected numbers of reasonable length, found a longer one in line 1"),
        ("[" * 60, "expected at most 50 nested levels, found more in line 1"),
        ("#" * (LIMIT_BYTES + 1), f"expected at most {LIMIT_BYTES} bytes, found {LIMIT_BYTES + 1}"),
    ],
)
def test_what_is_not_plain_data_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        loads_yaml(text, where="f.yaml")

    assert str(caught.value).startswith(f"f.yaml: {message}")
    assert "\n" not in str(caught.value)


def test_bombs_are_refused_in_a_second() -> None:
    aliases = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30))
    begin = time.perf_counter()

    for text in (aliases, "[" * 100_000, "{a: " * 100_000, "- " * 100_000):
        with pytest.raises(UsageError):
            loads_yaml(text, where="f")

    assert time.perf_counter() - begin < 5.0


def any_value(rng: random.Random, depth: int) -> Any:
    pieces = [
        "",
        "NO",
        "null",
        "1e-4",
        "0x1",
        "-",
        ": ",
        " #",
        "\n",
        '"',
        "'",
        "\\",
        "é",
        "\u2028",
        "\x85",
        "😀",
        "/a:b",
        "{",
        ",",
    ]
    kind = rng.randrange(8 if depth else 6)
    if kind == 0:
        return rng.choice([None, True, False])
    if kind == 1:
        return rng.choice([0, -1, 10**15, rng.randrange(-1000, 1000)])
    if kind == 2:
        return rng.choice([1e-5, 1e22, -0.0, 1.0, 1 / 3, 5e-324, 1.7e308, rng.random()])
    if kind < 6:
        return "".join(rng.choice([*pieces, *string.printable]) for _ in range(rng.randrange(5)))
    if kind == 6:
        return [any_value(rng, depth - 1) for _ in range(rng.randrange(4))]
    return {any_value_text(rng): any_value(rng, depth - 1) for _ in range(rng.randrange(4))}


def any_value_text(rng: random.Random) -> str:
    return "".join(rng.choice("aB1-:# \"'/{null~\n") for _ in range(rng.randrange(6)))


def test_what_is_written_reads_back_equal() -> None:
    for seed in range(400):
        rng = random.Random(seed)
        tree = {any_value_text(rng): any_value(rng, 3) for _ in range(4)}

        text = dumps_yaml(tree)

        assert repr(loads_yaml(text, where=f"seed {seed}")) == repr(tree), f"seed {seed}"


def test_trees_are_written_for_people() -> None:
    tree = {
        "env": {"type": "a.b:C", "kwargs": {}, "no": "no"},
        "lr": 1e-05,
        "sizes": [64, 64],
        "words": ["x", "1"],
        "n": None,
    }

    assert dumps_yaml(tree) == (
        'env:\n  type: a.b:C\n  kwargs: {}\n  "no": "no"\nlr: 1.0e-05\nsizes: [64, 64]\nwords: [x, "1"]\n"n": null\n'
    )


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"a: \xe9\n")
    (tmp_path / "large.yaml").write_bytes(b"#" * (LIMIT_BYTES + 10))

    for name, message in (
        ("none.yaml", "expected a readable YAML file, found No such file or directory; check the path"),
        ("latin.yaml", "expected UTF-8 text, found byte 0xe9 at offset 3; save the file as UTF-8"),
        ("large.yaml", f"expected at most {LIMIT_BYTES} bytes"),
        ("", "expected a regular file, found another kind; check the path"),
    ):
        with pytest.raises(UsageError, match=message):
            read_yaml(tmp_path / name)
