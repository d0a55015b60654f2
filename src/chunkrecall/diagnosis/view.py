"""The diagnosis as tables, before anything is escaped or drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chunkrecall.diagnosis.causes import CAUSES
from chunkrecall.metric import cutoff_name
from chunkrecall.render import Column, Document, Paragraph, Table, count, percent, share

if TYPE_CHECKING:
    from chunkrecall.diagnosis.result import Diagnosis

_MOST_MISSES = 20
_MOST_REMEDIES = 12
_MOST_CANDIDATES = 5
_TEXT_CHARACTERS = 80


def diagnosis_document(diagnosis: Diagnosis) -> Document:
    """The headline first, then causes, remedies, notes and the misses one by one."""
    blocks: list[Table | Paragraph] = [
        Paragraph(_heading(diagnosis)),
        Paragraph(diagnosis.headline),
    ]
    if diagnosis.misses:
        blocks.append(_causes(diagnosis))
    if any(one.recovers for one in diagnosis.remedies):
        blocks.append(_remedies(diagnosis))
    blocks.extend(Paragraph(f"Note: {note}") for note in diagnosis.notes)
    if diagnosis.unwinnable:
        listed = ", ".join(_cut(one, 24) for one in diagnosis.unwinnable[:10])
        rest = len(diagnosis.unwinnable) - 10
        more = f" and {rest} more" if rest > 0 else ""
        blocks.append(Paragraph(f"Unwinnable as labelled, over this corpus: {listed}{more}"))
    if diagnosis.misses:
        blocks.append(_misses(diagnosis))
    if diagnosis.candidates:
        blocks.append(_candidates(diagnosis))
    return Document(tuple(blocks))


def _heading(diagnosis: Diagnosis) -> str:
    misses = count(len(diagnosis.misses), "miss", "misses")
    name = cutoff_name(diagnosis.k)
    mean = f"{name} {share(diagnosis.recall)}" if diagnosis.recall is not None else f"no {name}"
    labels = count(diagnosis.labels, "label", "labels")
    queries = count(diagnosis.queries, "query", "queries")
    return f"Why {diagnosis.name} missed: {misses} of {labels} in {queries}, {mean}"


def _causes(diagnosis: Diagnosis) -> Table:
    rows = []
    for cause, number in diagnosis.counts.items():
        facts = sum(one.certainty == "fact" for one in diagnosis.misses if one.cause == cause)
        rows.append((cause, str(number), str(facts), CAUSES[cause]))
    columns = (
        Column("cause"),
        Column("misses", align="right"),
        Column("as fact", align="right"),
        Column("meaning", wrap=True),
    )
    return Table(None, columns, tuple(rows))


def _remedies(diagnosis: Diagnosis) -> Table:
    rows = tuple(
        (one.action, f"{cutoff_name(one.k)} {share(one.recall)}", f"{one.recovers}")
        for one in [one for one in diagnosis.remedies if one.recovers][:_MOST_REMEDIES]
    )
    columns = (
        Column("remedy", wrap=True),
        Column("would bring", align="right"),
        Column("misses recovered", align="right"),
    )
    return Table("Remedies, measured on these queries", columns, rows)


def _misses(diagnosis: Diagnosis) -> Table:
    shown = diagnosis.misses[:_MOST_MISSES]
    title = f"{len(shown)} of {count(len(diagnosis.misses), 'miss', 'misses')}"
    rows = tuple(
        (
            _cut(one.query_id, 24),
            _cut(one.label),
            one.cause + ("" if one.certainty == "fact" or one.cause == "unknown" else "?"),
            one.evidence
            + (f" (also {', '.join(one.secondary)})" if one.secondary else "")
            + f" → {one.remedy}",
        )
        for one in shown
    )
    columns = (
        Column("query"),
        Column("label", wrap=True),
        Column("cause"),
        Column("evidence → remedy", wrap=True),
    )
    return Table(title, columns, rows)


def _candidates(diagnosis: Diagnosis) -> Table:
    shown = diagnosis.candidates[:_MOST_CANDIDATES]
    rows = tuple(
        (_cut(one.query_id, 24), str(one.rank), _cut(one.text), percent(one.similarity))
        for one in shown
    )
    columns = (
        Column("query"),
        Column("rank", align="right"),
        Column("returned, without a label", wrap=True),
        Column("alike", align="right"),
    )
    number = len(diagnosis.candidates)
    return Table(f"Possible alternate labels, {len(shown)} of {number}", columns, rows)


def _cut(text: str, limit: int = _TEXT_CHARACTERS) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
