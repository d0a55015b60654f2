"""The retrieval loop: the only place with concurrency, retries, time-outs and progress.

`retrieve` starts no event loop for a retriever that can be called synchronously, so it works in a
notebook; `aretrieve` stays on the caller's loop and blocks it nowhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Self

from chunkrecall.adapters import adapt, loaded_frameworks
from chunkrecall.metric import check_k
from chunkrecall.records import DatasetInput, Ranking, Run, as_dataset
from chunkrecall.render import printable
from chunkrecall.retrieval import tasks, threads
from chunkrecall.retrieval.attempt import Attempt, exit_refused
from chunkrecall.retrieval.checkpoint import (
    Checkpoint,
    Keep,
    Only,
    read_checkpoint,
    run_identity,
)
from chunkrecall.retrieval.limits import (
    MAX_PERMANENT_ERRORS,
    Limits,
    OnError,
    RateLimitInput,
    check_count,
    limits_of,
)
from chunkrecall.retrieval.progress import progress_bar
from chunkrecall.retrieval.session import Session, describe_error

if TYPE_CHECKING:
    from chunkrecall.adapters import Adapter
    from chunkrecall.records import Chunks, Dataset

__all__ = [
    "MAX_PERMANENT_ERRORS",
    "Asking",
    "Attempt",
    "Keep",
    "OnError",
    "Only",
    "RateLimitInput",
    "aask",
    "aretrieve",
    "ask",
    "check_count",
    "describe_error",
    "exit_refused",
    "known_queries",
    "retrieve",
]

_NOTEWORTHY_S = 0.005


def retrieve(
    retriever: object,
    dataset: DatasetInput,
    *,
    depth: int | None = None,
    on_error: OnError = "record",
    max_concurrency: int = 8,
    timeout_s: float | None = None,
    retries: int = 2,
    rate_limit: RateLimitInput = None,
    max_permanent_errors: int | None = MAX_PERMANENT_ERRORS,
    use_threads: bool = False,
    checkpoint: str | Path | None = None,
    only: Only = "missing",
    progress: bool | None = None,
    name: str | None = None,
) -> Run:
    """Ask the retriever every query of the dataset once; the ranked lists in dataset order.

    A retriever that has nothing but an async method gets one private event loop in one helper
    thread for the whole run. Every other one is called in threads that run in a copy of the
    caller's context, or in the calling thread where `max_concurrency` is 1 and no time-out is set.

    Args:
        retriever: Whatever `adapt` takes.
        dataset: What to ask; labels are not looked at.
        depth: How many chunks to ask for where a retriever is made here, of an index or a vector
            store. Any other retriever's own depth is left alone.
        on_error: "raise" stops at the first query that fails for good; otherwise its ranking
            carries the error.
        max_concurrency: How many calls may run at a time, at least 1.
        timeout_s: Seconds that one attempt may take.
        retries: How often a query is asked again after a transient failure: connection and time-out
            errors, status 408, 429 and 5xx. Exponential backoff with jitter.
        rate_limit: How many calls may start in a period, further attempts included: "100/min",
            "10/s", or (calls, seconds). Waiting for it is no part of a query's latency.
        max_permanent_errors: After how many refusals in a row (status 4xx other than 408 and 429,
            or an authentication error) the run stops; the queries left are not run. None asks
            every query all the same.
        use_threads: Call in threads even where the retriever has an async method; one that has
            nothing else gets an event loop of its own for each call.
        checkpoint: A file to which each ranked list is appended as it finishes. If it is there
            already, only the queries it lacks are asked.
        only: "errored" also asks those again that failed in the checkpoint.
        progress: True, False, or None: only on a terminal.
        name: The run's name; the retriever's own otherwise.

    Raises:
        UnsupportedRetrieverError: The object cannot be asked.
        DatasetError: The checkpoint is of other queries, another retriever or another depth.
        RetrievalError: A query failed and `on_error` is "raise".
    """
    how = Asking.of(
        depth=depth,
        on_error=on_error,
        max_concurrency=max_concurrency,
        timeout_s=timeout_s,
        retries=retries,
        rate_limit=rate_limit,
        max_permanent_errors=max_permanent_errors,
        use_threads=use_threads,
        checkpoint=checkpoint,
        only=only,
        progress=progress,
        name=name,
    )
    return ask(retriever, as_dataset(dataset), how)


async def aretrieve(
    retriever: object,
    dataset: DatasetInput,
    *,
    depth: int | None = None,
    on_error: OnError = "record",
    max_concurrency: int = 8,
    timeout_s: float | None = None,
    retries: int = 2,
    rate_limit: RateLimitInput = None,
    max_permanent_errors: int | None = MAX_PERMANENT_ERRORS,
    use_threads: bool = False,
    checkpoint: str | Path | None = None,
    only: Only = "missing",
    progress: bool | None = None,
    name: str | None = None,
) -> Run:
    """`retrieve` on the caller's event loop.

    A retriever with native async code is awaited here; any other is called in our own threads, so
    that it neither blocks the loop nor waits for asyncio's small executor. Arguments and errors are
    those of `retrieve`.
    """
    how = Asking.of(
        depth=depth,
        on_error=on_error,
        max_concurrency=max_concurrency,
        timeout_s=timeout_s,
        retries=retries,
        rate_limit=rate_limit,
        max_permanent_errors=max_permanent_errors,
        use_threads=use_threads,
        checkpoint=checkpoint,
        only=only,
        progress=progress,
        name=name,
    )
    return await aask(retriever, as_dataset(dataset), how)


@dataclass(frozen=True, slots=True)
class Asking:
    """How a retriever is to be asked: the checked arguments of `retrieve`."""

    depth: int | None
    limits: Limits
    use_threads: bool
    checkpoint: Path | None
    only: Only
    progress: bool | None
    name: str | None

    @classmethod
    def of(
        cls,
        *,
        depth: int | None,
        use_threads: bool = False,
        checkpoint: str | Path | None = None,
        only: Only = "missing",
        progress: bool | None = None,
        name: str | None = None,
        **limits: Any,  # noqa: ANN401 - limits_of names and checks them
    ) -> Self:
        """Check the arguments; errors are those of `retrieve`."""
        if only not in ("missing", "errored"):
            raise ValueError(f"only must be 'missing' or 'errored', got {only!r}")
        if only == "errored" and checkpoint is None:
            raise ValueError("only='errored' needs the checkpoint of an earlier run")
        return cls(
            depth=check_k(depth),
            limits=limits_of(**limits),
            use_threads=use_threads,
            checkpoint=None if checkpoint is None else Path(checkpoint),
            only=only,
            progress=progress,
            name=name,
        )


def ask(retriever: object, dataset: Dataset, how: Asking, *, keep: Keep | None = None) -> Run:
    """`retrieve`, with a say in what is kept of each ranked list; errors are the same."""
    limits, use_threads = how.limits, how.use_threads
    with _session(retriever, dataset, how, keep) as session:
        by_threads = use_threads or session.adapter.has_sync
        _drive(session, limits, by_threads=by_threads, use_threads=use_threads)
        if session.wrong_way is not None and not use_threads:
            session.note_switch("async" if by_threads else "sync")
            _drive(session, limits, by_threads=not by_threads, use_threads=False)
    return session.run(how.name)


async def aask(
    retriever: object, dataset: Dataset, how: Asking, *, keep: Keep | None = None
) -> Run:
    """`ask` on the caller's event loop."""
    limits, use_threads = how.limits, how.use_threads
    with _session(retriever, dataset, how, keep) as session:
        by_threads = use_threads or not session.adapter.has_async
        await _adrive(session, limits, by_threads=by_threads, use_threads=use_threads)
        if session.wrong_way is not None and not use_threads:
            session.note_switch("async" if by_threads else "sync")
            await _adrive(session, limits, by_threads=not by_threads, use_threads=False)
    return session.run(how.name)


def known_queries(retriever: object, dataset: Dataset, how: Asking) -> int:
    """How many queries `ask` would take from the checkpoint; the retriever is not called.

    Raises:
        UnsupportedRetrieverError: The object cannot be asked.
        DatasetError: The checkpoint is of another run.
    """
    adapter = adapt(retriever).at_depth(how.depth)
    if how.checkpoint is None or not how.checkpoint.exists():
        return 0
    identity = run_identity(dataset.queries, adapter.describe(), how.depth)
    done = read_checkpoint(how.checkpoint, identity, keep=Ranking.without_chunks)
    return sum(not (how.only == "errored" and one.error is not None) for one in done.values())


@contextmanager
def _session(
    retriever: object, dataset: Dataset, how: Asking, keep: Keep | None
) -> Iterator[Session]:
    """Everything around the calls; raises what the caller asked to be told."""
    limits, depth = how.limits, how.depth
    adapter = adapt(retriever).at_depth(depth)
    with ExitStack() as stack:
        label = printable(f"retrieving with {adapter.name}", limit=60)
        bar = progress_bar(len(dataset), label, progress=how.progress)
        advance = stack.enter_context(bar)
        if not adapter.tracing:
            for framework in loaded_frameworks():
                stack.enter_context(framework.quiet())
        checkpoint = None
        if how.checkpoint is not None:
            identity = run_identity(dataset.queries, adapter.describe(), depth)
            checkpoint = stack.enter_context(Checkpoint(how.checkpoint, identity, keep))
        session = Session(
            adapter,
            dataset.queries,
            limits,
            advance=advance,
            keep=keep,
            checkpoint=checkpoint,
            only=how.only,
        )
        session.settings = {
            "retriever": dict(adapter.describe()),
            "asked_depth": depth,
            "max_concurrency": limits.max_concurrency,
            "timeout_s": limits.timeout_s,
            "retries": limits.retries,
        }
        if limits.rate is not None:
            session.settings["rate_limit"] = str(limits.rate)
        yield session
    if session.failure is not None:
        raise session.failure


def _drive(session: Session, limits: Limits, *, by_threads: bool, use_threads: bool) -> None:
    if not by_threads:
        with _overlap_noted(session, limits):
            tasks.drive(session, max_concurrency=limits.max_concurrency, timeout_s=limits.timeout_s)
    elif limits.max_concurrency == 1 and limits.timeout_s is None and not use_threads:
        threads.drive_inline(session, session.adapter.retrieve)
    else:
        threads.drive(
            session,
            _call_of(session.adapter),
            max_concurrency=limits.max_concurrency,
            timeout_s=limits.timeout_s,
        )


async def _adrive(session: Session, limits: Limits, *, by_threads: bool, use_threads: bool) -> None:
    del use_threads  # decided the way already; here to mirror the sync twin
    if not by_threads:
        with _overlap_noted(session, limits):
            await tasks.adrive(
                session, max_concurrency=limits.max_concurrency, timeout_s=limits.timeout_s
            )
    else:
        await threads.adrive(
            session,
            _call_of(session.adapter),
            max_concurrency=limits.max_concurrency,
            timeout_s=limits.timeout_s,
        )


def _call_of(adapter: Adapter) -> Callable[[str], Chunks]:
    """How a worker thread calls the retriever: its sync method, else its own loop for each call."""
    if adapter.has_sync:
        return adapter.retrieve
    return lambda text: asyncio.run(adapter.aretrieve(text))


@contextmanager
def _overlap_noted(session: Session, limits: Limits) -> Iterator[None]:
    """Notes when concurrent calls took as long as they would have one after another."""
    started = perf_counter()
    yield
    wall_s = perf_counter() - started
    latencies = [r.latency_s for r in session.rankings if r is not None and r.latency_s is not None]
    # Waiting for another attempt, or for the rate limit, is in the one and not in the other.
    has_waited = session.retried > 0 or session.held_s > 0
    if limits.max_concurrency > 1 and not has_waited and is_one_by_one(latencies, wall_s):
        session.notes.append(
            f"no overlap observed: {len(latencies)} calls took {wall_s:.1f} s, as long as one "
            f"after another, although max_concurrency={limits.max_concurrency}: the retriever's "
            "async method blocks the event loop — use_threads=True calls it in threads"
        )


def is_one_by_one(latencies: Sequence[float], wall_s: float) -> bool:
    """Whether calls with these latencies, noteworthy ones, cannot have overlapped.

    A single slow or timed-out call may take most of the time without blocking any other.
    """
    return (
        len(latencies) > 1
        and sum(latencies) / len(latencies) > _NOTEWORTHY_S
        and sum(latencies) < wall_s * 1.1
        and max(latencies) * 1.5 < wall_s
    )
