"""Labelled sets and runs as files."""

from chunkrecall.formats.files import load_dataset, load_run, save_dataset, save_run

__all__ = ["load_dataset", "load_run", "save_dataset", "save_run"]
