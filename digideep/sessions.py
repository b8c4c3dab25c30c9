"""`python -m digideep.sessions`: list, show, last, fsck, trust, selftest.

Imports no torch, and runs nothing of a session.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from digideep.errors import CheckpointError, DigideepError, StorageError, TrustError, UsageError, one_line
from digideep.pipeline.inventory import (
    SessionRow,
    clean,
    effective_params,
    find_sessions,
    newest,
    row_of,
    state_of,
    summary_of,
)
from digideep.pipeline.layout import SessionPaths, check_session, read_meta, session_root
from digideep.pipeline.places import typed_path
from digideep.pipeline.stdout import show
from digideep.pipeline.trust import assess, importable_packages, sign
from digideep.utility.commandline import Parser

if TYPE_CHECKING:
    from digideep.pipeline.reader import CheckpointReader
    from digideep.pipeline.verified import Vouched

__all__ = ["Answer", "main"]


class Answer(NamedTuple):
    """What a command found: plain data for --json, lines for people, and what the program ends with."""

    plain: Any
    lines: list[str]
    exit_code: int = 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code.

    Args:
        arguments: the command line without the program's name; None: that of this process.
    """
    try:
        options = _parser().parse_args(arguments)
        answer: Answer = options.command(options)
    except DigideepError as error:
        sys.stderr.write(f"digideep: error: {one_line(error)}\n")
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    lines = [json.dumps(answer.plain, indent=2)] if options.json else answer.lines
    if lines:
        # A name that is no text in the encoding of the terminal must not end the program either.
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        show("\n".join(lines).encode(encoding, "backslashreplace").decode(encoding))
    return answer.exit_code


def _parser() -> Parser:
    parser = Parser(prog="python -m digideep.sessions", description="Look at sessions; nothing of them is run.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)
    for name, command, place, words in (
        ("list", _list, "?", "the sessions in a directory, one a line"),
        ("show", _show, "SESSION", "how one session stands"),
        ("last", _last, "?", "the path of the session that wrote last"),
        ("fsck", _fsck, "SESSION", "read every byte of every checkpoint; 5 where one is damaged"),
        ("trust", _trust, "SESSION", "sign a session, so that the code in it may run"),
        ("selftest", _selftest, "DIRECTORY", "try kill, lock and exactness on the file system of a directory"),
    ):
        sub = commands.add_parser(name, help=words, description=words)
        if place == "?":
            sub.add_argument("place", nargs="?", metavar="DIRECTORY", help="default: where sessions go")
        else:
            sub.add_argument("place", metavar=place)
        sub.add_argument("--json", action="store_true", help="print JSON")
        sub.set_defaults(command=command)
    return parser


def _root(options: argparse.Namespace) -> Path:
    if options.place is None:
        return session_root(create=False)
    path = Path(os.path.realpath(_path(options.place)))
    if not os.path.isdir(path):
        raise UsageError(f"{one_line(options.place)}: expected a directory of sessions, found none; check the path")
    return path


def _path(text: str) -> Path:
    return typed_path(text, option="sessions")


def _session(text: str) -> SessionPaths:
    """Return the session at a path or, where there is nothing and it is a bare name, the one of that name in `list`."""
    path = _path(text)
    if os.sep not in text and not os.path.lexists(path):
        root = session_root(create=False)
        path = root / text
        if not os.path.isdir(path):
            where = one_line(text, limit=400)
            raise UsageError(
                f"{where}: expected a session, found nothing here, and none of this name in {one_line(root)}; "
                f"give its path, or a name that 'python -m digideep.sessions list' shows"
            )
    return check_session(path)


def _list(options: argparse.Namespace) -> Answer:
    root = _root(options)
    if not root.exists():  # only the default one: nothing was ever trained here
        return Answer([], [f"no sessions in {one_line(root)}"])
    rows = [row_of(path) for path in find_sessions(root)]
    return Answer([row._asdict() for row in rows], _table(rows) if rows else [f"no sessions in {one_line(root)}"])


def _table(rows: Sequence[SessionRow]) -> list[str]:
    head = ["NAME", "STATE", "PRESET", "FRAMES", "LAST", "BEST", "SIZE", "AGE", "REASON"]
    cells = [
        [
            row.name,
            row.state,
            row.preset.rpartition(".")[2] or "-",
            str(row.frames),
            _number(row.last_return),
            _number(row.best_return),
            _bytes(row.size_bytes),
            _age(row.age_s),
            one_line(row.reason, limit=100),
        ]
        for row in rows
    ]
    widths = [max(len(line[column]) for line in [head, *cells]) for column in range(len(head))]
    right = {3, 4, 5, 6, 7}
    return [
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in [head, *cells]
    ]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def _age(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _show(options: argparse.Namespace) -> Answer:
    paths = _session(options.place)
    meta, (summary, damage) = read_meta(paths), summary_of(paths)
    state, reason = state_of(paths, summary, damage=damage)
    trust = assess(paths)
    plain = clean(
        {
            **row_of(paths.root)._asdict(),
            "id": meta["id"],
            "message": meta.get("message", ""),
            "lineage": meta.get("lineage"),
            "trust": {"level": trust.level, "reason": trust.reason},
            "summary": {**summary.to_plain(), "state": state, "reason": reason},
            "runs": meta.get("runs", []),
        }
    )
    return Answer(plain, _shown(plain))


def _shown(plain: dict[str, Any]) -> list[str]:
    summary, trust = plain["summary"], plain["trust"]
    facts = {
        "session": plain["path"],
        "state": f"{summary['state']}{', ' if summary['reason'] else ''}{summary['reason']}",
        "preset": plain["preset"],
        "message": plain["message"],
        "lineage": "" if not plain["lineage"] else json.dumps(plain["lineage"]),
        "epoch": str(summary["epoch"]),
        "frame": str(summary["frame"]),
        "episode": str(summary["episode"]),
        "last test": _test(summary["last_test"]),
        "best test": _test(summary["best_test"]),
        "exactness": summary["exactness"],
        "size": _bytes(plain["size_bytes"]),
        "trust": f"{trust['level']}: {trust['reason']}",
    }
    lines = [f"{name:<10} {value}" for name, value in facts.items() if value]
    for entry in summary["checkpoints"]:
        lines.append(f"{entry['name']:<20} frame {entry['frame']:>10}  return {_number(entry['mean_return'])}")
    for index, run in enumerate(plain["runs"], start=1):
        ended = f"{run.get('end')}, exit {run.get('exit_code')}" if run.get("end") else "no end recorded"
        lines.append(f"run {index:<6} {run.get('start', '?')} to {ended}  {run.get('reason', '')}".rstrip())
    return [one_line(line) for line in lines]


def _test(test: dict[str, Any] | None) -> str:
    if test is None:
        return ""
    place = test.get("checkpoint") or (f"frame {test['frame']}" if "frame" in test else "not saved")
    return f"{_number(test['mean_return'])} +- {_number(test['std_return'])} over {test['n']} episodes ({place})"


def _last(options: argparse.Namespace) -> Answer:
    root = _root(options)
    found = newest(root) if root.exists() else None
    if found is None:
        raise UsageError(f"{one_line(root)}: expected a session in it, found none; name another directory")
    return Answer(row_of(found)._asdict(), [one_line(found)])


def _fsck(options: argparse.Namespace) -> Answer:
    from digideep.pipeline.reader import CheckpointReader

    paths = _session(options.place)
    store = CheckpointReader(paths.checkpoints, session_id=str(read_meta(paths)["id"]))
    read: Vouched = {}  # a file that many checkpoints share is read once
    found = [
        {"name": f"checkpoint-{number}", "ok": not damage, "damage": [one_line(reason) for reason in damage]}
        for number in store.numbers()
        for damage in [_damage(store, number, read=read)]
    ]
    found += [
        {"name": name, "ok": False, "damage": [f"expected a directory, found {kind}"]}
        for name, kind in store.impostors()
    ]
    lines = [f"{entry['name']}: {_verdict(entry)}" for entry in found] or ["no checkpoints"]
    damaged = any(not entry["ok"] for entry in found)
    return Answer({"path": one_line(paths.root), "checkpoints": found}, lines, CheckpointError.exit_code * damaged)


def _damage(store: CheckpointReader, number: int, *, read: Vouched) -> list[str]:
    """Return every reason why a checkpoint cannot be read as a resume reads it."""
    try:
        store.load(number, vouched=read)
    except CheckpointError as error:
        return store.verify(number, vouched=read) or [str(error)]
    return []


def _verdict(entry: dict[str, Any]) -> str:
    return "ok" if entry["ok"] else "damaged: " + "; ".join(entry["damage"])


def _trust(options: argparse.Namespace) -> Answer:
    paths = _session(options.place)
    modules = importable_packages(paths, effective_params(paths))
    if reason := sign(paths, modules=modules):
        raise TrustError(f"{one_line(paths.root)}: expected to sign it, found that {reason}; use --trust-session")
    names = ", ".join(modules) or "none beyond digideep"
    line = f"signed: {one_line(paths.root)}; its modules/ may run, and its parameters may import: {names}"
    return Answer({"path": one_line(paths.root), "signed": True, "modules": list(modules)}, [line])


def _selftest(options: argparse.Namespace) -> Answer:
    from digideep.pipeline.selftest import run_selftest

    results = run_selftest(Path(os.path.realpath(_path(options.place))))
    lines = [f"{result.name}: {'ok' if result.ok else 'FAILED'}, {one_line(result.finding)}" for result in results]
    failed = any(not result.ok for result in results)
    return Answer([result._asdict() for result in results], lines, StorageError.exit_code * failed)


if __name__ == "__main__":
    sys.exit(main())
