"""Feeds each reader whatever comes: `python -m tests.fuzz [--minutes 5] [--format csv]`.

Run it from the repository's root. It ends with the input that broke a reader, or with how many each
has refused or read.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from time import monotonic, process_time
from typing import Any

from hypothesis import HealthCheck, given, settings
from tests.property.test_files import _BYTES, _FORMATS, _LAYOUTS

from chunkrecall import ChunkRecallError, load_dataset, load_run

_BATCH = 2_000
_SLOWEST_S = 5.0


def main() -> None:
    """Fuzz the readers one after another."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--minutes", type=float, default=5.0, help="for each format")
    parser.add_argument("--format", choices=(*_FORMATS, *_LAYOUTS), action="append")
    options = parser.parse_args()
    for name in options.format or (*_FORMATS, *_LAYOUTS):
        counts = fuzz(name, options.minutes * 60)
        sys.stdout.write(f"{name}: {counts['read']} read, {counts['refused']} refused\n")
        sys.stdout.flush()


def fuzz(name: Any, seconds: float) -> dict[str, int]:
    """How many inputs were read and refused within that time."""
    counts = {"read": 0, "refused": 0}
    suffix = name if name in ("jsonl", "json", "csv", "tsv", "parquet") else "json"
    end = monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"any.{suffix}"

        @settings(
            max_examples=_BATCH,
            deadline=None,
            derandomize=False,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(content=_BYTES)
        def once(content: bytes) -> None:
            if monotonic() > end:
                return
            path.write_bytes(content)
            for load in (load_dataset, load_run):
                if load is load_run and name == "llama-index":
                    continue
                started = process_time()  # a paused process is not a slow reader
                try:
                    load(path, format=name)
                    counts["read"] += 1
                except ChunkRecallError:
                    counts["refused"] += 1
                if process_time() - started > _SLOWEST_S:
                    raise RuntimeError(f"{name} took more than {_SLOWEST_S:g} s of CPU")

        while monotonic() < end:
            once()
    return counts


if __name__ == "__main__":
    main()
