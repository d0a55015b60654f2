"""Unlabelled candidates as a draft of labels, for a person to accept or reject."""

from __future__ import annotations

from chunkrecall.diagnosis.result import Diagnosis
from chunkrecall.labels import Draft, draft_from
from chunkrecall.records import DatasetInput
from chunkrecall.report import Report


def candidate_draft(
    diagnosis: Diagnosis,
    report: Report,
    dataset: DatasetInput | None = None,
    *,
    depth: int | None = None,
) -> Draft:
    """The returned chunks that nobody has judged, of the queries that missed something.

    `draft.save(path)` writes it, `chunkrecall label` walks through it. The labels that there are
    stay in it, so that `draft.to_dataset()` is the whole set with what was accepted.

    Args:
        diagnosis: Of `report`.
        report: With its texts.
        dataset: The labelled set, where the report has lost it.
        depth: How many chunks a query; the cutoff of the diagnosis by default.
    """
    known = dataset if dataset is not None else report.fingerprint_of
    if isinstance(known, str):
        known = None
    wanted = {miss.query_id for miss in diagnosis.misses}
    draft = draft_from(report, known, depth=depth or diagnosis.k or 10)
    kept = [query for query in draft.queries if query.query_id in wanted]
    return Draft(kept, pooled_from=draft.pooled_from)
