"""Scores retrievals through LlamaIndex's older `CallbackManager`."""

from __future__ import annotations

from contextlib import AbstractContextManager
from sys import exc_info
from typing import TYPE_CHECKING, Any

from llama_index.core.callbacks.base_handler import BaseCallbackHandler
from llama_index.core.callbacks.schema import CBEventType, EventPayload
from llama_index.core.instrumentation.span import active_span_id

from chunkrecall.llama_index.spans import RecallSpanHandler
from chunkrecall.llama_index.watching import Watch
from chunkrecall.recording import LostLabel, Recorder
from chunkrecall.retrieval import Attempt

if TYPE_CHECKING:
    from chunkrecall.llama_index.nodes import TextFrom
    from chunkrecall.metric import Cutoffs
    from chunkrecall.records import DatasetInput
    from chunkrecall.report import Report

_MOST_OPEN = 1_000


class RecallCallbackHandler(BaseCallbackHandler):
    """A callback handler that scores every outermost retrieval of a labelled query.

    For pipelines built around a `CallbackManager`; `record_recall` sees more: every postprocessor,
    and retrievers that were built before the handler. Events are told to the handlers of a
    retriever's own `callback_manager`, so set it before the retriever is made.

    Args:
        dataset: The labelled queries; or the recorder that `record_recall` gave, to share its
            report: a retrieval that both are told of counts once.
        k: One cutoff or several.
        text_from: As in `record_recall`.
        options: Those of `chunkrecall.recording.Recorder`.
    """

    def __init__(
        self,
        dataset: DatasetInput | RecallSpanHandler,
        k: Cutoffs = 5,
        *,
        text_from: TextFrom = None,
        **options: Any,
    ) -> None:
        super().__init__(event_starts_to_ignore=[], event_ends_to_ignore=[])
        if isinstance(dataset, RecallSpanHandler):
            if options:
                raise TypeError(f"the shared recorder has its options already; got {options}")
            self._watch = dataset._watch  # noqa: SLF001 - one watch, so that nesting is seen
        else:
            self._watch = Watch(Recorder(dataset, k, **options), text_from)
        self._keys: dict[str, str] = {}
        self._steps: dict[str, tuple[str, object, object]] = {}

    @property
    def recorder(self) -> Recorder:
        """What collects the retrievals; see `chunkrecall.recording.Recorder`."""
        return self._watch.recorder

    def query(self, query_id: str) -> AbstractContextManager[None]:
        """Says which labelled query the code inside works on; see `Recorder.query`."""
        return self.recorder.query(query_id)

    def report(self) -> Report:
        """The scores so far; see `Recorder.report`."""
        return self.recorder.report()

    @property
    def stages(self) -> dict[str, Report]:
        """A report for each inner retriever and reranker; see `Recorder.stages`."""
        return self.recorder.stages

    @property
    def lost(self) -> tuple[LostLabel, ...]:
        """The labels that a stage lost; see `Recorder.lost`."""
        return self.recorder.lost

    def story(self, query_id: str) -> str:
        """What each stage of the query's last retrieval found; see `Recorder.story`."""
        return self.recorder.story(query_id)

    def on_event_start(
        self,
        event_type: CBEventType,
        payload: dict[str, Any] | None = None,
        event_id: str = "",
        parent_id: str = "",
        **kwargs: Any,
    ) -> str:
        """Something was called; what raises here would reach the user's query."""
        with Attempt() as attempt:
            if event_type is CBEventType.RETRIEVE:
                self._start(event_id, payload or {})
            elif event_type is CBEventType.RERANKING:
                given = payload or {}
                span = active_span_id.get() or "Reranker."
                nodes = given.get(EventPayload.NODES)
                before = list(nodes) if isinstance(nodes, list) else nodes
                query = given.get(EventPayload.QUERY_STR)
                self._steps[event_id] = (span.partition(".")[0], before, query)
        self._keep_fault(attempt)
        return event_id

    def on_event_end(
        self,
        event_type: CBEventType,
        payload: dict[str, Any] | None = None,
        event_id: str = "",
        **kwargs: Any,
    ) -> None:
        """Something returned or raised."""
        key = None
        with Attempt() as attempt:
            given = payload or {}
            if event_type is CBEventType.RETRIEVE:
                key = self._keys.pop(event_id, None)
                if key is not None:
                    self._end(key, given)
            elif event_type is CBEventType.RERANKING and event_id in self._steps:
                name, before, query = self._steps.pop(event_id)
                if EventPayload.NODES in given:
                    self._watch.step(name, before, given[EventPayload.NODES], query)
        if attempt.error is not None and not (
            key is not None and self._watch.fail(key, attempt.error)
        ):
            self._keep_fault(attempt)

    def start_trace(self, trace_id: str | None = None) -> None:
        """Nothing: a retrieval is a unit of its own."""

    def end_trace(
        self, trace_id: str | None = None, trace_map: dict[str, list[str]] | None = None
    ) -> None:
        """Nothing."""

    def _start(self, event_id: str, payload: dict[str, Any]) -> None:
        span = active_span_id.get()
        name, _, method = (span or "").partition(".")
        if span is not None and method.startswith(("_retrieve-", "_aretrieve-")):
            return  # a router tells of its choice by a second event inside the first
        if not (span is not None and method.startswith(("retrieve-", "aretrieve-"))):
            span, name = event_id, "Retriever"
        self._keys[event_id] = span
        while len(self._keys) > _MOST_OPEN:
            del self._keys[next(iter(self._keys))]
        self._watch.start(span, name=name, query=payload.get(EventPayload.QUERY_STR))

    def _end(self, key: str, payload: dict[str, Any]) -> None:
        if EventPayload.NODES in payload:
            self._watch.end(key, payload[EventPayload.NODES])
        else:
            # The exception is told with the innermost event that it passes, and with no other; one
            # that is no Exception, such as a cancellation, with none. It is being handled here.
            lost = RuntimeError("the retrieval ended without nodes: something inside it raised")
            self._watch.fail(key, payload.get(EventPayload.EXCEPTION) or exc_info()[1] or lost)

    def _keep_fault(self, attempt: Attempt) -> None:
        if attempt.error is not None:
            self.recorder.keep_fault(attempt.error)
