"""The retrieval loop: order, errors, retries, time-outs, threads, loops and interruption."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pandas as pd
import pytest
from langchain_core.runnables import RunnableLambda

from chunkrecall import (
    Chunk,
    RetrievalError,
    UnsupportedRetrieverError,
    adapt,
    aevaluate_retriever,
    aretrieve,
    evaluate_retriever,
    retrieve,
)
from chunkrecall.retrieval import is_one_by_one
from chunkrecall.retrieval.attempt import backoff_s, is_transient

LABELS: dict[str, list[str]] = {f"q{i}": [f"q{i}"] for i in range(6)}


def echo(text: str) -> list[str]:
    return [text]


async def aecho(text: str) -> list[str]:
    await asyncio.sleep(0)
    return [text]


async def stream(text: str) -> AsyncIterator[str]:
    yield text


class Callable:
    async def __call__(self, text: str) -> list[str]:
        return [text]


@pytest.fixture(autouse=True)
def no_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chunkrecall.retrieval.session.backoff_s", lambda attempts: 0.0)


FUNCTIONS = {
    "sync": echo,
    "async": aecho,
    "generator": lambda text: (item for item in [text]),
    "async generator": stream,
    "awaitable": lambda text, search=aecho: search(text),
    "partial": functools.partial(lambda prefix, text: [text], "x"),
    "object": Callable(),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_any_function_can_be_a_retriever(function: Any, concurrency: int, mode: str) -> None:
    options: dict[str, Any] = {"k": 1, "max_concurrency": concurrency, "progress": False}
    if mode == "sync":
        report = evaluate_retriever(function, LABELS, **options)
    else:
        report = asyncio.run(aevaluate_retriever(function, LABELS, **options))
    assert report.mean(1) == 1.0, [query.error for query in report.queries]
    assert [query.query_id for query in report.queries] == list(LABELS)


def test_a_mock_is_asked_as_the_function_it_stands_for() -> None:
    for mock in (MagicMock(return_value=["q"]), AsyncMock(return_value=["q"])):
        report = evaluate_retriever(mock, {"q": ["q"]}, k=1, progress=False)
        assert report.mean(1) == 1.0, report.queries[0].error
        assert mock.call_count == 1


class Haystack:
    def retrieve(self, text: str) -> list[str]:
        return [text]


@pytest.mark.parametrize(
    ("bad", "phrase"),
    [(Callable, "pass an instance"), (Haystack(), r"retriever\.retrieve"), (7, "int")],
)
def test_what_cannot_be_asked_is_refused_with_a_hint(bad: Any, phrase: str) -> None:
    with pytest.raises(UnsupportedRetrieverError, match=phrase):
        adapt(bad)


@pytest.mark.parametrize(
    ("returned", "phrase"),
    [
        (None, "returned None"),
        ("text", "bare str"),
        (b"x", "bare bytes"),
        ({"a", "b"}, "no order"),
        ({"answer": 1}, "documents"),
        ([{"no": "text"}], "item 0"),
        (["a", object()], "item 1 of the returned list is a object"),
        (7, "bare int"),
        (Chunk(text="a"), "bare Chunk"),
        (pd.DataFrame({"text": ["a"]}), "a DataFrame, a table"),
        ({"documents": pd.DataFrame({"text": ["a"]})}, "a DataFrame, a table"),
    ],
)
def test_a_result_that_is_no_list_of_chunks_is_an_errored_query(returned: Any, phrase: str) -> None:
    report = evaluate_retriever(lambda _: returned, {"q": ["a"]}, k=1, progress=False)
    (query,) = report.queries
    assert query.status == "errored"
    assert phrase in str(query.error)
    assert report.mean(1) is None


class Failing:
    """Raises the given errors one after another, then answers."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self, text: str) -> list[str]:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return [text]


def status_error(status: int, *, on_response: bool = False) -> Exception:
    error = RuntimeError(f"status {status}")
    holder: Any = error
    if on_response:
        holder = error.response = type("Response", (), {})()  # type: ignore[attr-defined]
    holder.status_code = status
    return error


def botocore_error(status: object) -> Exception:
    error = RuntimeError("An error occurred (ThrottlingException)")
    error.response = {"Error": {}, "ResponseMetadata": {"HTTPStatusCode": status}}  # type: ignore[attr-defined]
    return error


class UnreadableError(TypeError):
    """Whatever one asks it, it fails."""

    def __str__(self) -> str:
        raise ValueError("nope")

    @property
    def response(self) -> None:
        raise RuntimeError("no response yet")


def caused_by(cause: Exception) -> Exception:
    error = RuntimeError("wrapped")
    error.__cause__ = cause
    return error


class ReadTimeout(Exception):  # noqa: N818
    """As HTTP clients name theirs."""


TRANSIENT = [
    ConnectionResetError(),
    TimeoutError(),
    ReadTimeout(),
    status_error(429),
    status_error(503),
    status_error(408, on_response=True),
    caused_by(ConnectionError()),
    botocore_error(503),
    botocore_error(429),
]
PERMANENT = [
    ValueError("bad"),
    RuntimeError("rate limit"),
    status_error(401),
    status_error(404, on_response=True),
    caused_by(ValueError()),
    botocore_error(400),
    botocore_error("503"),
]


@pytest.mark.parametrize("error", TRANSIENT, ids=repr)
@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_transient_error_is_tried_again(error: Exception, concurrency: int) -> None:
    retriever = Failing(error, error)
    report = evaluate_retriever(
        retriever, {"q": ["q"]}, k=1, retries=2, max_concurrency=concurrency, progress=False
    )
    assert report.mean(1) == 1.0
    assert retriever.calls == 3
    assert any("1 of 1 queries needed another attempt" in note for note in report.notes)


@pytest.mark.parametrize("error", PERMANENT, ids=repr)
def test_a_permanent_error_is_not(error: Exception) -> None:
    retriever = Failing(error)
    report = evaluate_retriever(retriever, {"q": ["q"]}, k=1, retries=2, progress=False)
    assert report.queries[0].status == "errored"
    assert retriever.calls == 1
    assert not is_transient(error)


@pytest.mark.parametrize("concurrency", [1, 3])
@pytest.mark.parametrize("wrap", [lambda function: function, RunnableLambda])
def test_an_exception_that_cannot_be_read_costs_its_own_query(concurrency: int, wrap: Any) -> None:
    def search(text: str) -> list[str]:
        if text == "q1":
            raise UnreadableError
        return [text]

    options: dict[str, Any] = {"k": 1, "max_concurrency": concurrency, "progress": False}
    report = evaluate_retriever(wrap(search), LABELS, **options)
    assert report.queries[1].error == "UnreadableError: its message cannot be read"
    assert report.summary["recall@1"].scored == 5


def test_retries_run_out() -> None:
    retriever = Failing(*[ConnectionError("down")] * 9)
    report = evaluate_retriever(retriever, {"q": ["q"]}, k=1, retries=2, progress=False)
    assert report.queries[0].error == "ConnectionError: down"
    assert retriever.calls == 3


def test_backoff_grows_and_is_jittered() -> None:
    first, third = backoff_s(1), backoff_s(3)
    assert 0.0 < first < third
    assert len({backoff_s(1) for _ in range(5)}) > 1


@pytest.mark.parametrize("concurrency", [1, 3])
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_on_error_raise_stops_at_the_first_failure(concurrency: int, mode: str) -> None:
    calls = []

    def broken(text: str) -> list[str]:
        calls.append(text)
        raise ValueError("no")

    many = {f"q{i}": ["x"] for i in range(50)}
    options: dict[str, Any] = {"on_error": "raise", "max_concurrency": concurrency}

    def run() -> None:
        if mode == "sync":
            evaluate_retriever(broken, many, progress=False, **options)
        else:
            asyncio.run(aevaluate_retriever(broken, many, progress=False, **options))

    with pytest.raises(RetrievalError, match="ValueError: no") as caught:
        run()
    assert isinstance(caught.value.__cause__, ValueError)
    assert len(calls) < 50


def slow(text: str) -> list[str]:
    if text == "q1":
        time.sleep(0.2)
    return [text]


async def aslow(text: str) -> list[str]:
    if text == "q1":
        await asyncio.sleep(0.2)
    return [text]


async def blocking(text: str) -> list[str]:
    return slow(text)


@pytest.mark.parametrize("function", [slow, aslow, blocking])
@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("concurrency", [1, 6])
def test_a_call_past_its_time_out_costs_its_own_query(
    function: Any, mode: str, concurrency: int
) -> None:
    options: dict[str, Any] = {
        "k": 1,
        "timeout_s": 0.05,
        "retries": 0,
        "max_concurrency": concurrency,
        "progress": False,
    }
    if mode == "sync":
        report = evaluate_retriever(function, LABELS, **options)
    else:
        report = asyncio.run(aevaluate_retriever(function, LABELS, **options))
    assert [query.status == "errored" for query in report.queries] == [
        text == "q1" for text in LABELS
    ]
    assert "timeout_s=0.05" in str(report.queries[1].error)
    assert report.mean(1) == 1.0


@pytest.mark.parametrize("timeout_s", [float("inf"), 1e10, 10**400, 1e9])
@pytest.mark.parametrize("function", [echo, aecho])
def test_a_time_out_that_no_lock_can_wait_for_is_none(function: Any, timeout_s: float) -> None:
    options: dict[str, Any] = {"k": 1, "timeout_s": timeout_s, "progress": False}
    assert evaluate_retriever(function, LABELS, **options).mean(1) == 1.0
    assert asyncio.run(aevaluate_retriever(function, LABELS, **options)).mean(1) == 1.0


def test_a_call_that_never_returns_is_left_behind_in_a_daemon_thread() -> None:
    release = threading.Event()

    def stuck(text: str) -> list[str]:
        if text == "q1":
            release.wait(10)
        return [text]

    run = retrieve(stuck, LABELS, timeout_s=0.05, retries=0, max_concurrency=2, progress=False)
    assert any("1 calls were still running" in note for note in run.notes)
    assert not [
        thread
        for thread in threading.enumerate()
        if not thread.daemon and thread is not threading.main_thread()
    ]
    release.set()


@pytest.mark.parametrize("kind", ["thread", "loop"])
def test_a_stuck_call_does_not_hold_up_the_exit(kind: str) -> None:
    body = "async def stuck(text):" if kind == "loop" else "def stuck(text):"
    code = f"""
        import time
        from chunkrecall import evaluate_retriever
        {body}
            if text == "a":
                time.sleep(60)
            return [text]
        report = evaluate_retriever(stuck, {{"a": ["a"], "b": ["b"]}}, k=1, timeout_s=0.2,
                                    retries=0, max_concurrency=2, progress=False)
        print([query.status for query in report.queries])
    """
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.stdout.strip() == "['errored', 'scored']", done.stderr
    assert time.monotonic() - started < 20


@pytest.mark.parametrize("concurrency", [1, 4])
def test_ctrl_c_stops_promptly(concurrency: int) -> None:
    # A process started in the background may have inherited that it ignores SIGINT.
    code = f"""
        import signal, time
        from chunkrecall import evaluate_retriever
        signal.signal(signal.SIGINT, signal.default_int_handler)
        def search(text):
            print("started", flush=True)
            time.sleep(0.5)
            return [text]
        evaluate_retriever(search, {{str(i): ["a"] for i in range(500)}},
                           max_concurrency={concurrency}, progress=False)
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        try:
            _, errors = process.communicate(timeout=20)
        finally:
            process.kill()
    assert "KeyboardInterrupt" in errors
    assert process.returncode != 0


def exiting(text: str) -> list[str]:
    if text == "q1":
        raise SystemExit(3)
    return [text]


async def aexiting(text: str) -> list[str]:
    return exiting(text)


@pytest.mark.parametrize("function", [exiting, aexiting])
@pytest.mark.parametrize("concurrency", [1, 2])
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_retriever_that_exits_costs_its_own_query(
    function: Any, concurrency: int, mode: str
) -> None:
    options: dict[str, Any] = {"k": 1, "max_concurrency": concurrency, "progress": False}
    if mode == "sync":
        report = evaluate_retriever(function, LABELS, **options)
    else:
        report = asyncio.run(aevaluate_retriever(function, LABELS, **options))
    assert report.queries[1].error == "RuntimeError: it called sys.exit(3)"
    assert report.summary["recall@1"].scored == 5


class Leaving(BaseException):
    """Neither an Exception nor an exit, like pytest's own outcomes."""


def test_a_worker_that_dies_does_not_hang_the_run() -> None:
    def leaving(text: str) -> list[str]:
        if text == "q1":
            raise Leaving
        return [text]

    with _quiet_threads():
        report = evaluate_retriever(leaving, LABELS, k=1, max_concurrency=2, progress=False)
    assert report.queries[1].status == "errored"
    assert "Leaving" in str(report.queries[1].error)
    assert report.mean(1) == 1.0


def test_a_loop_that_dies_does_not_hang_the_run() -> None:
    async def leaving(text: str) -> list[str]:
        raise Leaving

    with pytest.raises(Leaving):
        evaluate_retriever(leaving, LABELS, k=1, progress=False)


class _quiet_threads:  # noqa: N801 - reads as a call
    def __enter__(self) -> None:
        self.hook = threading.excepthook
        threading.excepthook = lambda args: None

    def __exit__(self, *error: object) -> None:
        threading.excepthook = self.hook


VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


@pytest.mark.parametrize("concurrency", [2, 4])
@pytest.mark.parametrize("function_is_async", [False, True])
def test_calls_see_the_callers_context_and_leave_none_to_the_next(
    concurrency: int, function_is_async: bool
) -> None:
    seen = []

    def search(text: str) -> list[str]:
        seen.append(VARIABLE.get())
        VARIABLE.set(text)
        return [text]

    async def asearch(text: str) -> list[str]:
        return search(text)

    token = VARIABLE.set("caller")
    try:
        retriever: Any = asearch if function_is_async else search
        evaluate_retriever(retriever, LABELS, max_concurrency=concurrency, progress=False)
        asyncio.run(
            aevaluate_retriever(retriever, LABELS, max_concurrency=concurrency, progress=False)
        )
    finally:
        VARIABLE.reset(token)
    assert seen == ["caller"] * 12


def test_sync_calls_overlap_and_do_not_block_the_callers_loop() -> None:
    def search(text: str) -> list[str]:
        time.sleep(0.04)
        return [text]

    async def main() -> tuple[int, float]:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.005)

        ticker = asyncio.ensure_future(tick())
        started = time.perf_counter()
        await aretrieve(
            search, {str(i): None for i in range(12)}, max_concurrency=6, progress=False
        )
        took = time.perf_counter() - started
        ticker.cancel()
        return ticks, took

    ticks, took = asyncio.run(main())
    assert took < 12 * 0.04
    assert ticks >= 4


@pytest.mark.parametrize(
    ("latencies", "wall_s", "expected"),
    [
        ((0.2, 0.001, 0.001, 0.001), 0.201, False),  # one slow call
        ((0.2, 0.2, 0.001), 0.201, False),  # two that timed out side by side
        ((0.1, 0.1, 0.1, 0.1), 0.2, False),  # two at a time
        ((0.001, 0.001, 0.001), 0.004, False),  # too quick to matter
        ((0.1,), 0.2, False),
        ((), 0.1, False),
        ((0.1, 0.1, 0.1, 0.1), 0.41, True),
        ((0.2, 0.1, 0.1, 0.05), 0.46, True),
    ],
)
def test_no_overlap_is_noted_only_where_calls_came_one_after_another(
    latencies: tuple[float, ...], wall_s: float, expected: bool
) -> None:
    assert is_one_by_one(latencies, wall_s) == expected


def test_waiting_for_another_attempt_is_no_blocked_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chunkrecall.retrieval.session.backoff_s", lambda attempts: 0.05)
    failed = set()

    async def search(text: str) -> list[str]:
        await asyncio.sleep(0.01)
        if text not in failed:
            failed.add(text)
            raise ConnectionError
        return [text]

    report = evaluate_retriever(search, LABELS, k=1, progress=False)
    assert report.mean(1) == 1.0
    assert not any("no overlap" in note for note in report.notes)


def test_cancelling_leaves_no_task_behind() -> None:
    async def main() -> set[Any]:
        async def forever(text: str) -> list[str]:
            await asyncio.sleep(60)
            return [text]

        task = asyncio.ensure_future(aretrieve(forever, LABELS, progress=False))
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)
        return {one for one in asyncio.all_tasks() if one is not asyncio.current_task()}

    assert asyncio.run(main()) == set()


def test_a_call_cancelled_from_inside_is_an_errored_query() -> None:
    async def search(text: str) -> list[str]:
        if text == "q1":
            raise asyncio.CancelledError
        return [text]

    report = asyncio.run(aevaluate_retriever(search, LABELS, k=1, progress=False))
    assert report.queries[1].status == "errored"
    assert report.summary["recall@1"].scored == 5


@pytest.mark.parametrize(
    "options",
    [
        {"max_concurrency": 0},
        {"max_concurrency": True},
        {"max_concurrency": 2.5},
        {"retries": -1},
        {"retries": "2"},
        {"timeout_s": 0},
        {"timeout_s": float("nan")},
        {"timeout_s": "5"},
        {"on_error": "ignore"},
    ],
)
def test_a_bad_limit_is_refused_before_any_call(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises((TypeError, ValueError), match=name):
        evaluate_retriever(lambda _: pytest.fail("called"), LABELS, progress=False, **options)


def test_a_label_the_matcher_cannot_read_is_refused_before_any_call() -> None:
    from chunkrecall import ChunkId

    with pytest.raises(ValueError, match="has no chunk_id"):
        evaluate_retriever(
            lambda _: pytest.fail("called"), LABELS, matcher=ChunkId(), progress=False
        )


def test_the_progress_bar_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    retrieve(echo, LABELS, progress=True)
    shown = capsys.readouterr()
    assert shown.out == ""
    retrieve(echo, LABELS, progress=None)
    assert capsys.readouterr().err == ""
