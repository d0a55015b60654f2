"""Scores the retrievals of a live LlamaIndex pipeline, by its spans."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from inspect import BoundArguments
from typing import TYPE_CHECKING, Any

from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.response.schema import Response
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.instrumentation.dispatcher import (  # type: ignore[attr-defined]  # public all the same
    active_instrument_tags,
    instrument_tags,
)
from llama_index.core.instrumentation.span import BaseSpan
from llama_index.core.instrumentation.span_handlers import BaseSpanHandler
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.response_synthesizers import BaseSynthesizer

from chunkrecall.llama_index.muting import attached
from chunkrecall.llama_index.watching import QUERY_ID_TAG, Watch
from chunkrecall.recording import LostLabel, Recorder
from chunkrecall.recording.scope import is_named_by_block
from chunkrecall.retrieval import Attempt

if TYPE_CHECKING:
    from chunkrecall.llama_index.nodes import TextFrom
    from chunkrecall.metric import Cutoffs
    from chunkrecall.records import DatasetInput
    from chunkrecall.report import Report

_RECORDER_TAG = "chunkrecall.recorder"
_UUID = 37
"""Characters behind the method's name in a span's id: a hyphen and a UUID."""
# Class and method of the calls that matter. Not `_retrieve`, which not every class has as a span.
_RETRIEVALS, _STEPS = BaseRetriever, BaseNodePostprocessor
_ANSWERS, _SYNTHESES = BaseQueryEngine, BaseSynthesizer
_KINDS: dict[str, type] = {
    "retrieve": _RETRIEVALS,
    "aretrieve": _RETRIEVALS,
    "_postprocess_nodes": _STEPS,
    "_apostprocess_nodes": _STEPS,
    "query": _ANSWERS,
    "aquery": _ANSWERS,
    "_aquery": _ANSWERS,  # the parent of what an engine awaits
    "synthesize": _SYNTHESES,
    "asynthesize": _SYNTHESES,
}

_ACTIVE: ContextVar[tuple[RecallSpanHandler, ...]] = ContextVar(
    "chunkrecall_span_handlers", default=()
)


class RecallSpanHandler(BaseSpanHandler[BaseSpan]):
    """A span handler that scores every outermost retrieval of a labelled query.

    `record_recall` attaches it and takes it away. It never changes what the pipeline returns or
    raises, and sees only what runs in the context of its block, in threads too that copy it.

    Which labelled query a retrieval belongs to is said by `with handler.query("q1"):` or by an
    instrument tag `chunkrecall.query_id`; else the retriever's query text is looked up in the
    dataset. A retrieval of no labelled query is counted as unlabelled.
    """

    _watch: Watch = PrivateAttr()
    _steps: dict[str, tuple[object, object]] = PrivateAttr(default_factory=dict)
    _engines: dict[str, object] = PrivateAttr(default_factory=dict)

    def __init__(self, recorder: Recorder, text_from: TextFrom = None) -> None:
        super().__init__()
        self._watch = Watch(recorder, text_from)

    # The dispatcher compares handlers by their fields where a list is searched for one.
    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    @classmethod
    def class_name(cls) -> str:
        """The component's name in LlamaIndex."""
        return "RecallSpanHandler"

    @property
    def recorder(self) -> Recorder:
        """What collects the retrievals; see `chunkrecall.recording.Recorder`."""
        return self._watch.recorder

    @contextmanager
    def query(self, query_id: str) -> Iterator[None]:
        """Says which labelled query the code inside works on; see `Recorder.query`.

        Holds in a thread that copied no context too, where the block is entered in the thread.
        """
        token = _ACTIVE.set(_with(self))
        try:
            with self.recorder.query(query_id), _merged_tags({QUERY_ID_TAG: query_id}):
                yield
        finally:
            _ACTIVE.reset(token)

    def report(self) -> Report:
        """The scores so far; see `Recorder.report`."""
        return self.recorder.report()

    @property
    def stages(self) -> dict[str, Report]:
        """A report for each inner retriever and later step; see `Recorder.stages`."""
        return self.recorder.stages

    @property
    def lost(self) -> tuple[LostLabel, ...]:
        """The labels that a stage lost; see `Recorder.lost`."""
        return self.recorder.lost

    def story(self, query_id: str) -> str:
        """What each stage of the query's last retrieval found; see `Recorder.story`."""
        return self.recorder.story(query_id)

    def span_enter(
        self,
        id_: str,
        bound_args: BoundArguments,
        instance: Any | None = None,
        parent_id: str | None = None,
        tags: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A method was called."""
        kind = _kind(id_, instance)
        if kind is None:
            return
        with Attempt() as attempt:
            if self not in _ACTIVE.get():
                if kind is _RETRIEVALS:
                    self.recorder.count(elsewhere=1)
            elif kind is _RETRIEVALS:
                self._watch.start(
                    id_,
                    name=type(instance).__name__,
                    query=_argument(bound_args, 0),
                    query_id=_tagged(tags),
                )
            elif kind is _STEPS:
                # The list as it is now: a postprocessor may empty it in place.
                nodes, query = _argument(bound_args, 0), _argument(bound_args, 1)
                copied = list(nodes) if isinstance(nodes, list) else nodes
                unseen = self._unseen(parent_id, instance)
                self._watch.given(type(instance).__name__, unseen, copied, query)
                self._steps[id_] = (copied, query)
            elif kind is _SYNTHESES:
                self._watch.given(
                    type(instance).__name__,
                    self._unseen(parent_id, instance),
                    bound_args.arguments.get("nodes"),
                    bound_args.arguments.get("query"),
                )
            else:
                self._engines[id_] = instance
        self._keep_fault(attempt)

    def span_exit(
        self,
        id_: str,
        bound_args: BoundArguments,
        instance: Any | None = None,
        result: Any | None = None,
        **kwargs: Any,
    ) -> None:
        """A method returned."""
        kind = _kind(id_, instance)
        if kind is None:
            return
        with Attempt() as attempt:
            if kind is _RETRIEVALS:
                # What a RecursiveRetriever makes of a query engine's answer.
                template = getattr(instance, "_query_response_tmpl", None)
                self._watch.end(id_, result, answers_as=template)
            elif kind is _STEPS and id_ in self._steps:
                before, query = self._steps.pop(id_)
                self._watch.step(type(instance).__name__, before, result, query)
            elif kind is _ANSWERS:
                self._engines.pop(id_, None)
                if isinstance(result, Response):
                    self._watch.wrote(str(result))
        if attempt.error is not None and not (
            kind is _RETRIEVALS and self._watch.fail(id_, attempt.error)
        ):
            self._keep_fault(attempt)

    def span_drop(
        self,
        id_: str,
        bound_args: BoundArguments,
        instance: Any | None = None,
        err: BaseException | None = None,
        **kwargs: Any,
    ) -> None:
        """A method raised, or was cancelled."""
        kind = _kind(id_, instance)
        with Attempt() as attempt:
            if kind is _RETRIEVALS:
                self._watch.fail(id_, err or RuntimeError("the span was dropped"))
            else:
                self._steps.pop(id_, None)
                self._engines.pop(id_, None)
        self._keep_fault(attempt)

    def new_span(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: no span is kept."""

    def prepare_to_exit_span(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: no span is kept."""

    def prepare_to_drop_span(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: no span is kept."""

    def _unseen(self, parent_id: str | None, instance: object) -> str | None:
        """The classes of the postprocessors without a span that ran just before this component."""
        engine = self._engines.get(parent_id or "")
        names: list[str] = []
        for one in getattr(engine, "_node_postprocessors", None) or ():
            if one is instance:
                break
            method = getattr(type(one), "_apostprocess_nodes", None)
            is_native = method not in (None, BaseNodePostprocessor._apostprocess_nodes)  # noqa: SLF001
            names = [*names, type(one).__name__] if is_native else []
        return " + ".join(names) or None

    def _keep_fault(self, attempt: Attempt) -> None:
        if attempt.error is not None:
            self.recorder.keep_fault(attempt.error)


@contextmanager
def record_recall(
    dataset: DatasetInput, k: Cutoffs = 5, *, text_from: TextFrom = None, **options: Any
) -> Iterator[RecallSpanHandler]:
    """Scores what LlamaIndex retrieves inside the block.

    Works through query engines, chat engines, agents, workflows and asyncio tasks. A bare thread
    copies no context: enter `with recorder.query("…"):` in it, or run it in a copied context.
    Blocks may be nested; each has its own report.

    Args:
        dataset: The labelled queries.
        k: One cutoff or several.
        text_from: A metadata key, or a function of the node, that gives the chunk's text where the
            content does not hold it, such as "original_text" of a sentence window.
        options: Those of `chunkrecall.recording.Recorder`: `matcher`, `relevance_level`, `dedupe`,
            `no_relevant`, `name`, `log`, `on_score`, `raise_faults`.

    Raises:
        Exception: On leaving the block, the first fault of the recorder itself, if
            `raise_faults=True`.
    """
    handler = RecallSpanHandler(Recorder(dataset, k, **options), text_from)
    with attached(handler):
        token = _ACTIVE.set(_with(handler))
        try:
            with _merged_tags({_RECORDER_TAG: handler.recorder.name}):
                yield handler
        finally:
            _ACTIVE.reset(token)
    handler.recorder.raise_fault()


def _with(handler: RecallSpanHandler) -> tuple[RecallSpanHandler, ...]:
    known = _ACTIVE.get()
    return known if handler in known else (*known, handler)


def _tagged(tags: dict[str, Any] | None) -> object:
    """The labelled query that the user's own tag names.

    The tag that a block sets speaks for the block's recorder, and tells others nothing.
    """
    query_id = tags.get(QUERY_ID_TAG) if tags else None
    return None if query_id is None or is_named_by_block(query_id) else query_id


def _merged_tags(tags: dict[str, Any]) -> AbstractContextManager[None]:
    """Instrument tags that keep those around them, which `instrument_tags` alone replaces."""
    return instrument_tags({**active_instrument_tags.get(), **tags})


def _kind(id_: str, instance: object) -> type | None:
    """Which of the calls that matter a span is, by its class and by its id `Class.method-uuid`."""
    kind = _KINDS.get(id_[len(type(instance).__name__) + 1 : -_UUID])
    return kind if kind is not None and isinstance(instance, kind) else None


def _argument(bound_args: BoundArguments, index: int) -> object:
    """An argument by position: subclasses name them as they like."""
    values = list(bound_args.arguments.values())
    return values[index] if index < len(values) else None
