"""The options of `run` and `score` that say what a report must reach."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from chunkrecall.cli.exits import NOT_MEASURED, Exit, Failure
from chunkrecall.gate import Threshold, check_gate, exact, threshold
from chunkrecall.render import printable
from chunkrecall.report import Report

if TYPE_CHECKING:
    from collections.abc import Sequence

MinRecallOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--min-recall", help="Least mean recall: 0.8@5, or 0.8@5:tag. May be repeated."),
]
MinHitsOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--min-hits", help="Least share of queries with any hit: 0.9@5."),
]
MinCoverageOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--min-coverage", help="Least share of queries that must have been scored."),
]
BaselineOption: TypeAlias = Annotated[
    Path | None, typer.Option("--baseline", help="A saved report that must not be undercut.")
]
MaxDropOption: TypeAlias = Annotated[
    str, typer.Option("--max-drop", help="How far below the baseline is allowed.")
]
ExcludeIdsOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--exclude-ids", help="Query ids, separated by commas, left out of the gate."),
]
GateCodeOption: TypeAlias = Annotated[
    int, typer.Option("--gate-exit-code", help="The exit code of a missed gate.")
]
GateSummaryOption: TypeAlias = Annotated[
    Path | None, typer.Option("--gate-summary", help="Append a Markdown summary of the gate here.")
]


class Gate:
    """What was asked for, checked before anything is retrieved."""

    def __init__(
        self,
        min_recall: Sequence[str] | None,
        min_hits: Sequence[str] | None,
        min_coverage: str | None,
        baseline: Path | None,
        max_drop: str,
        exclude_ids: str | None,
        code: int,
        summary: Path | None,
    ) -> None:
        if not 0 <= code <= 255:
            raise Failure(f"--gate-exit-code must be within 0 and 255, got {code}")
        self._thresholds: list[Threshold] = [threshold(one) for one in min_recall or ()]
        self._thresholds += [threshold(one, "hit") for one in min_hits or ()]
        self._coverage = exact("1" if min_coverage is None else min_coverage, "--min-coverage")
        self._baseline = None if baseline is None else Report.load(baseline)
        self._max_drop = exact(max_drop, "--max-drop")
        self._exclude_ids = [one for one in (exclude_ids or "").split(",") if one]
        self._code = code
        self._summary = summary
        self.is_asked_for = bool(
            self._thresholds or baseline is not None or min_coverage is not None
        )

    def hold(self, report: Report) -> None:
        """Say how the report stands, and end with the code of what it misses.

        Raises:
            Exit: A threshold is missed, or too little was measured.
        """
        if not self.is_asked_for:
            return
        result = check_gate(
            report,
            self._thresholds,
            min_coverage=self._coverage,
            exclude_ids=self._exclude_ids,
            baseline=self._baseline,
            max_drop=self._max_drop,
        )
        for line in result.lines():
            sys.stderr.write(f"gate {printable(line)}\n")
        if self._summary is not None:
            with self._summary.open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(result.to_markdown())
        if not result.is_measured:
            raise Exit(NOT_MEASURED)
        if not result.passed:
            raise Exit(self._code)
