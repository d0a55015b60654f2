"""The runs of LangChain that are open, as a tree."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING
from uuid import UUID

from chunkrecall.langchain.steps import Retrieved, Step, find_step

if TYPE_CHECKING:
    from langchain_core.documents import Document

    from chunkrecall.langchain.steps import Listed
    from chunkrecall.recording import Call

_MOST_QUERIES = 1_000


@dataclass(slots=True, eq=False)
class OpenRun:
    """A chain, tool or retriever run that is open."""

    run_id: UUID
    above: OpenRun | None
    name: str = ""
    call: Call | None = None
    branch: str | None = None
    """The key under which the RunnableParallel above puts what this run returns."""
    step: Step | None = None
    """What the run takes, if that is Documents of a retrieval before it."""
    retrieved: dict[str, Retrieved] | None = None
    """The last retrieval of each query inside; the latest is last."""
    open: dict[UUID, None] | None = None
    """For a root, the runs below it that have not ended."""

    @property
    def root(self) -> OpenRun:
        """The outermost run around this one, which may be itself."""
        run = self
        while run.above is not None:
            run = run.above
        return run

    def around(self) -> Iterator[OpenRun]:
        """The runs around this one, the nearest first."""
        run = self.above
        while run is not None:
            yield run
            run = run.above


class OpenRuns:
    """Finds the runs around a run, and the retrieval whose Documents a later run takes.

    Args:
        most: How many runs are kept; those that never end would pile up.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = Lock()
        self._runs: OrderedDict[UUID, OpenRun] = OrderedDict()

    def open(
        self,
        run_id: UUID,
        parent: UUID | None,
        name: str,
        call: Call | None = None,
        *,
        branch: str | None = None,
    ) -> OpenRun:
        """A run has started."""
        with self._lock:
            above = None if parent is None else self._runs.get(parent)
            if above is None and parent is not None:  # it started before the handler was attached
                above = self._runs[parent] = OpenRun(parent, None)
            run = self._runs[run_id] = OpenRun(run_id, above, name, call, branch)
            if above is not None:
                root = above.root
                if root.open is None:
                    root.open = {}
                root.open[run_id] = None
            while len(self._runs) > self._most:
                _, oldest = self._runs.popitem(last=False)
                _drop(oldest)
            return run

    def close(self, run_id: UUID) -> OpenRun | None:
        """The run that has ended, if it was open."""
        with self._lock:
            run = self._runs.pop(run_id, None)
            if run is not None and run.above is not None:
                _drop(run)
            return run

    def drop_inside(self, root: OpenRun) -> list[Call]:
        """The retrievals still open in a root run that has ended: cancelled, they never will."""
        with self._lock:
            dead = [self._runs.pop(key) for key in root.open or () if key in self._runs]
            root.open = None
        return [one.call for one in dead if one.call is not None]

    def retrieval_around(self, run_id: UUID | None) -> Call | None:
        """The nearest retrieval among a run and those around it."""
        if run_id is None:
            return None
        with self._lock:
            run = self._runs.get(run_id)
            while run is not None and run.call is None:
                run = run.above
        return None if run is None else run.call

    def keep(self, run: OpenRun, query_id: str, documents: Listed) -> None:
        """Tell the runs around a retrieval what it returned for a query."""
        retrieved = Retrieved(query_id, documents)
        with self._lock:
            for above in run.around():
                if above.retrieved is None:
                    above.retrieved = {}
                above.retrieved.pop(query_id, None)
                above.retrieved[query_id] = retrieved
                if len(above.retrieved) > _MOST_QUERIES:
                    del above.retrieved[next(iter(above.retrieved))]

    def find_step(self, run: OpenRun, inputs: object, bound: str | None) -> None:
        """Note the retrieval that a run's inputs come from; what was retrieved nearest goes first.

        Args:
            run: A run that starts.
            inputs: What it is given.
            bound: The query that the calling code names, taken where it is one of several.
        """
        with self._lock:
            before = [one.retrieved for one in run.around() if one.retrieved]
            run.step = find_step(inputs, before, bound) if before else None

    def end_step(self, run: OpenRun, outputs: object) -> list[Document] | None:
        """The list that a run made of Documents retrieved before it, if it is a step."""
        step = run.step
        if step is None:
            return None
        retrieved = step.retrieved
        with self._lock:
            last = (run.root.retrieved or {}).get(retrieved.query_id, retrieved)
            if last is not retrieved:
                return None  # the query has been retrieved again, and that one counts
            made = step.made(outputs, run.run_id, run.branch)
            if made is None:
                return None
            retrieved.add(made, (run.run_id, *[one.run_id for one in run.around()]))
            return made.documents


def _drop(run: OpenRun) -> None:
    root = run.root
    if root.open is not None:
        root.open.pop(run.run_id, None)
