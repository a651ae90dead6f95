"""All figures of reliability: `python -m benchmarks.reliability [PART ...] [--seconds 3600] [--short] [--out FOLDER]`.

- `overhead`: what checkpoints, supervision and checksums cost.
- `damage`: what is accepted of damaged files, and what a failed or killed write leaves.
- `kills`: rows lost or doubled, and other bits, where workers and coordinators are killed.
- `fuzz`: parsers under coverage-guided fuzzing; left out without `pip install atheris`.

Each part writes a table into FOLDER, which says what was cut short; the last three take at most so many seconds.
"""

from __future__ import annotations

import argparse
import logging
from importlib.util import find_spec
from pathlib import Path

from . import damage, fuzz, kills, overhead
from .faults import restart_with_faults
from .fuzz_targets import SEEDS
from .report import RESULTS

SHORT = 20  # seconds of a part


def main() -> int:
    """Run the parts, print what went wrong, and fail where anything did."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="all by default")
    parser.add_argument("--seconds", type=float, default=3600.0, help="of a part (%(default)s)")
    parser.add_argument("--short", action="store_true", help=f"{SHORT} s of a part, a run of each algorithm")
    parser.add_argument("--parsers", nargs="+", choices=SEEDS, default=(), help="those to fuzz (all)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the tables go (benchmarks/results)")
    given = parser.parse_args()
    seconds = SHORT if given.short else given.seconds
    parts = {
        "overhead": lambda: overhead.run(1 if given.short else 5, given.out),
        "damage": lambda: damage.run(seconds, given.out),
        "kills": lambda: kills.run(seconds, given.out, given.short),
        "fuzz": lambda: fuzz.run(seconds, given.out.absolute(), given.parsers),
    }
    if unknown := set(given.parts) - set(parts):
        parser.error(f"no part {unknown.pop()}; there are {', '.join(parts)}")
    restart_with_faults()
    logging.getLogger("xmlsgd").setLevel(logging.CRITICAL)  # of runs that are resumed, and what cannot be written
    wrong = []
    for name in given.parts or parts:
        if name == "fuzz" and not find_spec("atheris"):
            print("fuzz is left out: pip install atheris")
            continue
        wrong += [f"{name}: {what}" for what in parts[name]()]
    print("\n".join(wrong) or "nothing went wrong")
    return bool(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
