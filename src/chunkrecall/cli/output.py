"""Standard output is exactly one document, whatever else the process does."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress

_STDOUT, _STDERR = 1, 2


def write_document(text: str) -> None:
    """Write the document, and nothing where its reader has gone away (`| head`).

    What the command found out stands all the same, so the exit code stays what it is.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # What is left in the buffer is flushed at exit, and must have somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def stdout_kept() -> Iterator[None]:
    """Send what the code inside writes to standard output to standard error.

    That goes for child processes and C libraries too, which know only the file descriptor.
    """
    with redirect_stdout(sys.stderr):
        try:
            kept = os.dup(_STDOUT)
        except OSError:  # closed
            yield
            return
        try:
            with suppress(OSError):  # no standard error either
                os.dup2(_STDERR, _STDOUT)
            yield
        finally:
            _flush_c()
            os.dup2(kept, _STDOUT)
            os.close(kept)


def _flush_c() -> None:
    """Have C libraries write now what they would write at exit, into the document."""
    if os.name == "posix":
        import ctypes

        ctypes.CDLL(None).fflush(None)
