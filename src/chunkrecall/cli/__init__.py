"""The `chunkrecall` command."""

from chunkrecall.cli.main import main

__all__ = ["main"]
