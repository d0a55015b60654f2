"""A context in which LlamaIndex's dispatchers tell nobody anything.

The dispatchers know no such switch, and their handlers are global: tracers attached by an
application would export every retrieval of an evaluation. While at least one context is quiet,
each handler stands behind a gate that looks at a context variable, so that other threads and
tasks of the application are traced as before.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import Any

from llama_index.core import instrumentation
from llama_index.core.instrumentation.span_handlers import NullSpanHandler

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
    """Puts the gates up with the first quiet context and takes them down with the last."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._contexts = 0

    def up(self) -> None:
        with self._lock:
            self._contexts += 1
            for dispatcher in _dispatchers():
                for field in ("event_handlers", "span_handlers"):
                    handlers = getattr(dispatcher, field)
                    if any(_is_open(handler) for handler in handlers):
                        # A new list: another thread may be walking through the old one.
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
                        bare = [h.handler if isinstance(h, _Gate) else h for h in handlers]
                        setattr(dispatcher, field, bare)


_GATES = _Gates()


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
    root = instrumentation.get_dispatcher("root")  # type: ignore[attr-defined]  # public all the same
    return [root] if root.manager is None else list(root.manager.dispatchers.values())


def _is_open(handler: object) -> bool:
    return not isinstance(handler, (_Gate, NullSpanHandler))
