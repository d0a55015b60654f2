"""The records that flow through the library: labelled queries in, ranked chunks out."""

from chunkrecall.records.chunks import NO_METADATA, Chunk, Chunks, Ranking, Run
from chunkrecall.records.dataset import (
    RELABELLED_BY,
    UNRESOLVED,
    Dataset,
    DatasetInput,
    as_dataset,
)
from chunkrecall.records.labels import Label, LabelInput, Query
from chunkrecall.records.spans import DOCUMENT_KEYS, Span

__all__ = [
    "DOCUMENT_KEYS",
    "NO_METADATA",
    "RELABELLED_BY",
    "UNRESOLVED",
    "Chunk",
    "Chunks",
    "Dataset",
    "DatasetInput",
    "Label",
    "LabelInput",
    "Query",
    "Ranking",
    "Run",
    "Span",
    "as_dataset",
]
