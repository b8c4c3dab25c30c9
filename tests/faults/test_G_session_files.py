"""G: each file of a session missing, malformed, or no file: told in one line, never waited for, nothing left."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from cold import LIMIT_S, Cold
from hostile import PRESET, SETS

Spoil = Callable[[Path], object]


def _socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # the path of a socket may be a hundred characters long
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path.name)
    finally:
        os.chdir(here)


def _hole(path: Path) -> None:
    with open(path, "wb") as stream:
        stream.truncate(1 << 40)


CONTENTS: Mapping[str, Spoil] = {
    "missing": lambda path: None,
    "empty": lambda path: path.write_bytes(b""),
    "no text": lambda path: path.write_bytes(b"\xff\xfe\0{"),
    "torn": lambda path: path.write_text('{"format": "digideep-se'),
    "deep": lambda path: path.write_text("[" * 100_000),
    "a terabyte": _hole,
}
KINDS: Mapping[str, Spoil] = {
    "link": lambda path: path.symlink_to(path.parents[2] / "outside"),
    "link to a directory": lambda path: path.symlink_to("/etc"),
    "dangling link": lambda path: path.symlink_to("/nowhere/at/all"),
    "link to itself": lambda path: path.symlink_to(path.name),
    "fifo": os.mkfifo,
    "socket": _socket,
    "device": lambda path: path.symlink_to("/dev/zero"),
}
DIRECTORY: Mapping[str, Spoil] = {"directory": lambda path: path.mkdir()}
FILE: Mapping[str, Spoil] = {"file": lambda path: path.write_text("x")}
EVERY_KIND = {**KINDS, **DIRECTORY}

NEEDED = ["meta.json", "cpanel.json", "params.yaml", "repeal.json"]
LOGS = ["report.log", "varlog.jsonl", "prolog.jsonl", "monlog.jsonl", "timers.json"]
REGULAR = [*LOGS, "summary.json", "signature.json", "running.lock", "done.lock"]
BELOW = ["monitor/train/0.monitor.csv", "tensorboard/events.out.tfevents.0000000000.digideep"]
DIRECTORIES = ["checkpoints", "modules", "monitor", "monitor/train", "tensorboard", "evaluations", "crash", "videos",
               "customs"]  # fmt: skip
OF_A_CHECKPOINT = ["MANIFEST.json", "state.json", "agents.agent.safetensors", "rng.safetensors"]


@pytest.fixture
def session(trained: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of it that a test may spoil; its place has a file outside of it."""
    root = tmp_path / "place" / "s"
    shutil.copytree(trained, root, symlinks=True)
    (tmp_path / "outside").write_text("kept\n")
    yield root
    assert (tmp_path / "outside").read_text() == "kept\n"


def _spoilt(session: Path, name: str, spoil: Spoil) -> Callable[[], None]:
    """Spoil a file of a session and return what puts it back."""
    path, aside = session / name, session.parent / "aside"
    there = os.path.lexists(path)
    if there:
        path.rename(aside)
    path.parent.mkdir(parents=True, exist_ok=True)
    spoil(path)

    def restore() -> None:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif os.path.lexists(path):
            path.unlink()
        if there:
            aside.rename(path)

    return restore


def _commands(session: Path) -> dict[str, list[str]]:
    named = ["main", "--load-checkpoint", str(session)]
    return {
        "show": ["sessions", "show", str(session)],
        "fsck": ["sessions", "fsck", str(session)],
        "trust": ["sessions", "trust", str(session)],
        "load": ["load", str(session), "params"],
        "resume": [*named, "--resume"],
        "play": [*named, "--play"],
    }


def _refused(
    cold: Cold, session: Path, name: str, spoils: Mapping[str, Spoil], *, readers: list[str] | None = None
) -> list[str]:
    """Return what is wrong with how commands refuse each way of spoiling `name`, and with the list."""
    commands, found = _commands(session), list[str]()
    readers = readers or list(commands)
    for number, (kind, spoil) in enumerate(spoils.items()):
        restore = _spoilt(session, name, spoil)
        for command in ("resume", readers[number % len(readers)]):  # the one that writes, and the others in turn
            told = cold.complaints(*commands[command], cwd=session.parent, names=[Path(name).name])
            found += [f"{name}, {kind}: {line}" for line in told]
        found += [f"{name}, {kind}: {line}" for line in _listed(cold, session)]
        restore()
    return found


def _listed(cold: Cold, session: Path) -> list[str]:
    answers = [cold.ask("sessions", command, str(session.parent), cwd=session.parent) for command in ("list", "last")]
    wrong = [
        f"{answer}"
        for answer in answers
        if answer.code not in (0, 2) or answer.err.count("\n") > 1 or answer.seconds > LIMIT_S or "Trace" in answer.err
    ]
    return wrong + ([] if answers[0].code == 0 else ["no list"])


@pytest.mark.parametrize("name", NEEDED)
def test_G_a_file_that_a_session_needs_is_told_by_every_command(cold: Cold, session: Path, name: str) -> None:
    assert _refused(cold, session, name, {"missing": CONTENTS["missing"], **EVERY_KIND}) == []


@pytest.mark.parametrize("name", NEEDED)
def test_G_a_file_without_sense_is_told_by_every_command_that_reads_it(cold: Cold, session: Path, name: str) -> None:
    readers = ["trust", "load", "resume", "play"] if name == "params.yaml" else None

    assert _refused(cold, session, name, CONTENTS, readers=readers) == []


@pytest.mark.parametrize("name", [*REGULAR, *BELOW])
def test_G_something_else_in_place_of_a_file_is_told_by_every_command(cold: Cold, session: Path, name: str) -> None:
    assert (
        _refused(cold, session, name, {k: v for k, v in EVERY_KIND.items() if not (k == "directory" and "/" in name)})
        == []
    )


@pytest.mark.parametrize("name", DIRECTORIES)
def test_G_something_else_in_place_of_a_directory_is_told_by_every_command(
    cold: Cold, session: Path, name: str
) -> None:
    assert _refused(cold, session, name, {**KINDS, **FILE}) == []


@pytest.mark.parametrize("name", ["contents.json", "digideep"])
def test_G_code_of_a_session_that_cannot_be_read_is_told_before_it_goes_on(
    cold: Cold, session: Path, name: str
) -> None:
    spoils = {**CONTENTS, **EVERY_KIND} if name == "contents.json" else KINDS
    found: list[str] = []
    for kind, spoil in spoils.items():
        restore = _spoilt(session, f"modules/{name}", spoil)
        resume = _commands(session)["resume"]
        for more in ([], ["--code", "session"]):
            code = 6 if more else 2
            if name == "contents.json" or more:
                told = cold.complaints(*resume, *more, cwd=session.parent, code=code)
                found += [f"{kind}: {line}" for line in told]
        restore()

    assert found == []


@pytest.mark.parametrize("name", OF_A_CHECKPOINT)
def test_G_a_checkpoint_whose_file_is_spoilt_is_damaged_and_never_waited_for(
    cold: Cold, session: Path, name: str
) -> None:
    file = f"checkpoints/checkpoint-1/{name}"
    named = ["main", "--load-checkpoint", str(session / "checkpoints/checkpoint-1")]
    found: list[str] = []
    for number, (kind, spoil) in enumerate({**CONTENTS, **EVERY_KIND}.items()):
        restore = _spoilt(session, file, spoil)
        checked = cold.ask("sessions", "fsck", str(session), cwd=session.parent)
        if checked.code != 5 or "checkpoint-1: damaged" not in checked.out or checked.seconds > LIMIT_S:
            found.append(f"{kind}: {checked}")
        if number % 3 == 0:
            answer = cold.ask(*named, "--play", cwd=session.parent)
            if answer.code != 5 or "checkpoint-1" not in answer.err or "torch" in answer.heavy or "Trace" in answer.err:
                found.append(f"{kind}: {answer}")
        restore()

    assert found == []
    assert not (session / "evaluations").exists()


def test_G_autoresume_refuses_a_session_that_it_cannot_read(cold: Cold, session: Path) -> None:
    again = ["main", *PRESET, "--session-path", str(session.parent), "--session-name", "s", "--set", *SETS]
    found: list[str] = []
    for name in ("meta.json", "cpanel.json", "repeal.json", "params.yaml", "varlog.jsonl"):
        for kind in ("fifo", "directory", "link"):
            restore = _spoilt(session, name, EVERY_KIND[kind])
            told = cold.complaints(*again, "--autoresume", cwd=session.parent, names=[name], heavy=["gymnasium"])
            found += [f"{name}, {kind}: {line}" for line in told]
            restore()

    assert found == []


@pytest.mark.parametrize("held", [["README.md", "__init__.py"], [".git/config"], ["notes.txt"], ["modules/mine.py"]])
def test_G_autoresume_never_takes_a_directory_of_the_users_for_a_session(
    cold: Cold, tmp_path: Path, held: list[str]
) -> None:
    for name in held:
        (tmp_path / "mine" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "mine" / name).write_text("of the user")
    arguments = [*PRESET, "--session-path", str(tmp_path), "--session-name", "mine", "--autoresume"]

    found = cold.complaints("main", *arguments, cwd=tmp_path, names=["expected a session, or nothing"])

    assert found == []


@pytest.mark.parametrize("path", ["checkpoints", "checkpoints/checkpoint-7", "meta.json", "monitor", ".."])
def test_G_a_path_into_a_session_that_is_neither_session_nor_checkpoint_is_told(
    cold: Cold, session: Path, path: str
) -> None:
    code = 5 if path.endswith("-7") else 2

    found = cold.complaints("main", "--load-checkpoint", str(session / path), "--resume", cwd=session.parent, code=code)

    assert found == []
