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
from langchain_core.documents import Document
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

_FEWEST_RUNS = 5_000
_RUNS_A_QUERY = 32  # all queries at once, each in a chain of its own
_MOST_LISTS = 100
_DEEPEST = 16

_Enclosing = tuple[tuple[Recorder, Call], ...]
# The open retrievals around the code that runs. Parent run ids do not tell: a wrapper that passes
# no callbacks on, or with_fallbacks (langchain#36072), hides them.
_ENCLOSING: ContextVar[_Enclosing] = ContextVar("chunkrecall_enclosing", default=())


@dataclass(slots=True, eq=False)
class _Run:
    """A chain, tool or retriever run that is open."""

    run_id: UUID
    above: _Run | None
    name: str = ""
    call: Call | None = None
    after: str | None = None
    """The labelled query that had been retrieved in a run above when this one started."""
    had_documents: bool = False
    """Whether a run `after` a retrieval was given Documents."""
    lists: dict[str, object] | None = None
    """For each query retrieved inside, the last list of Documents there; the latest is last."""
    open: dict[UUID, None] | None = None
    """For a root, the runs below it that have not ended."""

    @property
    def root(self) -> _Run:
        """The outermost run around this one, which may be itself."""
        run = self
        while run.above is not None:
            run = run.above
        return run

    def keep(self, query_id: str, documents: object) -> None:
        """Tell the runs around this one what was retrieved, or made of it, for a query."""
        run = self.above
        while run is not None:
            if run.lists is None:
                run.lists = {}
            run.lists.pop(query_id, None)
            run.lists[query_id] = documents
            if len(run.lists) > _MOST_LISTS:
                del run.lists[next(iter(run.lists))]
            run = run.above

    def lists_above(self) -> dict[str, object] | None:
        """The lists of the nearest run around this one in which something was retrieved."""
        run = self.above
        while run is not None and run.lists is None:
            run = run.above
        return None if run is None else run.lists


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
        size = len(self.recorder.dataset)
        self._most_runs = max(_FEWEST_RUNS, _RUNS_A_QUERY * size)
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
        """A retriever returned; texts are copied now, since the pipeline may edit its documents.

        An answer that holds no chunks is a failed retrieval.
        """
        with Attempt() as attempt:
            self._end_retrieval(documents, run_id)
        if attempt.error is not None and not self.recorder.fail(run_id, attempt.error):
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
        with Attempt() as attempt:
            run = self._open_run(run_id, parent_run_id, str(kwargs.get("name") or "step"))
            self._find_retrieval_before(run, inputs)
        self._keep_fault(attempt)
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
                self._record_step(run, run.after, outputs)
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
        known = _ENCLOSING.get()
        around = [one for one in known if one[0] is self.recorder and one[1].is_open]
        parent = self._enclosing_retrieval(parent_run_id)
        enclosing = parent if parent is not None else (around[-1][1] if around else None)
        call = self.recorder.start(
            run_id,
            name=str(name or "Retriever"),
            query_text=query,
            query_id=metadata.get(QUERY_ID_KEY) if metadata else None,
            enclosing=enclosing,
            is_inner=parent is not None,
        )
        if call is not None:
            self._open_run(run_id, parent_run_id, call.name, call)
            others = [one for one in known if one[0] is not self.recorder]
            # Cancelled retrievals may stay in it; no pipeline is nested as deep as this.
            _ENCLOSING.set((*others[-_DEEPEST:], *around[-_DEEPEST:], (self.recorder, call)))

    def _end_retrieval(self, documents: object, run_id: UUID) -> None:
        run = self._close(run_id)
        if run is not None:
            _ENCLOSING.set(tuple([one for one in _ENCLOSING.get() if one[1] is not run.call]))
        if not isinstance(documents, (list, tuple)):
            kind = "None" if documents is None else f"a {type(documents).__name__}"
            raise TypeError(f"the retriever returned {kind}, not a list")
        query_id = self.recorder.end(run_id, _chunks(documents))
        if run is not None and run.above is not None and query_id is not None:
            with self._lock:
                run.keep(query_id, documents)

    def _find_retrieval_before(self, run: _Run, inputs: object) -> None:
        with self._lock:
            lists = run.lists_above()
            if not lists:
                return
            bound = self.recorder.bound_query()
            run.after = bound if bound in lists else next(reversed(lists))
        run.had_documents = _list_of_documents(inputs) is not None

    def _record_step(self, run: _Run, query_id: str, outputs: object) -> None:
        found = _list_of_documents(outputs)
        if found is None and run.had_documents:
            found = _empty_list(outputs)
        if found is None:
            return
        with self._lock:
            lists = run.lists_above()
            if lists is not None and lists.get(query_id) is found:
                return  # handed on, or returned by a run around the step that made it
            run.keep(query_id, found)
        chunks = chunks_of_documents(found)
        if chunks is not None:
            self.recorder.step(query_id, run.name, chunks)

    def _open_run(
        self, run_id: UUID, parent: UUID | None, name: str, call: Call | None = None
    ) -> _Run:
        with self._lock:
            above = None if parent is None else self._runs.get(parent)
            if above is None and parent is not None:  # it started before the handler was attached
                above = self._runs[parent] = _Run(parent, None)
            run = self._runs[run_id] = _Run(run_id, above, name, call)
            if above is not None:
                root = above.root
                if root.open is None:
                    root.open = {}
                root.open[run_id] = None
            while len(self._runs) > self._most_runs:
                _, oldest = self._runs.popitem(last=False)
                self._drop(oldest)
            return run

    def _close(self, run_id: UUID) -> _Run | None:
        calls = []
        with self._lock:
            run = self._runs.pop(run_id, None)
            if run is None:
                return None
            self._drop(run)
            if run.above is None and run.open:
                # A root run has ended: what is still open under it was cancelled and never will.
                dead = [self._runs.pop(key) for key in run.open if key in self._runs]
                calls = [one.call for one in dead if one.call is not None]
                run.open = None
        for call in calls:
            self.recorder.forget(call.key)
        return run

    def _drop(self, run: _Run) -> None:
        root = run.root
        if root.open is not None:
            root.open.pop(run.run_id, None)

    def _enclosing_retrieval(self, run_id: UUID | None) -> Call | None:
        """The nearest retrieval among the parents of a run."""
        if run_id is None:
            return None
        with self._lock:
            run = self._runs.get(run_id)
            while run is not None and run.call is None:
                run = run.above
        return None if run is None else run.call

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


def _list_of_documents(value: object) -> list[Any] | None:
    """The Documents that a step takes or gives: a list, or in a dict, state or graph Command."""
    if isinstance(value, list):
        return value if value and isinstance(value[0], Document) else None
    fields = _fields(value)
    for key in (*[key for key in CONTAINER_KEYS if key in fields], *fields):
        held = fields[key]
        if isinstance(held, list) and held and isinstance(held[0], Document):
            return held
    return None


def _empty_list(value: object) -> list[Any] | None:
    """The empty list that a step gives in place of Documents."""
    if isinstance(value, list):
        return value if not value else None
    fields = _fields(value)
    held = next((fields[key] for key in CONTAINER_KEYS if key in fields), None)
    return held if isinstance(held, list) and not held else None


def _fields(value: object) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    update = getattr(value, "update", None)  # of a LangGraph Command
    if isinstance(update, Mapping):
        return update
    return getattr(value, "__dict__", {})
