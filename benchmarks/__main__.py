"""`scripts/bench`: do the same work with digideep and its peers in turn, and print ratios.

    scripts/bench --setup                 make the peers' virtual environments, in .bench/
    scripts/bench --quick                 two minutes: B1, B2, B8 and B10 against Stable-Baselines3
    scripts/bench B1 B2 --one-core        each seed by seed, every contender in a process of its own
    scripts/bench B3 --two-cores --output results.json
    scripts/bench --report results.json   the tables of what was stored
    scripts/bench --results               the trainings of docs/results.md that are not stored yet; fill the page
    scripts/bench --results --only NAME   those of one preset alone; without a name none, and the page is filled
    scripts/bench --results --output FILE   your own, kept in this file; their tables are printed, the page stays

Speed is compared between runs that follow each other, since a machine may be shared. The benchmarks of training are
those in benchmarks/settings.py; B7 steps environments, B8 times single operations, B10 the start of the program, and
`limits` what the parts of a training take at least.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.contenders import OURS, present
from benchmarks.installing import PEERS, install
from benchmarks.learning import STORE, learn, read_learned
from benchmarks.learning_page import PAGE, render_learned, write_page
from benchmarks.measure import Cores, Failed, run_in_turns, say
from benchmarks.operations import limits, single_operations, start_up, stepping
from benchmarks.report import fill_page, render
from benchmarks.settings import ALIASES, LEARNING, SETTINGS
from benchmarks.tables import Table, machine, read_tables, store_table

_OTHERS = {"B7": stepping, "B8": single_operations, "B10": start_up, "limits": limits}
_QUICK = {"B1": 41_000, "B2": 13_000, "B8": 0, "B10": 0}  # frames
_REPETITIONS = {**dict.fromkeys(LEARNING, 20), "B7": 3, "limits": 3}


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line asks for and return the exit code."""
    options = _parse(arguments)
    try:
        if options.setup is not None:
            return 1 if install(options.setup or PEERS) else 0
        if options.report:
            return _report(options)
        if options.results:
            return _learn(options)
        return _measure(options)
    except (Failed, ValueError, LookupError) as error:
        print(f"scripts/bench: error: {error}", file=sys.stderr)
        return 2


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = [*SETTINGS, *ALIASES, *_OTHERS]
    parser.add_argument("ids", nargs="*", metavar="ID", help=f"of {', '.join(sorted(known))}; default: B1")
    parser.add_argument(
        "--setup", nargs="*", choices=PEERS, metavar="PEER",
        help=f"make the environments of these peers, by default of all ({', '.join(PEERS)}), and end",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="two minutes against Stable-Baselines3 alone")
    cores = parser.add_mutually_exclusive_group()
    cores.add_argument("--one-core", dest="cores", action="store_const", const=1, help="the default")
    cores.add_argument("--two-cores", dest="cores", action="store_const", const=2)
    parser.add_argument("--seeds", type=int, help="repetitions, from seed 1 on (5; what is learnt: 20)")
    parser.add_argument("--others", type=int, metavar="N", help="repetitions of all but digideep and Stable-Baselines3")
    parser.add_argument("--frames", type=int, help="instead of the benchmark's")
    parser.add_argument("--threads", type=int, help="of torch, in every contender, instead of the benchmark's")
    parser.add_argument("--contenders", nargs="+", default=[], metavar="NAME", help="only those that begin so")
    parser.add_argument(
        "--output", type=Path, metavar="FILE",
        help="add each table to this JSON file; with --results: keep trainings there, and print the tables",
    )  # fmt: skip
    parser.add_argument("--report", nargs="+", type=Path, metavar="FILE", help="print the tables of these files")
    parser.add_argument("--page", type=Path, help="with --report or --results: put them into this page's marks")
    parser.add_argument("--plot", type=Path, help="with --report: draw this picture (extra `plot`)")
    parser.add_argument("--results", action="store_true", help="train what docs/results.md shows, and fill that page")
    parser.add_argument("--only", nargs="*", metavar="NAME", help="with --results: these presets alone")
    parser.add_argument("--again", action="store_true", help="with --results: also what is stored already")
    parser.add_argument(
        "--at-once", type=int, default=1, metavar="N", help="with --results: so many trainings, each on its own cores"
    )
    options = parser.parse_args(arguments)
    unknown = [name for name in options.ids if name not in known]
    if unknown:
        parser.error(f"expected benchmarks of {', '.join(sorted(known))}, found {', '.join(unknown)}")
    options.cores = options.cores or 1
    return options


def _report(options: argparse.Namespace) -> int:
    tables = read_tables(options.report)
    text = render(tables)
    if options.plot:
        from benchmarks.plot import draw

        draw(tables, options.plot)
    if options.page:
        fill_page(options.page, text)
    else:
        print(text, end="")
    return 0


def _learn(options: argparse.Namespace) -> int:
    path = options.output or STORE
    page = options.page or (None if options.output else PAGE)  # the page shows what the repository stores
    failed = learn(
        names=options.only, seeds=options.seeds, again=options.again, at_once=options.at_once, path=path, show=say
    )
    if page is None:
        print(render_learned(read_learned(path)), end="")
    else:
        write_page(read_learned(path), page)
    for name in failed:
        print(f"scripts/bench: error: {name} failed", file=sys.stderr)
    return 1 if failed else 0


def _measure(options: argparse.Namespace) -> int:
    ids = (
        list(_QUICK) if options.quick else [one for name in options.ids or ["B1"] for one in ALIASES.get(name, [name])]
    )
    tables = []
    for name in dict.fromkeys(ids):
        table = _table(name, options)
        if options.output:
            store_table(options.output, table)
        tables.append(table)
    if tables:
        print(render(tables), end="")
    return 0


def _table(name: str, options: argparse.Namespace) -> Table:
    repetitions = options.seeds or (3 if options.quick else _REPETITIONS.get(name, 5))
    setting = SETTINGS.get(name)
    threads = options.threads or (setting.threads[options.cores - 1] if setting else 1)
    cores, about = Cores(options.cores, threads), machine()
    say(f"{name}: {options.cores} core(s), {threads} thread(s), {repetitions} repetitions, load {about['load'][0]}")
    runs, figures = [], []
    if setting:
        contenders, missing = present(name, cores=cores.number, names=options.contenders, quick=options.quick)
        for line in missing:
            say(line)
        frames = options.frames or (_QUICK[name] if options.quick else None)
        runs = run_in_turns(
            contenders,
            name,
            seeds=range(1, repetitions + 1),
            cores=cores,
            frames=frames,
            others=options.others,
            show=say,
        )
        if OURS not in {run.contender for run in runs}:
            raise Failed(f"{name}: expected results of {OURS}, found none")
    else:
        figures = _OTHERS[name](repetitions=repetitions, cores=cores)
    about["load"] += machine()["load"]
    return Table(name, cores.number, threads, about, runs, figures, setting=setting._asdict() if setting else None)


if __name__ == "__main__":
    sys.exit(main())
