"""The retriever's sync method in our own daemon threads.

One coordinator hands queries to workers and decides on time-outs; it is a generator that says how
long to wait and is sent what came, so that a thread and a coroutine can both drive it. A call that
outlives its time-out keeps its thread, which is left behind and replaced: being a daemon, it cannot
hold up the interpreter's exit.
"""

from __future__ import annotations

import asyncio
from contextvars import Context, copy_context
from queue import Empty, SimpleQueue
from sys import exc_info
from threading import Thread
from time import monotonic, sleep
from typing import TYPE_CHECKING, TypeAlias

from chunkrecall.retrieval.attempt import Attempt, exit_refused
from chunkrecall.retrieval.session import Session, Task, describe_error, timed_out

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from chunkrecall.records import Chunks

Outcome: TypeAlias = "tuple[_Worker, Attempt]"


class _Worker:
    """A daemon thread that makes one call after another, each in a fresh copy of the context."""

    def __init__(
        self,
        call: Callable[[str], Chunks],
        context: Context,
        deliver: Callable[[Outcome], None],
    ) -> None:
        self._call = call
        self._context = context
        self._deliver = deliver
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self.deadline = float("inf")
        Thread(target=self._work, name="chunkrecall-worker", daemon=True).start()

    def start(self, task: Task) -> None:
        self._tasks.put(task)

    def stop(self) -> None:
        self._tasks.put(None)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            attempt = Attempt()
            try:
                self._context.copy().run(self._ask, task.text, attempt)
            finally:
                if attempt.value is None and attempt.error is None:
                    # What is no Exception ends this thread; the query must not wait for ever.
                    cause = exc_info()[1]
                    attempt.error = RuntimeError(
                        "the retriever ended its thread"
                        + (f" with {describe_error(cause)}" if cause else "")
                    )
                self._deliver((self, attempt))

    def _ask(self, text: str, attempt: Attempt) -> None:
        with attempt, exit_refused():
            attempt.value = self._call(text)


def coordinate(
    session: Session,
    call: Callable[[str], Chunks],
    deliver: Callable[[Outcome], None],
    *,
    max_concurrency: int,
    timeout_s: float | None,
) -> Generator[float | None, Outcome | None, None]:
    """Yields how many seconds to wait (None: until something comes); is sent an outcome or None."""
    context = copy_context()
    idle: list[_Worker] = []
    busy: dict[_Worker, Task] = {}
    left_behind: set[_Worker] = set()
    try:
        while True:
            while len(busy) < max_concurrency and (task := session.take()) is not None:
                worker = idle.pop() if idle else _Worker(call, context, deliver)
                worker.deadline = float("inf") if timeout_s is None else monotonic() + timeout_s
                busy[worker] = task
                worker.start(task)
            waits = [session.wait_s()] if len(busy) < max_concurrency else []
            if not busy and waits == [None]:
                return
            if timeout_s is not None and busy:
                nearest = min(worker.deadline for worker in busy)
                waits.append(max(0.0, nearest - monotonic()))
            outcome = yield min((wait for wait in waits if wait is not None), default=None)
            if outcome is not None:
                worker, attempt = outcome
                if worker in left_behind:
                    left_behind.discard(worker)
                    worker.stop()
                    continue
                idle.append(worker)
                session.settle(busy.pop(worker), attempt)
                if _is_dead(attempt):
                    idle.remove(worker)
            elif timeout_s is not None:
                now = monotonic()
                for worker in [worker for worker in busy if worker.deadline <= now]:
                    attempt = Attempt()
                    attempt.error = timed_out(timeout_s)
                    attempt.latency_s = timeout_s
                    left_behind.add(worker)
                    session.settle(busy.pop(worker), attempt)
    finally:
        for worker in (*idle, *busy, *left_behind):
            worker.stop()
        session.stuck += len(left_behind)


def _is_dead(attempt: Attempt) -> bool:
    return isinstance(attempt.error, RuntimeError) and str(attempt.error).startswith(
        "the retriever ended its thread"
    )


def drive(
    session: Session,
    call: Callable[[str], Chunks],
    *,
    max_concurrency: int,
    timeout_s: float | None,
) -> None:
    """Run all queries from this thread, which waits for the workers."""
    outcomes: SimpleQueue[Outcome] = SimpleQueue()
    steps = coordinate(
        session, call, outcomes.put, max_concurrency=max_concurrency, timeout_s=timeout_s
    )
    try:
        wait_s = next(steps)
        while True:
            try:
                outcome = outcomes.get(timeout=wait_s)
            except Empty:
                outcome = None
            wait_s = steps.send(outcome)
    except StopIteration:
        return
    finally:
        steps.close()


async def adrive(
    session: Session,
    call: Callable[[str], Chunks],
    *,
    max_concurrency: int,
    timeout_s: float | None,
) -> None:
    """Run all queries from this coroutine, which awaits the workers and blocks no loop."""
    loop = asyncio.get_running_loop()
    outcomes: asyncio.Queue[Outcome] = asyncio.Queue()

    def deliver(outcome: Outcome) -> None:
        if not loop.is_closed():  # a call that outlived the run and its loop
            loop.call_soon_threadsafe(outcomes.put_nowait, outcome)

    steps = coordinate(session, call, deliver, max_concurrency=max_concurrency, timeout_s=timeout_s)
    try:
        wait_s = next(steps)
        while True:
            try:
                async with asyncio.timeout(wait_s):
                    outcome = await outcomes.get()
            except TimeoutError:
                outcome = None
            wait_s = steps.send(outcome)
    except StopIteration:
        return
    finally:
        steps.close()


def drive_inline(session: Session, call: Callable[[str], Chunks]) -> None:
    """Run all queries one by one in the calling thread."""
    while True:
        task = session.take()
        if task is None:
            wait_s = session.wait_s()
            if wait_s is None:
                return
            sleep(wait_s)
            continue
        with Attempt() as attempt, exit_refused():
            attempt.value = call(task.text)
        session.settle(task, attempt)
