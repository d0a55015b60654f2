"""Measures this package on your machine: `python -m tests.benchmarks [--quick] [--only NAME]`.

Run it from the repository's root, in an environment with the `dev` extra. Figures are ratios of
work done in one process in turns; absolute numbers depend on the machine and on what else it does.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from time import perf_counter

from tests.benchmarks.measure import QUICK, Figure, Settings

NAMES = (
    "kernel",
    "template_call",
    "loop_overhead",
    "recorder_cost",
    "matchers",
    "llama_index_natives",
    "throughput",
    "import_time",
    "report_memory",
)
HEADINGS = ("measure", "ours", "peer", "ratio", "target", "met")
WIDTHS = (66, 13, 32, 7, 9, 3)


def main(arguments: list[str] | None = None) -> int:
    """Print one row after another; 1 when a target is missed, 0 otherwise."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--quick", action="store_true", help="less of everything, in a minute")
    parser.add_argument("--only", choices=NAMES, action="append", help="may be repeated")
    options = parser.parse_args(arguments)
    settings = QUICK if options.quick else Settings()
    started = perf_counter()
    _show(HEADINGS)
    _show(["-" * width for width in WIDTHS])
    missed = 0
    for name in options.only or NAMES:
        figures: Callable[[Settings], Iterator[Figure]]
        figures = import_module(f"tests.benchmarks.{name}").figures
        for figure in figures(settings):
            _show(_cells(figure))
            missed += figure.met is False
    sys.stderr.write(f"{perf_counter() - started:.0f} s, {missed} targets missed\n")
    return 1 if missed else 0


def _cells(figure: Figure) -> tuple[str, ...]:
    ratio = "" if figure.ratio is None else f"{figure.ratio:.3g}"
    met = {True: "yes", False: "NO", None: ""}[figure.met]
    return figure.measure, figure.ours, figure.peer, ratio, figure.target, met


def _show(cells: Sequence[str]) -> None:
    padded = [cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True)]
    sys.stdout.write(f"| {' | '.join(padded)} |\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
