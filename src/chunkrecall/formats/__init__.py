"""Labelled sets and runs as files."""

from chunkrecall.formats.files import (
    FORMATS,
    Format,
    check_target,
    load_dataset,
    load_run,
    save_dataset,
    save_run,
)
from chunkrecall.formats.llama_index import dataset_from_llama_index

__all__ = [
    "FORMATS",
    "Format",
    "check_target",
    "dataset_from_llama_index",
    "load_dataset",
    "load_run",
    "save_dataset",
    "save_run",
]
