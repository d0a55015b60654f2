"""Scores the retrievals of a LangChain chain, agent or graph while it runs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.tracers.context import register_configure_hook

from chunkrecall.adapters import CONTAINER_KEYS, to_chunks
from chunkrecall.langchain.documents import chunks_of_documents
from chunkrecall.recording import Call, LostLabel, Recorder
from chunkrecall.retrieval import Attempt

if TYPE_CHECKING:
    from chunkrecall.metric import Cutoffs
    from chunkrecall.records import Chunks, DatasetInput
    from chunkrecall.report import Report

QUERY_ID_KEY = "chunkrecall_query_id"
"""The key of a config's metadata that names the labelled query."""

_MOST_RUNS = 5_000
_DEEPEST = 16

_Enclosing = tuple[tuple[Recorder, Call], ...]
# The open retrievals around the code that runs. Parent run ids do not tell: a wrapper that passes
# no callbacks on, or with_fallbacks (langchain#36072), hides them.
_ENCLOSING: ContextVar[_Enclosing] = ContextVar("chunkrecall_enclosing", default=())


@dataclass(slots=True)
class _Run:
    """A chain, tool or retriever run that is open."""

    parent: UUID | None
    root: UUID
    name: str = ""
    after: str | None = None
    """The labelled query whose retrieval had ended in the same root run when this one started."""
    call: Call | None = None


class RecallCallbackHandler(BaseCallbackHandler):
    """A callback handler that scores every outermost retrieval of a labelled query.

    Pass it as `config={"callbacks": [handler]}`, or use `record_recall`. It never changes what the
    pipeline returns or raises. One handler serves sync and async code and many threads.

    Which labelled query a retrieval belongs to is said by `with handler.query("q1"):` or by
    `config={"metadata": {"chunkrecall_query_id": "q1"}}`; else the retriever's query text is looked
    up in the dataset. A retrieval of no labelled query is counted as unlabelled.

    Args:
        dataset: The labelled queries.
        k: One cutoff or several.
        options: Those of `chunkrecall.recording.Recorder`: `matcher`, `relevance_level`, `dedupe`,
            `no_relevant`, `name`, `log`, `on_score`, `raise_faults`.
    """

    raise_error = False
    run_inline = True  # so that a context variable set at the start is seen by what runs inside

    def __init__(self, dataset: DatasetInput, k: Cutoffs = 5, **options: Any) -> None:
        super().__init__()
        self.recorder = Recorder(dataset, k, **options)
        self._lock = Lock()
        self._runs: OrderedDict[UUID, _Run] = OrderedDict()
        self._last_query: OrderedDict[UUID, str] = OrderedDict()
        self._last_documents: object = None
        self._outer: RecallCallbackHandler | None = None

    @property
    def ignore_llm(self) -> bool:
        """True: no retrieval happens inside a language model's run."""
        return True

    @property
    def ignore_chat_model(self) -> bool:
        """True, likewise."""
        return True

    def query(self, query_id: str) -> AbstractContextManager[None]:
        """Says which labelled query the code inside works on; see `Recorder.query`."""
        return self.recorder.query(query_id)

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

    def on_retriever_start(
        self,
        serialized: dict[str, Any] | None,
        query: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A retriever was called."""
        with Attempt() as attempt:
            self._start_retrieval(query, run_id, parent_run_id, metadata, kwargs.get("name"))
        self._keep_fault(attempt)
        if self._outer is not None:
            self._outer.on_retriever_start(
                serialized,
                query,
                run_id=run_id,
                parent_run_id=parent_run_id,
                tags=tags,
                metadata=metadata,
                **kwargs,
            )

    def on_retriever_end(
        self,
        documents: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """A retriever returned; texts are copied now, since the pipeline may edit its documents."""
        with Attempt() as attempt:
            self._end_retrieval(documents, run_id)
        self._keep_fault(attempt)
        if self._outer is not None:
            self._outer.on_retriever_end(
                documents, run_id=run_id, parent_run_id=parent_run_id, **kwargs
            )

    def on_retriever_error(
        self,
        error: BaseException,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """A retriever raised."""
        with Attempt() as attempt:
            self._close(run_id)
            self.recorder.fail(run_id, error)
        self._keep_fault(attempt)
        if self._outer is not None:
            self._outer.on_retriever_error(
                error, run_id=run_id, parent_run_id=parent_run_id, **kwargs
            )

    def on_chain_start(
        self,
        serialized: dict[str, Any],
        inputs: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """A chain, node or function was called."""
        self._open_run(run_id, parent_run_id, str(kwargs.get("name") or "step"))
        if self._outer is not None:
            self._outer.on_chain_start(
                serialized, inputs, run_id=run_id, parent_run_id=parent_run_id, **kwargs
            )

    def on_chain_end(
        self, outputs: Any, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        """A chain, node or function returned; if it came after a retrieval, it may be a stage."""
        with Attempt() as attempt:
            run = self._close(run_id)
            if run is not None and run.after is not None:
                self._record_step(run, outputs)
        self._keep_fault(attempt)
        if self._outer is not None:
            self._outer.on_chain_end(outputs, run_id=run_id, parent_run_id=parent_run_id, **kwargs)

    def on_chain_error(
        self,
        error: BaseException,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """A chain, node or function raised."""
        with Attempt() as attempt:
            self._close(run_id)
        self._keep_fault(attempt)
        if self._outer is not None:
            self._outer.on_chain_error(error, run_id=run_id, parent_run_id=parent_run_id, **kwargs)

    def on_tool_start(
        self,
        serialized: dict[str, Any],
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """A tool was called."""
        self._open_run(run_id, parent_run_id, str(kwargs.get("name") or "tool"))
        if self._outer is not None:
            self._outer.on_tool_start(
                serialized, input_str, run_id=run_id, parent_run_id=parent_run_id, **kwargs
            )

    def on_tool_end(
        self, output: Any, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        """A tool returned."""
        self._close(run_id)
        if self._outer is not None:
            self._outer.on_tool_end(output, run_id=run_id, parent_run_id=parent_run_id, **kwargs)

    def on_tool_error(
        self,
        error: BaseException,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """A tool raised."""
        self._close(run_id)
        if self._outer is not None:
            self._outer.on_tool_error(error, run_id=run_id, parent_run_id=parent_run_id, **kwargs)

    def _start_retrieval(
        self,
        query: object,
        run_id: UUID,
        parent_run_id: UUID | None,
        metadata: Mapping[str, Any] | None,
        name: object,
    ) -> None:
        around = tuple(
            [one for one in _ENCLOSING.get() if one[0] is self.recorder and one[1].is_open]
        )
        parent = self._enclosing_retrieval(parent_run_id)
        enclosing = parent if parent is not None else (around[-1][1] if around else None)
        query_id = metadata.get(QUERY_ID_KEY) if metadata else None
        call = self.recorder.start(
            run_id,
            name=str(name or "Retriever"),
            query_text=query,
            query_id=query_id if isinstance(query_id, str) else None,
            enclosing=enclosing,
            is_inner=parent is not None,
        )
        if call is not None:
            self._open_run(run_id, parent_run_id, call.name, call)
            others = tuple([one for one in _ENCLOSING.get() if one[0] is not self.recorder])
            # Cancelled retrievals may stay in it; no pipeline is nested as deep as this.
            _ENCLOSING.set((*others[-_DEEPEST:], *around[-_DEEPEST:], (self.recorder, call)))

    def _end_retrieval(self, documents: object, run_id: UUID) -> None:
        run = self._close(run_id)
        if isinstance(documents, (list, tuple)):
            query_id = self.recorder.end(run_id, _chunks(documents))
        else:
            kind = "None" if documents is None else f"a {type(documents).__name__}"
            self.recorder.fail(run_id, TypeError(f"the retriever returned {kind}, not a list"))
            query_id = None
        if run is not None:
            _ENCLOSING.set(tuple([one for one in _ENCLOSING.get() if one[1] is not run.call]))
            if query_id is not None:
                with self._lock:
                    self._last_documents = documents
                    self._last_query[run.root] = query_id
                    while len(self._last_query) > _MOST_RUNS:
                        self._last_query.popitem(last=False)

    def _record_step(self, run: _Run, outputs: object) -> None:
        if isinstance(outputs, Mapping):
            outputs = next((outputs[key] for key in CONTAINER_KEYS if key in outputs), None)
        if not isinstance(outputs, list) or outputs is self._last_documents or run.after is None:
            return  # a run around the step that was recorded returns the very same list
        chunks = chunks_of_documents(outputs)
        if chunks is not None:
            self._last_documents = outputs
            self.recorder.step(run.after, run.name, chunks)

    def _open_run(
        self, run_id: UUID, parent: UUID | None, name: str, call: Call | None = None
    ) -> None:
        with self._lock:
            above = None if parent is None else self._runs.get(parent)
            root = run_id if parent is None else parent if above is None else above.root
            after = None if call is not None else self._last_query.get(root)
            self._runs[run_id] = _Run(parent, root, name, after, call)
            while len(self._runs) > _MOST_RUNS:
                self._runs.popitem(last=False)

    def _close(self, run_id: UUID) -> _Run | None:
        with self._lock:
            run = self._runs.pop(run_id, None)
            if run is None or run.call is not None or run.root != run_id:
                return run
            # A root run has ended: what is still open under it was cancelled and never will.
            self._last_query.pop(run_id, None)
            dead = [key for key, one in self._runs.items() if one.root == run_id]
            calls = [one.call for one in map(self._runs.pop, dead) if one.call is not None]
        for call in calls:
            self.recorder.forget(call.key)
        return run

    def _enclosing_retrieval(self, run_id: UUID | None) -> Call | None:
        """The nearest retrieval among the parents of a run."""
        with self._lock:
            while run_id is not None:
                run = self._runs.get(run_id)
                if run is None:
                    return None
                if run.call is not None:
                    return run.call
                run_id = run.parent
        return None

    def _keep_fault(self, attempt: Attempt) -> None:
        if attempt.error is not None:
            self.recorder.keep_fault(attempt.error)


_ACTIVE: ContextVar[RecallCallbackHandler | None] = ContextVar("chunkrecall_handler", default=None)
# Once for the process: a hook for each use would stay for ever (langchain#32300).
register_configure_hook(_ACTIVE, inheritable=True)


@contextmanager
def record_recall(
    dataset: DatasetInput, k: Cutoffs = 5, **options: Any
) -> Iterator[RecallCallbackHandler]:
    """Attaches a `RecallCallbackHandler` to everything LangChain runs inside the block.

    Works through chains, agents, graphs, batches and asyncio tasks. A bare thread or thread pool
    copies no context and is not seen. Blocks may be nested; each sees its own share.

    Args:
        dataset: The labelled queries.
        k: One cutoff or several.
        options: Those of `RecallCallbackHandler`.

    Raises:
        Exception: On leaving the block, the first fault of the recorder itself, if
            `raise_faults=True`.
    """
    handler = RecallCallbackHandler(dataset, k, **options)
    handler._outer = _ACTIVE.get()  # noqa: SLF001 - its own class
    token = _ACTIVE.set(handler)
    try:
        yield handler
    finally:
        _ACTIVE.reset(token)
    handler.recorder.raise_fault()


def _chunks(documents: list[Any] | tuple[Any, ...]) -> Chunks:
    chunks = chunks_of_documents(documents)
    return to_chunks(list(documents)) if chunks is None else chunks
