"""Scores the retrievals of a LangChain chain, agent or graph while it runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.tracers.context import register_configure_hook

from chunkrecall.adapters import to_chunks
from chunkrecall.langchain.documents import chunks_of_documents
from chunkrecall.langchain.runs import OpenRun, OpenRuns
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
_DEEPEST = 16
_BRANCH_TAG = "map:key:"

_Enclosing = tuple[tuple[Recorder, Call], ...]
# The open retrievals around the code that runs. Parent run ids do not tell: a wrapper that passes
# no callbacks on, or with_fallbacks (langchain#36072), hides them.
_ENCLOSING: ContextVar[_Enclosing] = ContextVar("chunkrecall_enclosing", default=())


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
        size = len(self.recorder.dataset)
        self._runs = OpenRuns(max(_FEWEST_RUNS, _RUNS_A_QUERY * size))
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
            name = str(kwargs.get("name") or "step")
            branch = _branch(kwargs.get("tags"))
            run = self._runs.open(run_id, parent_run_id, name, branch=branch)
            self._runs.find_step(run, inputs, self.recorder.bound_query())
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
            if run is not None:
                self._record_step(run, kwargs.get("inputs"), outputs)
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
        self._runs.open(run_id, parent_run_id, str(kwargs.get("name") or "tool"))
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
        parent = self._runs.retrieval_around(parent_run_id)
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
            self._runs.open(run_id, parent_run_id, call.name, call)
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
            self._runs.keep(run, query_id, documents)

    def _record_step(self, run: OpenRun, streamed: object, outputs: object) -> None:
        if run.step is None and streamed is not None:  # a stream's inputs are known at its end
            self._runs.find_step(run, streamed, self.recorder.bound_query())
        documents = self._runs.end_step(run, outputs)
        if documents is None or run.step is None:
            return
        chunks = chunks_of_documents(documents)
        if chunks is not None:
            self.recorder.step(run.step.retrieved.query_id, run.name, chunks)

    def _close(self, run_id: UUID) -> OpenRun | None:
        run = self._runs.close(run_id)
        if run is not None and run.open:
            for call in self._runs.drop_inside(run):
                self.recorder.forget(call.key)
        return run

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


def _branch(tags: list[str] | None) -> str | None:
    """The key under which the RunnableParallel around a run puts what the run returns."""
    for tag in tags or ():
        if tag.startswith(_BRANCH_TAG):
            return tag.removeprefix(_BRANCH_TAG)
    return None
