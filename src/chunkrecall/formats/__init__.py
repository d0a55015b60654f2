"""Labelled sets and runs as files."""

from chunkrecall.formats.files import (
    FORMATS,
    Format,
    check_target,
    load_corpus,
    load_dataset,
    load_run,
    save_dataset,
    save_run,
)
from chunkrecall.formats.llama_index import dataset_from_llama_index
from chunkrecall.formats.tables import json_rows

__all__ = [
    "FORMATS",
    "Format",
    "check_target",
    "dataset_from_llama_index",
    "json_rows",
    "load_corpus",
    "load_dataset",
    "load_run",
    "save_dataset",
    "save_run",
]
