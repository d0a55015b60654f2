"""The pytest plugin: a `recall_report` fixture, and one table of what it was given.

pytest loads this module at the start of every session in an environment that has chunkrecall, also
of projects that do not use it. So it imports pytest alone, and our own modules in the functions
that need them.
"""

from __future__ import annotations

import json
import weakref
from collections import Counter
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from chunkrecall.render import Table
    from chunkrecall.report import Report

_NAME_SHOWN = 60
_NARROWEST_NAME = 20
_COLUMN_GAP = 3
_SIZE_WITHOUT_TERMINAL = (100, 24)
_OUTPUT = "chunkrecall_reports"
"""Under this key a pytest-xdist worker hands its rows over."""


class _Row(NamedTuple):
    """One line of the table; plain JSON values."""

    name: str
    means: tuple[tuple[int | None, float | None], ...]
    """Each cutoff and the mean recall there."""
    queries: int
    scored: int
    errored: int
    not_run: int


class RecallReports:
    """Takes reports for the table at the end of the session: `recall_report(report)`."""

    def __init__(self) -> None:
        self._rows: list[_Row] = []
        self._taken: list[tuple[weakref.ref[Report], str]] = []

    def __call__(self, report: Report, *, name: str | None = None) -> Report:
        """The report itself, which from now on has a row in the table.

        A report that is given again under the same name keeps its one row.

        Args:
            report: What `evaluate_retriever`, `score` or a recorder's `report()` gave.
            name: What stands in the table; the report's name and its dataset's by default.

        Raises:
            TypeError: It is no report, or the name is no string.
        """
        from chunkrecall.report import Report

        if not isinstance(report, Report):
            raise TypeError(f"recall_report takes a Report, got {report!r:.100}")
        if name is not None and not isinstance(name, str):
            raise TypeError(f"name must be a string, got {name!r:.100}")
        if name is None:
            name = f"{report.name} on {report.dataset_name}" if report.dataset_name else report.name
        if not any(known() is report and name == under for known, under in self._taken):
            self._taken.append((weakref.ref(report), name))
            self._rows.append(_row(report, name))
        return report

    def add(self, report: Report, *, name: str | None = None) -> Report:
        """The same as calling it."""
        return self(report, name=name)

    def to_json(self) -> str:
        """The rows as ASCII text, which any channel between processes carries."""
        return json.dumps(self._rows)

    def take_from_worker(self, text: str) -> None:
        """Add the rows that `to_json` gave in another process, and sort all by name.

        In which order workers end is chance.
        """
        for name, means, *counts in json.loads(text):
            self._rows.append(_Row(name, tuple(map(tuple, means)), *counts))
        self._rows.sort(key=lambda row: row.name)

    def lines(self) -> list[str]:
        """The table; none where no report was given."""
        return _drawn(self._rows) if self._rows else []


_REPORTS = pytest.StashKey[RecallReports]()


@pytest.fixture(scope="session")
def recall_report(pytestconfig: pytest.Config) -> RecallReports:
    """Call it with a chunkrecall Report to have it in the table at the end of the session."""
    return pytestconfig.stash[_REPORTS]


def pytest_configure(config: pytest.Config) -> None:
    """Begin without reports."""
    config.stash[_REPORTS] = RecallReports()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand over what a pytest-xdist worker has taken: it prints nothing itself."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_OUTPUT] = session.config.stash[_REPORTS].to_json()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:  # noqa: ANN401 - a class of pytest-xdist, if there is one
    """Take the rows of a worker that has ended; one that crashed has handed nothing over."""
    text = getattr(node, "workeroutput", {}).get(_OUTPUT)
    if text is not None:
        node.config.stash[_REPORTS].take_from_worker(text)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the one table, below the failures."""
    lines = config.stash[_REPORTS].lines()
    if lines:
        terminalreporter.write_sep("=", "recall")
        for line in lines:
            terminalreporter.write_line(line)


def _row(report: Report, name: str) -> _Row:
    one = next(iter(report.summary.values()))
    return _Row(
        name=name,
        means=tuple((k, report.mean(k)) for k in report.cutoffs),
        queries=len(report.queries),
        scored=one.scored,
        errored=one.errored,
        not_run=one.not_run,
    )


def _drawn(rows: Iterable[_Row]) -> list[str]:
    from chunkrecall.render import Document, to_terminal

    table = _table(rows)
    # Numbers are never cut: where the terminal is too narrow for them, its lines break.
    numbers = sum(
        max(len(title), *map(len, cells)) + _COLUMN_GAP
        for title, *cells in zip([one.title for one in table.columns], *table.rows, strict=True)
    )
    names = max(len(row[0]) for row in table.rows)
    least = numbers - names + min(names, _NARROWEST_NAME)
    width = max(get_terminal_size(_SIZE_WITHOUT_TERMINAL).columns, least)
    return to_terminal(Document((table,)), width=width).splitlines()


def _table(rows: Iterable[_Row]) -> Table:
    """A column for each cutoff that any report has; equal rows are one, with their number."""
    from chunkrecall.metric import check_ks, cutoff_name
    from chunkrecall.render import Column, Table, printable, share

    times = Counter(rows)
    cutoffs = check_ks({k for row in times for k, _ in row.means})
    some_not_run = any(row.not_run for row in times)
    titles = [*map(cutoff_name, cutoffs), "queries", "scored", "errors"]
    titles += ["not run"] if some_not_run else []
    cells = []
    for row, number in times.items():
        means = dict(row.means)
        name = printable(row.name, limit=_NAME_SHOWN)
        shown = [name if number == 1 else f"{name} \u00d7{number}"]
        shown += [share(means[k]) if k in means else "" for k in cutoffs]
        shown += [str(row.queries), str(row.scored), str(row.errored)]
        cells.append((*shown, str(row.not_run)) if some_not_run else tuple(shown))
    columns = (Column("report", wrap=True), *[Column(title, align="right") for title in titles])
    return Table(None, columns, tuple(cells))
