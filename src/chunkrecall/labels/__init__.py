"""Labelled sets looked at before anything is retrieved, and how to get labels at all."""

from chunkrecall.labels.check import DatasetCheck, Finding, check_dataset
from chunkrecall.labels.draft import Draft, DraftQuery, draft_from, read_draft, write_draft
from chunkrecall.labels.relabel import Overlap, Relabelling, Unresolved, relabel

__all__ = [
    "DatasetCheck",
    "Draft",
    "DraftQuery",
    "Finding",
    "Overlap",
    "Relabelling",
    "Unresolved",
    "check_dataset",
    "draft_from",
    "read_draft",
    "relabel",
    "write_draft",
]
