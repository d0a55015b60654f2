"""Exit codes, and the exceptions that carry them out of a command."""

from __future__ import annotations

GATE_MISSED = 1
BAD_INPUT = 2
CANNOT_LOAD = 3
NOT_MEASURED = 4
INTERRUPTED = 130


class Exit(Exception):  # noqa: N818 - an early way out, not an error
    """End with this code; everything has been said."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Failure(Exception):  # noqa: N818 - named for what the command did
    """Say the message and end with the code of bad input."""

    code = BAD_INPUT


class CannotLoadError(Exception):
    """The retriever named on the command line could not be loaded."""
