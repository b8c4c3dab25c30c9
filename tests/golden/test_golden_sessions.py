"""A9: sessions of every released format are listed, read, played and resumed; what is newer is refused in one line."""

from __future__ import annotations

import hashlib
import json
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import Ended, check_logs_continue, checkpoints, manifest, read, rows

from digideep.pipeline.manifest import COMPONENT_VERSION, FORMAT_VERSION
from digideep.post import load
from digideep.sessions import main as sessions

Run = Callable[..., Ended]

PLACE = Path(__file__).resolve().parent
OBSERVATION = np.array([0.5, -0.5, 0.0], np.float32)  # that of make.py
GOLDEN = sorted(path.name for path in PLACE.glob("format_*"))


@pytest.fixture
def golden(tmp_path: Path) -> Callable[[str], Path]:
    def copy(name: str) -> Path:
        shutil.copytree(PLACE / name, tmp_path / name)
        for path in (tmp_path / name).rglob("*"):
            path.chmod(path.stat().st_mode | stat.S_IRUSR | stat.S_IWUSR)
        return tmp_path / name

    return copy


def test_A9_there_is_a_golden_session_of_every_method_in_this_format() -> None:
    assert [name for name in GOLDEN if name.startswith(f"format_{FORMAT_VERSION}_")] == [
        f"format_{FORMAT_VERSION}_ppo", f"format_{FORMAT_VERSION}_q",
    ]  # fmt: skip


@pytest.mark.parametrize("name", GOLDEN)
def test_A9_a_golden_session_is_listed_shown_and_verified(
    golden: Callable[[str], Path], capsys: pytest.CaptureFixture[str], name: str
) -> None:
    session = golden(name)

    listed = (sessions(["list", str(session.parent), "--json"]), json.loads(capsys.readouterr().out))
    shown = (sessions(["show", str(session), "--json"]), json.loads(capsys.readouterr().out))
    verified = (sessions(["fsck", str(session)]), capsys.readouterr().out)

    assert (listed[0], shown[0], verified[0]) == (0, 0, 0)
    assert [entry["name"] for entry in listed[1]] == [name]
    assert (listed[1][0]["state"], listed[1][0]["frames"]) == ("stopped", 16)
    assert "checkpoint-1" in verified[1]


@pytest.mark.filterwarnings("ignore:.*was made with other code:UserWarning")
@pytest.mark.filterwarnings("ignore:the code of the session cannot be compared:UserWarning")
@pytest.mark.parametrize("name", GOLDEN)
def test_A9_a_golden_session_is_read(golden: Callable[[str], Path], name: str) -> None:
    session = golden(name)

    loader = load(session)

    assert [(entry["name"], entry["frame"]) for entry in loader.checkpoints] == [("checkpoint-1", 16)]
    assert loader.cpanel["hidden_sizes"] == [3]
    assert loader.params["runner"]["n_epochs"] == 2
    assert loader.summary["frame"] == 16
    assert len(rows(session / "varlog.jsonl")) == 1
    action = np.asarray(loader.policy().act(OBSERVATION))
    assert np.isfinite(action).all()
    # The same policy as on the day it was saved, on every machine but for the last bits.
    np.testing.assert_allclose(action, read(PLACE / "actions.json")[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", GOLDEN)
def test_A9_a_golden_session_is_played_and_resumed(command: Run, golden: Callable[[str], Path], name: str) -> None:
    session = golden(name)

    played = command("--load-checkpoint", str(session), "--play", "--episodes", "2")
    resumed = command("--load-checkpoint", str(session), "--resume")

    assert len(read(played.evaluation / "results.json")["episodes"]) == 2
    assert resumed.saved[-1] == "checkpoint-2"
    assert checkpoints(session)[-1] == 2
    assert (manifest(session)["epoch"], manifest(session)["cycle"]) == (2, 2)
    assert manifest(session)["frame"] > 16
    assert read(session / "summary.json")["state"] == "done"
    assert read(session / "meta.json")["id"] == read(PLACE / name / "meta.json")["id"]
    check_logs_continue(session)


def sealed(fields: dict[str, Any]) -> bytes:
    """Return a manifest with a seal that is right."""
    body = json.dumps(fields, indent=2).removesuffix("\n}").encode()
    return body + f',\n  "manifest_sha256": "{hashlib.sha256(body).hexdigest()}"\n}}\n'.encode()


def change_manifest(session: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = session / "checkpoints" / "checkpoint-1" / "MANIFEST.json"
    fields = read(path)
    del fields["manifest_sha256"]
    assert sealed(fields) == path.read_bytes()
    change(fields)
    path.write_bytes(sealed(fields))


def newer_component(fields: dict[str, Any]) -> None:
    fields["components"]["statistics"]["version"] = COMPONENT_VERSION + 1


NEWER: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "format_version": (
        lambda fields: fields.update(format_version=FORMAT_VERSION + 1, min_reader_version=FORMAT_VERSION + 1),
        f"format_version {FORMAT_VERSION + 1} is newer than {FORMAT_VERSION}, which this digideep reads; update it",
    ),
    "min_reader_version": (
        lambda fields: fields.update(min_reader_version=FORMAT_VERSION + 1),
        "which this digideep reads; update it",
    ),
    "component": (newer_component, "component statistics has version 2, newer than 1, which this digideep reads"),
}


@pytest.mark.parametrize("what", NEWER)
@pytest.mark.parametrize("mode", ["--resume", "--play"])
def test_A9_a_newer_checkpoint_is_refused_in_one_line(
    command: Run, golden: Callable[[str], Path], mode: str, what: str
) -> None:
    session = golden("format_1_ppo")
    change, message = NEWER[what]
    change_manifest(session, change)

    ended = command("--load-checkpoint", str(session), mode, expect=5)

    assert ended.err.splitlines()[-1].startswith("digideep: error: ")
    assert message in ended.err.splitlines()[-1]
    assert ended.err.count("digideep: error: ") == 1


def test_A9_what_a_manifest_says_beyond_its_format_is_passed_over(command: Run, golden: Callable[[str], Path]) -> None:
    session = golden("format_1_ppo")
    change_manifest(session, lambda fields: fields.update(note="a later digideep of this format may add this"))

    command("--load-checkpoint", str(session), "--resume")

    assert read(session / "summary.json")["state"] == "done"


def test_A9_a_newer_session_is_refused_in_one_line(
    command: Run, golden: Callable[[str], Path], capfd: pytest.CaptureFixture[str]
) -> None:
    session = golden("format_1_ppo")
    meta = read(session / "meta.json")
    (session / "meta.json").write_text(json.dumps({**meta, "version": 2}))

    errors = [command("--load-checkpoint", str(session), mode, expect=2).err for mode in ("--resume", "--play")]
    code = sessions(["show", str(session)])
    errors.append(capfd.readouterr().err)

    assert code == 2
    for error in errors:
        assert error.count("\n") == 1
        assert "expected a version up to 1, found 2; it needs a newer digideep" in error


def test_A9_keys_that_a_later_digideep_adds_to_a_session_are_passed_over(
    command: Run, golden: Callable[[str], Path]
) -> None:
    session = golden("format_1_ppo")
    for name in ("meta.json", "summary.json"):
        (session / name).write_text(json.dumps({**read(session / name), "later": {"key": 1}}))

    command("--load-checkpoint", str(session), "--resume")

    assert read(session / "summary.json")["state"] == "done"
