"""Labelled sets and runs as files."""

from chunkrecall.formats.files import check_target, load_dataset, load_run, save_dataset, save_run

__all__ = ["check_target", "load_dataset", "load_run", "save_dataset", "save_run"]
