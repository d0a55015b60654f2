"""The retriever's async method as tasks, on the caller's loop or on one private loop."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from contextvars import copy_context
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING

from chunkrecall.retrieval.attempt import Attempt, exit_refused
from chunkrecall.retrieval.session import Session, Task, timed_out

if TYPE_CHECKING:
    from types import TracebackType

_GRACE_S = 1.0


class Lease:
    """One loop's right to take queries; withdrawn when a call blocks that loop for too long."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.valid = True
        self.in_flight: dict[Task, float] = {}
        self.calls: dict[asyncio.Task[None], Task] = {}
        self.loop: asyncio.AbstractEventLoop | None = None

    def take(self) -> Task | None:
        """The next query to ask, unless the lease was withdrawn."""
        task = self._session.take() if self.valid else None
        if task is not None:
            self.in_flight[task] = monotonic()
        return task

    def settle(self, task: Task, attempt: Attempt) -> None:
        """Record an attempt, unless its query was given to another loop meanwhile."""
        if self.in_flight.pop(task, None) is not None and self.valid:
            self._session.settle(task, attempt)

    def blocked_by(self, timeout_s: float) -> Task | None:
        """The query whose call has blocked the loop past its time-out, seen from another thread."""
        limit = monotonic() - timeout_s - _GRACE_S
        if self.loop is None or not any(s < limit for s in list(self.in_flight.values())):
            return None
        running = asyncio.current_task(self.loop)
        return None if running is None else self.calls.get(running)


async def adrive(
    session: Session,
    *,
    max_concurrency: int,
    timeout_s: float | None,
    lease: Lease | None = None,
) -> None:
    """Ask all queries on the running loop, at most `max_concurrency` at a time."""
    lease = Lease(session) if lease is None else lease
    lease.loop = asyncio.get_running_loop()

    async def work() -> None:
        while True:
            task = lease.take()
            if task is None:
                wait_s = session.wait_s() if lease.valid else None
                if wait_s is None:
                    return
                await asyncio.sleep(wait_s)
                continue
            lease.settle(task, await _attempt(session, task, timeout_s, lease.calls))

    workers = [asyncio.ensure_future(work()) for _ in range(max_concurrency)]
    try:
        await asyncio.gather(*workers)
    finally:
        for running in (*workers, *lease.calls):
            running.cancel()
        if lease.calls:
            await asyncio.wait(set(lease.calls), timeout=0)
        session.stuck += len(lease.calls)


async def _attempt(
    session: Session, task: Task, timeout_s: float | None, calls: dict[asyncio.Task[None], Task]
) -> Attempt:
    """One call in a task of its own: its context variables and its cancellation stay inside."""
    attempt = Attempt()
    call = asyncio.ensure_future(_ask(session, task.text, attempt))
    calls[call] = task
    call.add_done_callback(calls.pop)
    await asyncio.wait({call}, timeout=timeout_s)
    if call.done() and not call.cancelled():
        call.result()  # raises what is no Exception, such as KeyboardInterrupt
    # A call that blocks the loop cannot be interrupted: it is done, but too late.
    late = timeout_s is not None and attempt.latency_s > timeout_s and attempt.error is None
    if timeout_s is not None and (late or not call.done()):
        call.cancel()
        return _failed(timed_out(timeout_s), timeout_s)
    if call.cancelled():
        return _failed(RuntimeError("the retriever's call was cancelled from inside"), 0.0)
    return attempt


async def _ask(session: Session, text: str, attempt: Attempt) -> None:
    # In the task, so that time spent waiting for the loop is not the retriever's.
    with attempt, exit_refused():
        attempt.value = await session.adapter.aretrieve(text)


def _failed(error: Exception, latency_s: float) -> Attempt:
    attempt = Attempt()
    attempt.error = error
    attempt.latency_s = latency_s
    return attempt


def drive(session: Session, *, max_concurrency: int, timeout_s: float | None) -> None:
    """Ask all queries on one private loop in one helper thread, while this thread waits.

    A call that blocks the loop past its time-out costs its own query: the loop is left behind and
    the rest goes to a new one.
    """
    while True:
        lease = Lease(session)
        finished: Future[None] = Future()
        context = copy_context()

        def run(lease: Lease = lease, finished: Future[None] = finished) -> None:
            with _handed_over(finished):
                asyncio.run(
                    adrive(
                        session, max_concurrency=max_concurrency, timeout_s=timeout_s, lease=lease
                    )
                )

        Thread(target=context.run, args=(run,), name="chunkrecall-loop", daemon=True).start()
        try:
            blocker = _watch(lease, finished, timeout_s)
        finally:
            lease.valid = False
        if blocker is None:
            return
        for task in list(lease.in_flight):
            if task is blocker:
                session.settle(task, _failed(timed_out(timeout_s or 0.0), timeout_s or 0.0))
            else:
                session.put_back(task)
        session.stuck += 1


class _handed_over:  # noqa: N801 - reads as a call
    """Gives whatever ends a block to the thread that waits for it, which would wait for ever."""

    def __init__(self, finished: Future[None]) -> None:
        self._finished = finished

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if error is None:
            self._finished.set_result(None)
        else:
            self._finished.set_exception(error)
        return True


def _watch(lease: Lease, finished: Future[None], timeout_s: float | None) -> Task | None:
    """Wait for the loop; the query whose call has blocked it past the time-out, if one has."""
    while True:
        try:
            finished.result(timeout=None if timeout_s is None else 0.1)
        except TimeoutError:
            if finished.done():
                raise
            blocker = lease.blocked_by(timeout_s or 0.0)
            if blocker is not None:
                return blocker
        else:
            return None
