"""Which labelled query the running code works on, as the caller said."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chunkrecall.recording.recorder import Recorder


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """One block that names a labelled query, and the block around it."""

    query_id: str
    recorder: Recorder
    around: Scope | None


_SCOPE: ContextVar[Scope | None] = ContextVar("chunkrecall_scope", default=None)


@contextmanager
def scope(query_id: str, recorder: Recorder) -> Iterator[None]:
    """Names the query for the code inside, in this context and its copies."""
    token = _SCOPE.set(Scope(query_id, recorder, _SCOPE.get()))
    try:
        yield
    finally:
        _SCOPE.reset(token)


def is_named_by_block(query_id: object) -> bool:
    """Whether a block around, of any recorder, names this query."""
    scope = _SCOPE.get()
    while scope is not None and scope.query_id != query_id:
        scope = scope.around
    return scope is not None


def scope_of(recorder: Recorder) -> Scope | None:
    """The innermost block of this recorder, else the innermost one over an equal dataset."""
    innermost = _SCOPE.get()
    if innermost is None or innermost.recorder is recorder:
        return innermost
    scopes = [innermost]
    while (around := scopes[-1].around) is not None:
        scopes.append(around)
    own = (one for one in scopes if one.recorder is recorder)
    mine = recorder.dataset.fingerprint
    alike = (one for one in scopes if one.recorder.dataset.fingerprint == mine)
    return next(own, None) or next(alike, None)
