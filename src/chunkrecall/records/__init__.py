"""The records that flow through the library: labelled queries in, ranked chunks out."""

from chunkrecall.records.chunks import NO_METADATA, Chunk, Chunks, Ranking, Run
from chunkrecall.records.dataset import Dataset, DatasetInput, as_dataset
from chunkrecall.records.labels import Label, LabelInput, Query

__all__ = [
    "NO_METADATA",
    "Chunk",
    "Chunks",
    "Dataset",
    "DatasetInput",
    "Label",
    "LabelInput",
    "Query",
    "Ranking",
    "Run",
    "as_dataset",
]
