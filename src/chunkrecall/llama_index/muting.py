"""Which handlers LlamaIndex's dispatchers tell, and a context in which they tell nobody anything.

The dispatchers know no such switch, and their handlers are global: tracers attached by an
application would export every retrieval of an evaluation. While at least one context is quiet,
each handler stands behind a gate that looks at a context variable, so that other threads and
tasks of the application are traced as before. All changes of ours to the lists of handlers are
made here, under one lock: a list that two threads replace at a time would lose a handler.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import RLock
from typing import Any

from llama_index.core import instrumentation
from llama_index.core.instrumentation.span_handlers import NullSpanHandler

_ROOT: Any = instrumentation.root_dispatcher  # type: ignore[attr-defined]  # public all the same
_QUIET: ContextVar[bool] = ContextVar("chunkrecall_llama_index_quiet", default=False)


class _Gate:
    """One handler, silent where the context is quiet."""

    def __init__(self, handler: Any) -> None:
        self.handler = handler

    def handle(self, event: object, **kwargs: object) -> None:
        if not _QUIET.get():
            self.handler.handle(event, **kwargs)

    async def ahandle(self, event: object, **kwargs: object) -> None:
        if not _QUIET.get():
            await self.handler.ahandle(event, **kwargs)

    def span_enter(self, **kwargs: object) -> None:
        if not _QUIET.get():
            self.handler.span_enter(**kwargs)

    def span_exit(self, **kwargs: object) -> None:
        if not _QUIET.get():
            self.handler.span_exit(**kwargs)

    def span_drop(self, **kwargs: object) -> None:
        if not _QUIET.get():
            self.handler.span_drop(**kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.handler, name)


class _Gates:
    """Puts the gates up with the first quiet context and takes them down with the last.

    Lists are replaced, never changed: another thread may be walking through the old one.
    """

    def __init__(self) -> None:
        # Of many entries: a garbage collection inside may end a block that nobody left.
        self._lock = RLock()
        self._contexts = 0

    def up(self) -> None:
        with self._lock:
            self._contexts += 1
            for dispatcher in _dispatchers():
                for field in ("event_handlers", "span_handlers"):
                    handlers = getattr(dispatcher, field)
                    if any(_is_open(handler) for handler in handlers):
                        gated = [_Gate(h) if _is_open(h) else h for h in handlers]
                        setattr(dispatcher, field, gated)

    def down(self) -> None:
        with self._lock:
            self._contexts -= 1
            if self._contexts:
                return
            for dispatcher in _dispatchers():
                for field in ("event_handlers", "span_handlers"):
                    handlers = getattr(dispatcher, field)
                    if any(isinstance(handler, _Gate) for handler in handlers):
                        setattr(dispatcher, field, [_bare(handler) for handler in handlers])

    def attach(self, handler: Any) -> None:
        with self._lock:
            gated = _Gate(handler) if self._contexts else handler
            _ROOT.span_handlers = [*_ROOT.span_handlers, gated]

    def detach(self, handler: Any) -> None:
        with self._lock:
            # By identity: the dispatcher's handlers are equal where their fields are.
            _ROOT.span_handlers = [h for h in _ROOT.span_handlers if _bare(h) is not handler]


_GATES = _Gates()


@contextmanager
def attached(handler: object) -> Iterator[None]:
    """Within it the root dispatcher tells this span handler of every span."""
    _GATES.attach(handler)
    try:
        yield
    finally:
        _GATES.detach(handler)


@contextmanager
def muted() -> Iterator[None]:
    """Within it, in this context and its copies, no handler is told of spans or events."""
    _GATES.up()
    token = _QUIET.set(True)
    try:
        yield
    finally:
        _QUIET.reset(token)
        _GATES.down()


def _dispatchers() -> list[Any]:
    # Of the manager: the root knows none, and a handler may be attached to any module's dispatcher.
    return list(instrumentation.root_manager.dispatchers.values())  # type: ignore[attr-defined]  # public all the same


def _is_open(handler: object) -> bool:
    return not isinstance(handler, (_Gate, NullSpanHandler))


def _bare(handler: Any) -> Any:
    return handler.handler if isinstance(handler, _Gate) else handler
