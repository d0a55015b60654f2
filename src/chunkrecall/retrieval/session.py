"""The bookkeeping of one retrieval run, shared by every way of running it.

Plain code: it starts no thread, awaits nothing and sleeps nowhere.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any

from chunkrecall.errors import RetrievalError
from chunkrecall.records import Ranking, Run
from chunkrecall.retrieval.attempt import Attempt, backoff_s, is_refusal, is_transient
from chunkrecall.retrieval.checkpoint import Checkpoint, Keep, Only

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chunkrecall.adapters import Adapter
    from chunkrecall.records import Query
    from chunkrecall.retrieval.limits import Limits


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
        limits: Limits,
        *,
        advance: Callable[[], None],
        keep: Keep | None = None,
        checkpoint: Checkpoint | None = None,
        only: Only = "missing",
    ) -> None:
        self.adapter = adapter
        self._queries = queries
        self._limits = limits
        self._advance = advance
        self._keep = keep
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
        self.refused: str | None = None
        """The last of too many refusals in a row, which end the run."""
        self._refusals = 0
        self.held_since: float | None = None
        self.held_s = 0.0
        """Seconds for which the rate limit has held calls back."""
        self.retried = 0
        self.stuck = 0
        self.settings: dict[str, Any] = {}
        self.notes: list[str] = list(adapter.notes)

    def take(self) -> Task | None:
        """The next query to ask now; None when there is none, or the run is to stop."""
        if self._is_to_stop():
            return None
        with self._lock:
            now = monotonic()
            is_due = bool(self._delayed) and self._delayed[0][0] <= now
            if not (is_due or self._pending) or self._is_held(now):
                return None
            return heapq.heappop(self._delayed)[2] if is_due else self._pending.popleft()

    def wait_s(self) -> float | None:
        """Seconds until a query may be asked; None when none is left, or the run is to stop."""
        if self._is_to_stop():
            return None
        with self._lock:
            if not (self._pending or self._delayed):
                return None
            now = monotonic()
            due_s = 0.0 if self._pending else max(0.0, self._delayed[0][0] - now)
            rate = self._limits.rate
            return due_s if rate is None else max(due_s, rate.wait_s(now))

    def _is_to_stop(self) -> bool:
        return not (self.failure is None and self.wrong_way is None and self.refused is None)

    def _is_held(self, now: float) -> bool:
        """Whether the rate limit holds the next call back; counts the call if it does not."""
        rate = self._limits.rate
        if rate is None:
            return False
        if rate.wait_s(now) > 0:
            self.held_since = self.held_since or now
            return True
        if self.held_since is not None:
            self.held_s += now - self.held_since
            self.held_since = None
        rate.start(now)
        return False

    def settle(self, task: Task, attempt: Attempt) -> None:
        """Record what one attempt brought, or put its query back for another."""
        error = attempt.error
        query_id = self._queries[task.index].query_id
        if error is None:
            self._refusals = 0
            ranking = Ranking(query_id=query_id, chunks=attempt.value, latency_s=attempt.latency_s)
        elif self.may_switch and self.adapter.is_wrong_way(error):
            with self._lock:
                self.wrong_way = error
                self._pending.appendleft(task)
            return
        elif task.failures < self._limits.retries and is_transient(error):
            failures = task.failures + 1
            with self._lock:
                self.retried += failures == 1
                due = monotonic() + backoff_s(failures)
                again = Task(task.index, task.text, failures)
                heapq.heappush(self._delayed, (due, task.index, again))
            return
        else:
            message = describe_error(error)
            self._count_refusal(error, message)
            if self._limits.on_error == "raise":
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
        if self._checkpoint is not None:
            self._checkpoint.add(ranking)
        self.rankings[task.index] = ranking if self._keep is None else self._keep(ranking)
        self._advance()

    def _count_refusal(self, error: Exception, message: str) -> None:
        """Stop where one query after another is refused: the rest would be too."""
        most = self._limits.max_permanent_errors
        if most is None or not is_refusal(error):
            return
        with self._lock:
            self._refusals += 1
            if self._refusals >= most:
                self.refused = message

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
        if self.refused is not None:
            left = len(self.rankings) - len(rankings)
            notes.append(
                f"stopped after {self._refusals} refusals in a row, the last one {self.refused}; "
                f"{left} of {len(self.rankings)} queries were not asked — mend its cause and run "
                "again, with only='errored' where there is a checkpoint "
                "(max_permanent_errors=None asks every query all the same)"
            )
        if self.held_s:
            notes.append(
                f"the rate limit of {self._limits.rate} held calls back for {self.held_s:.1f} s, "
                "which is no part of the latencies"
            )
        if self.stuck:
            notes.append(
                f"{self.stuck} calls were still running past their time-out when the run ended"
            )
        return Run(
            name=self.adapter.name if name is None else name,
            rankings=rankings,
            complete=len(rankings) == len(self.rankings),
            settings=self._final_settings(),
            notes=tuple(notes),
        )

    def _final_settings(self) -> dict[str, Any]:
        if self._limits.rate is None:
            return self.settings
        return {**self.settings, "rate_limit_wait_s": round(self.held_s, 6)}


def describe_error(error: BaseException) -> str:
    """Type and message of an exception; its message is code of the user's, which may fail."""
    with Attempt() as reading:
        reading.value = str(error)
    text = "its message cannot be read" if reading.error else reading.value
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def timed_out(timeout_s: float) -> TimeoutError:
    """The error of an attempt that took too long."""
    return TimeoutError(f"no answer within timeout_s={timeout_s:g}")
