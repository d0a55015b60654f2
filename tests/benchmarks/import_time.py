"""What importing costs in a fresh interpreter, against pydantic with one model."""

from __future__ import annotations

import subprocess
import sys
from statistics import median
from typing import TYPE_CHECKING

from tests.benchmarks.measure import Figure, Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

PYDANTIC = "from pydantic import BaseModel\nclass Model(BaseModel):\n    text: str"
OURS = {
    "import chunkrecall": 1.5,
    "from chunkrecall import evaluate": None,
    "from chunkrecall import evaluate_retriever": None,
}
_TIMED = "import time\nstarted = time.process_time()\n{}\nprint(time.process_time() - started)"


def figures(settings: Settings) -> Iterator[Figure]:
    """The bare import, and the first use of the names that load the most."""
    statements = [PYDANTIC, *OURS]
    seconds: dict[str, list[float]] = {statement: [] for statement in statements}
    for number in range(settings.interpreters + 1):
        for statement in statements:
            took = cpu_s(statement)
            if number:  # the first may have compiled the modules
                seconds[statement].append(took)
    peer = median(seconds[PYDANTIC])
    for statement, at_most in OURS.items():
        pairs = zip(seconds[statement], seconds[PYDANTIC], strict=True)
        ratio = median(ours / theirs for ours, theirs in pairs)
        yield Figure(
            measure=statement,
            ours=f"{median(seconds[statement]) * 1000:.0f} ms",
            peer=f"{peer * 1000:.0f} ms pydantic and a model",
            ratio=ratio,
            target="" if at_most is None else f"<= {at_most:g}",
            met=None if at_most is None else ratio <= at_most,
        )


def cpu_s(statement: str) -> float:
    """CPU seconds of the statement alone, without the interpreter's start."""
    code = _TIMED.format(statement)
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, encoding="utf-8"
    )
    return float(done.stdout)
