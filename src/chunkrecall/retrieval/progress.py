"""The progress bar: on standard error, on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(total: int, label: str, *, progress: bool | None) -> Iterator[Callable[[], None]]:
    """Gives a function that says one query is done.

    Args:
        total: How many queries there are.
        label: What is being asked, shown beside the bar.
        progress: True shows the bar, False does not, None only when standard error is a terminal.
    """
    if progress is False or (progress is None and not sys.stderr.isatty()):
        yield _nothing
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        shown = bar.add_task(label, total=total)
        yield lambda: bar.advance(shown)


def _nothing() -> None:
    """No bar."""
