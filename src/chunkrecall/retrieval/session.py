"""The bookkeeping of one retrieval run, shared by every way of running it.

Plain code: it starts no thread, awaits nothing and sleeps nowhere.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

from chunkrecall.errors import RetrievalError
from chunkrecall.records import Ranking, Run
from chunkrecall.retrieval.attempt import Attempt, backoff_s, is_transient
from chunkrecall.retrieval.checkpoint import Checkpoint, Only

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chunkrecall.adapters import Adapter
    from chunkrecall.records import Query

OnError = Literal["record", "zero", "raise"]


@dataclass(frozen=True, slots=True)
class Task:
    """One query to be asked."""

    index: int
    text: str
    failures: int = 0


class Session:
    """Which queries are left, which wait for another try, and what came back."""

    def __init__(
        self,
        adapter: Adapter,
        queries: Sequence[Query],
        *,
        retries: int,
        on_error: OnError,
        advance: Callable[[], None],
        checkpoint: Checkpoint | None = None,
        only: Only = "missing",
    ) -> None:
        self.adapter = adapter
        self._queries = queries
        self._retries = retries
        self._on_error = on_error
        self._advance = advance
        self._checkpoint = checkpoint
        self.rankings: list[Ranking | None] = [None] * len(queries)
        done = {} if checkpoint is None else checkpoint.done
        for index, query in enumerate(queries):
            known = done.get(query.query_id)
            if known is not None and not (only == "errored" and known.error is not None):
                self.rankings[index] = known
                advance()
        self._pending = deque(
            Task(index, query.text)
            for index, query in enumerate(queries)
            if self.rankings[index] is None
        )
        self.resumed = len(queries) - len(self._pending)
        self._delayed: list[tuple[float, int, Task]] = []
        self._lock = Lock()
        self.failure: RetrievalError | None = None
        """What ends the run when `on_error` is "raise"."""
        self.wrong_way: Exception | None = None
        """The retriever said that this way of calling it is not implemented."""
        self.may_switch = True
        """Whether the other way of calling is still to be tried."""
        self.retried = 0
        self.stuck = 0
        self.settings: dict[str, Any] = {}
        self.notes: list[str] = list(adapter.notes)

    def take(self) -> Task | None:
        """The next query to ask now; None when there is none, or the run is to stop."""
        if self.failure is not None or self.wrong_way is not None:
            return None
        with self._lock:
            if self._delayed and self._delayed[0][0] <= monotonic():
                return heapq.heappop(self._delayed)[2]
            return self._pending.popleft() if self._pending else None

    def wait_s(self) -> float | None:
        """Seconds until a delayed query is due; None when none is, or the run is to stop."""
        if self.failure is not None or self.wrong_way is not None:
            return None
        with self._lock:
            if self._pending:
                return 0.0
            return max(0.0, self._delayed[0][0] - monotonic()) if self._delayed else None

    def settle(self, task: Task, attempt: Attempt) -> None:
        """Record what one attempt brought, or put its query back for another."""
        error = attempt.error
        query_id = self._queries[task.index].query_id
        if error is None:
            ranking = Ranking(query_id=query_id, chunks=attempt.value, latency_s=attempt.latency_s)
        elif self.may_switch and self.adapter.is_wrong_way(error):
            with self._lock:
                self.wrong_way = error
                self._pending.appendleft(task)
            return
        elif task.failures < self._retries and is_transient(error):
            failures = task.failures + 1
            with self._lock:
                self.retried += failures == 1
                due = monotonic() + backoff_s(failures)
                again = Task(task.index, task.text, failures)
                heapq.heappush(self._delayed, (due, task.index, again))
            return
        else:
            message = describe_error(error)
            if self._on_error == "raise":
                failure = RetrievalError(
                    f"query {query_id!r}: the retriever raised {message}", query_id=query_id
                )
                failure.__cause__ = error
                self.failure = self.failure or failure
            ranking = Ranking(
                query_id=query_id,
                error=message,
                latency_s=attempt.latency_s,
                exception=error,
            )
        self.rankings[task.index] = ranking
        if self._checkpoint is not None:
            self._checkpoint.add(ranking)
        self._advance()

    def put_back(self, task: Task) -> None:
        """Ask this query again: its call was lost with its loop and is no failure."""
        with self._lock:
            self._pending.appendleft(task)

    def note_switch(self, way: str) -> None:
        """Go on the other way; from now on an unimplemented method is an error like any other."""
        other = "sync" if way == "async" else "async"
        self.notes.append(
            f"{self.adapter.name} has no working {other} method ({type(self.wrong_way).__name__}); "
            f"its {way} method was used instead"
        )
        self.wrong_way = None
        self.may_switch = False

    def run(self, name: str | None) -> Run:
        """What came back, in dataset order."""
        rankings = [ranking for ranking in self.rankings if ranking is not None]
        notes = list(self.notes)
        if self.resumed:
            notes.append(
                f"{self.resumed} of {len(self.rankings)} queries were not asked again: their lists "
                "come from the checkpoint"
            )
        if self.retried:
            notes.append(f"{self.retried} of {len(self.rankings)} queries needed another attempt")
        if self.stuck:
            notes.append(
                f"{self.stuck} calls were still running past their time-out when the run ended"
            )
        return Run(
            name=self.adapter.name if name is None else name,
            rankings=rankings,
            complete=len(rankings) == len(self.rankings),
            settings=self.settings,
            notes=tuple(notes),
        )


def describe_error(error: BaseException) -> str:
    """Type and message of an exception; its message is code of the user's, which may fail."""
    with Attempt() as reading:
        reading.value = str(error)
    text = "its message cannot be read" if reading.error else reading.value
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def timed_out(timeout_s: float) -> TimeoutError:
    """The error of an attempt that took too long."""
    return TimeoutError(f"no answer within timeout_s={timeout_s:g}")
