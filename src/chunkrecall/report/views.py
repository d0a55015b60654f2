"""The report as tables, before anything is escaped or drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chunkrecall.metric import cutoff_name
from chunkrecall.render import Column, Document, Paragraph, Table, count, share
from chunkrecall.text import NearMisses

if TYPE_CHECKING:
    from chunkrecall.report.query_score import QueryScore
    from chunkrecall.report.report import Report

_WORST = 10
_TAGS = 20
_TAG_CHARACTERS = 24
_MISSING_SHOWN = 2
_TEXT_CHARACTERS = 90
_ERROR_CHARACTERS = 300


def report_document(report: Report) -> Document:
    """Means, statuses, notes, means by tag, and the worst queries with what each missed."""
    blocks: list[Table | Paragraph] = [
        Paragraph(_heading(report)),
        _means(report),
        Paragraph(_statuses(report)),
    ]
    blocks.extend(Paragraph(f"Note: {note}") for note in report.notes)
    if any(query.tags for query in report.queries):
        blocks.append(_tags(report))
    worst = report.worst(_WORST)
    if worst:
        blocks.append(_misses(report, worst))
    return Document(tuple(blocks))


def _heading(report: Report) -> str:
    dataset = f" on {report.dataset_name}" if report.dataset_name else ""
    queries = count(len(report.queries), "query", "queries")
    return f"{report.name}{dataset}: {queries}, matched by {report.rules['matcher']}"


def _means(report: Report) -> Table:
    first = next(iter(report.summary.values()))
    bounds = first.errored > 0
    columns = [Column("k"), Column("recall", align="right")]
    if bounds:
        columns.append(Column("errors as 0 … 1", align="right"))
    columns += [
        Column("ceiling", align="right"),
        Column("pooled", align="right"),
        Column("hit", align="right"),
        Column("complete", align="right"),
    ]
    has_coverage = cutoff_name(report.cutoffs[0], "coverage") in report.summary
    if has_coverage:
        columns.append(Column("coverage", align="right"))
    rows = []
    for k in report.cutoffs:
        recall = report.summary[cutoff_name(k)]
        row = ["all" if k is None else str(k), share(recall.mean)]
        if bounds:
            row.append(f"{share(recall.bound_low)} … {share(recall.bound_high)}")
        row += [
            share(recall.ceiling) if recall.ceiling is not None else "",
            share(recall.pooled),
            share(report.summary[cutoff_name(k, "hit")].mean),
            share(report.summary[cutoff_name(k, "complete")].mean),
        ]
        if has_coverage:
            row.append(share(report.summary[cutoff_name(k, "coverage")].mean))
        rows.append(tuple(row))
    return Table(None, tuple(columns), tuple(rows))


def _statuses(report: Report) -> str:
    one = next(iter(report.summary.values()))
    parts = [f"mean over {count(one.averaged_over, 'query', 'queries')}"]
    for name, number in (
        ("scored", one.scored),
        ("undefined", one.undefined),
        ("errored", one.errored),
        ("not run", one.not_run),
        ("unlabelled", one.unlabelled),
    ):
        if number or name == "scored":
            parts.append(f"{number} {name}")
    text = ", ".join(parts) + f", {one.total} in total."
    if report.absent:
        text += f" {count(report.absent, 'query', 'queries')} absent from the run, counted as 0."
    if report.rejectable:
        text += " Returned nothing where nothing is relevant: "
        text += f"{report.rejected} of {report.rejectable}."
    return text


def _tags(report: Report) -> Table:
    """The recall of the queries with each tag; the tags in the order of `Report.by_tag`.

    Where there are many tags, those with the lowest recall at the largest cutoff.
    """
    by_tag = report.by_tag()
    names = [cutoff_name(k) for k in report.cutoffs]

    def badness(tag: str) -> tuple[bool, float]:
        mean = by_tag[tag][names[-1]].mean
        return mean is not None, mean or 0.0

    title = "Recall by tag"
    shown = list(by_tag)
    if len(shown) > _TAGS:
        title += f": the lowest {_TAGS} of {len(shown)} tags"
        shown = sorted(shown, key=badness)[:_TAGS]
    columns = [Column("tag"), *[Column(name, align="right") for name in names]]
    columns += [Column(name, align="right") for name in ("queries", "scored", "errors")]
    rows = []
    for tag in shown:
        one = by_tag[tag][names[0]]
        means = [share(by_tag[tag][name].mean) for name in names]
        counts = [str(one.total), str(one.scored), str(one.errored)]
        rows.append((_cut(tag, _TAG_CHARACTERS), *means, *counts))
    return Table(title, tuple(columns), tuple(rows))


def _misses(report: Report, worst: tuple[QueryScore, ...]) -> Table:
    name = cutoff_name(report.cutoffs[-1])
    bad = len(report.worst(len(report.queries)))
    queries = count(bad, "query", "queries")
    title = f"Worst {len(worst)} of {queries} that missed something or failed"
    rows = tuple(
        (_cut(query.query_id, 24), _score(query, name), _cut(query.text), _missed(query))
        for query in worst
    )
    columns = (
        Column("query"),
        Column(name, align="right"),
        Column("text", wrap=True),
        Column("missed", wrap=True),
    )
    return Table(title, columns, rows)


def _score(query: QueryScore, name: str) -> str:
    return share(query.recall[name]) if query.status == "scored" else query.status


def _missed(query: QueryScore) -> str:
    if query.status != "scored":
        return _cut(query.error or query.reason, _ERROR_CHARACTERS)
    parts = []
    near_misses = NearMisses(query.retrieved)
    for label in query.missing[:_MISSING_SHOWN]:
        rank = query.ranks[label]
        near = near_misses.find(label) if rank is None else None
        where = f" (rank {rank})" if rank is not None else ""
        parts.append(_cut(label) + (f" (rank {near[0]} is {near[1]})" if near else where))
    if len(query.missing) > _MISSING_SHOWN:
        parts.append(f"… and {len(query.missing) - _MISSING_SHOWN} more")
    return " ¦ ".join(parts)


def _cut(text: str, limit: int = _TEXT_CHARACTERS) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
