"""B7 as one line of JSON, for the driver: what `benchmarks.explorers` measures, once.

python -m benchmarks.stepping [--seconds 1] [-n 1 8 64]
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import warnings

from benchmarks.explorers import measure
from benchmarks.ways import ENVIRONMENTS
from digideep.errors import DigideepError, one_line


def main() -> None:
    """Measure every environment and print; what is missing is told on standard error."""
    parser = argparse.ArgumentParser(prog="benchmarks.stepping")
    parser.add_argument("-n", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    logging.disable(logging.INFO)
    warnings.simplefilter("ignore")
    rows = []
    for name in ENVIRONMENTS:
        for num_envs in options.n:
            try:
                _, compared, missing = measure(name, num_envs, seconds=options.seconds)
            except DigideepError as error:
                compared, missing = [], [f"left out: {one_line(error, limit=150)}"]
            rows += [one._asdict() for one in compared]
            for line in missing:
                print(f"  {name}, {num_envs}: {line}", file=sys.stderr)
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
