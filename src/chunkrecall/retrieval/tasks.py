"""The retriever's async method as tasks, on the caller's loop or on one private loop."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from contextvars import copy_context
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING

from chunkrecall.retrieval.attempt import Attempt
from chunkrecall.retrieval.session import Session, Task, timed_out

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from chunkrecall.records import Chunks

_GRACE_S = 1.0


class Lease:
    """One loop's right to take queries; withdrawn when a call blocks that loop for too long."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.valid = True
        self.in_flight: dict[Task, float] = {}

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

    def overdue(self, timeout_s: float) -> list[Task]:
        """The queries whose calls the loop should long have interrupted."""
        limit = monotonic() - timeout_s - _GRACE_S
        return [task for task, started in list(self.in_flight.items()) if started < limit]


async def adrive(
    session: Session,
    *,
    max_concurrency: int,
    timeout_s: float | None,
    lease: Lease | None = None,
) -> None:
    """Ask all queries on the running loop, at most `max_concurrency` at a time."""
    lease = Lease(session) if lease is None else lease
    calls: set[asyncio.Task[Chunks]] = set()

    async def work() -> None:
        while True:
            task = lease.take()
            if task is None:
                wait_s = session.wait_s() if lease.valid else None
                if wait_s is None:
                    return
                await asyncio.sleep(wait_s)
                continue
            with Attempt() as attempt:
                attempt.value = await _answer(session, task, timeout_s, calls)
            lease.settle(task, attempt)

    workers = [asyncio.ensure_future(work()) for _ in range(max_concurrency)]
    try:
        await asyncio.gather(*workers)
    finally:
        for running in (*workers, *calls):
            running.cancel()
        if calls:
            await asyncio.wait(calls, timeout=0)
        session.stuck += len(calls)


async def _answer(
    session: Session,
    task: Task,
    timeout_s: float | None,
    calls: set[asyncio.Task[Chunks]],
) -> Chunks:
    """One call in a task of its own: its context variables and its cancellation stay inside."""
    coroutine: Coroutine[None, None, Chunks] = session.adapter.aretrieve(task.text)  # type: ignore[assignment]
    call = asyncio.ensure_future(coroutine)
    calls.add(call)
    call.add_done_callback(calls.discard)
    started = monotonic()
    await asyncio.wait({call}, timeout=timeout_s)
    # A call that blocks the loop cannot be interrupted: it is done, but too late.
    late = timeout_s is not None and monotonic() - started > timeout_s
    failed = call.done() and not call.cancelled() and call.exception() is not None
    if timeout_s is not None and (not call.done() or (late and not failed)):
        call.cancel()
        raise timed_out(timeout_s)
    if call.cancelled():
        raise RuntimeError("the retriever's call was cancelled from inside")
    return call.result()


def drive(session: Session, *, max_concurrency: int, timeout_s: float | None) -> None:
    """Ask all queries on one private loop in one helper thread, while this thread waits.

    A call that blocks the loop past its time-out costs its own query: the loop is left behind and
    the rest goes to a new one.
    """
    while True:
        lease = Lease(session)
        finished: Future[None] = Future()
        loops: list[asyncio.AbstractEventLoop] = []
        context = copy_context()

        async def main(
            lease: Lease = lease, loops: list[asyncio.AbstractEventLoop] = loops
        ) -> None:
            loops.append(asyncio.get_running_loop())
            await adrive(session, max_concurrency=max_concurrency, timeout_s=timeout_s, lease=lease)

        def run(finished: Future[None] = finished) -> None:
            with Attempt() as attempt:
                asyncio.run(main())
            if attempt.error is None:
                finished.set_result(None)
            else:
                finished.set_exception(attempt.error)

        Thread(target=context.run, args=(run,), name="chunkrecall-loop", daemon=True).start()
        try:
            overdue = _watch(lease, finished, timeout_s)
        finally:
            lease.valid = False
        if not overdue:
            return
        for task in list(lease.in_flight):
            if task in overdue:
                attempt = Attempt()
                attempt.error = timed_out(timeout_s or 0.0)
                attempt.latency_s = timeout_s or 0.0
                session.settle(task, attempt)
            else:
                session.put_back(task)
        session.stuck += len(overdue)


def _watch(lease: Lease, finished: Future[None], timeout_s: float | None) -> list[Task]:
    """Wait for the loop; the queries whose calls have blocked it past the time-out, if any."""
    while True:
        try:
            finished.result(timeout=None if timeout_s is None else 0.1)
        except TimeoutError:
            if finished.done():
                raise
            overdue = lease.overdue(timeout_s or 0.0)
            if overdue:
                return overdue
        else:
            return []
