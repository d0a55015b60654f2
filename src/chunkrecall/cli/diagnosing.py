"""The command that says why chunks were missed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from chunkrecall.cli.exits import Failure
from chunkrecall.cli.loading import load_retriever
from chunkrecall.cli.options import (
    DirectionOption,
    FormatOption,
    IdKeyOption,
    Match,
    MatchOption,
    OutputFormat,
    ThresholdOption,
    matcher_of,
)
from chunkrecall.cli.output import stdout_kept, write_document
from chunkrecall.diagnosis import candidate_draft
from chunkrecall.diagnosis import diagnose as diagnose_report
from chunkrecall.formats import load_dataset, load_run
from chunkrecall.matching import Matcher
from chunkrecall.records import Dataset
from chunkrecall.render import printable
from chunkrecall.report import Report
from chunkrecall.scoring import score

_REPORT_BEGINNING = 4_096


def diagnose(
    source: Annotated[
        Path, typer.Argument(metavar="REPORT", help="A saved report, or a run with --dataset.")
    ],
    dataset: Annotated[Path | None, typer.Option(help="The labelled queries.")] = None,
    corpus: Annotated[
        Path | None, typer.Option(help="All chunks that are indexed: rows with an id and a text.")
    ] = None,
    other: Annotated[
        list[Path] | None,
        typer.Option(help="A report or run of another retriever; may be repeated."),
    ] = None,
    retriever: Annotated[
        str | None, typer.Option(help="MODULE:RETRIEVER, to be asked deeper.")
    ] = None,
    probe_depth: Annotated[int | None, typer.Option(help="With --retriever: how deep.")] = None,
    at: Annotated[
        int | None, typer.Option(help="The cutoff that a miss is below; the largest by default.")
    ] = None,
    match: MatchOption = Match.AUTO,
    id_key: IdKeyOption = None,
    direction: DirectionOption = None,
    threshold: ThresholdOption = None,
    draft: Annotated[
        Path | None,
        typer.Option(help="Write unlabelled chunks here, for `chunkrecall label` to walk through."),
    ] = None,
    format: FormatOption = OutputFormat.TABLE,  # noqa: A002 - the option's name
) -> None:
    """Say why labelled chunks were missed, and what would bring them back."""
    if probe_depth is not None and retriever is None:
        raise Failure("--probe-depth goes with --retriever")
    if draft is not None and draft.exists():
        raise Failure(f"{draft} exists: name a new file")
    labelled = None if dataset is None else load_dataset(dataset)
    matcher = matcher_of(match, id_key, direction, threshold)
    report = _report(source, labelled, matcher)
    with stdout_kept():  # what the user's code prints is no part of the document
        found = diagnose_report(
            report,
            corpus=corpus,
            retriever=None if retriever is None else load_retriever(retriever),
            probe_depth=probe_depth,
            others=[_report(path, labelled, matcher) for path in other or ()],
            dataset=labelled,
            matcher=matcher,
            at=at,
        )
    if draft is not None:
        candidate_draft(found, report, labelled).save(draft)
        sys.stderr.write(f"chunks to judge are in {printable(str(draft))}\n")
    if format is OutputFormat.JSON:
        text = json.dumps(found.to_dict(), allow_nan=False)
    elif format is OutputFormat.MARKDOWN:
        text = found.to_markdown()
    else:
        text = found.to_terminal(color=sys.stdout.isatty())
    write_document(text.rstrip("\n") + "\n")


def _report(path: Path, dataset: Dataset | None, matcher: Matcher | None) -> Report:
    """A saved report, or the report of a run."""
    if _is_report(path):
        return Report.load(path)
    if dataset is None:
        raise Failure(f"{path} is no saved report: give --dataset with a run")
    return score(load_run(path), dataset, matcher=matcher)


def _is_report(path: Path) -> bool:
    with path.open("rb") as file:
        return b"chunkrecall-report" in file.read(_REPORT_BEGINNING)
