"""Long runs against a service: limits, faults, refusals, repeats; a real HTTP server answers."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Lock, Thread
from time import monotonic
from urllib.error import HTTPError
from urllib.parse import quote, unquote
from urllib.request import urlopen

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkrecall import (
    DatasetError,
    GateError,
    Report,
    aevaluate_retriever,
    assert_recall,
    evaluate_retriever,
    retrieve,
)
from chunkrecall.evaluation import count_calls
from chunkrecall.records import as_dataset
from chunkrecall.retrieval import Asking
from chunkrecall.retrieval.limits import RateLimit, rate_limit_of

LABELS = {f"q{i}": [f"right {i}"] for i in range(20)}


def right(text: str) -> list[str]:
    return [f"right {text[1:]}"]


class Service:
    """A search service whose answer to a query's n-th request is scripted; the default is 200."""

    def __init__(self) -> None:
        self.script: dict[str, list[int]] = {}
        self.always: int | None = None
        self.hanging: set[str] = set()
        self.requests: Counter[str] = Counter()
        self.released = Event()
        self._lock = Lock()
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                query = unquote(self.path.lstrip("/"))
                with service._lock:
                    number = service.requests[query]
                    service.requests[query] += 1
                if query in service.hanging:
                    service.released.wait(30)
                planned = service.script.get(query, [])
                status = service.always or (planned[number] if number < len(planned) else 200)
                body = json.dumps(right(query)).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                """Silent."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        Thread(target=self._server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def search(self, text: str) -> list[str]:
        try:
            with urlopen(f"{self.address}/{quote(text)}", timeout=20) as answer:
                found: list[str] = json.load(answer)
        except HTTPError as error:
            error.close()  # it holds the connection
            raise
        return found

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def service(socket_enabled: None) -> Iterator[Service]:  # this machine alone
    one = Service()
    yield one
    one.close()


def test_overload_and_server_errors_are_asked_again(service: Service) -> None:
    service.script = {"q1": [429], "q2": [500, 503], "q3": [429, 429, 429]}
    report = evaluate_retriever(service.search, LABELS, k=1, max_concurrency=4)
    rows = {row.query_id: row for row in report.queries}
    assert rows["q1"].status == rows["q2"].status == "scored"
    assert rows["q3"].status == "errored"  # three attempts, as retries=2 says
    assert "429" in str(rows["q3"].error)
    assert (service.requests["q1"], service.requests["q2"], service.requests["q3"]) == (2, 3, 3)
    assert report.summary["recall@1"].scored == 19
    assert "3 of 20 queries needed another attempt" in report.notes


def test_a_dead_key_stops_the_run_with_one_message(service: Service) -> None:
    service.always = 401
    report = evaluate_retriever(service.search, LABELS, k=1, max_concurrency=2)
    summary = report.summary["recall@1"]
    assert summary.mean is None
    assert 5 <= summary.errored <= 6  # those in flight were asked all the same
    assert summary.errored + summary.not_run == 20
    assert sum(service.requests.values()) == summary.errored
    [note] = [note for note in report.notes if "refusals in a row" in note]
    assert "401" in note
    assert f"{summary.not_run} of 20 queries were not asked" in note
    with pytest.raises(GateError):
        assert_recall(report, at=1, min=0)


def test_a_dead_key_stops_an_async_run_too(service: Service) -> None:
    service.always = 403

    async def search(text: str) -> list[str]:
        return await asyncio.to_thread(service.search, text)

    report = asyncio.run(aevaluate_retriever(search, LABELS, k=1, max_concurrency=1))
    assert report.summary["recall@1"].errored == 5
    assert report.summary["recall@1"].not_run == 15


def test_single_refusals_do_not_stop_a_run(service: Service) -> None:
    service.script = {f"q{i}": [404] for i in range(0, 20, 2)}
    report = evaluate_retriever(service.search, LABELS, k=1, max_concurrency=1)
    assert report.summary["recall@1"].errored == 10
    assert report.summary["recall@1"].scored == 10


def test_nothing_stops_a_run_that_is_to_ask_everything(service: Service) -> None:
    service.always = 401
    report = evaluate_retriever(service.search, LABELS, k=1, max_permanent_errors=None)
    assert report.summary["recall@1"].errored == 20


def test_a_stopped_run_goes_on_from_its_checkpoint(service: Service, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    service.always = 401
    evaluate_retriever(service.search, LABELS, k=1, checkpoint=path, max_concurrency=1)
    service.always = None
    report = evaluate_retriever(service.search, LABELS, k=1, checkpoint=path, only="errored")
    assert report.mean(1) == 1.0
    assert report.summary["recall@1"].scored == 20


def test_errors_of_the_retrievers_own_code_are_no_refusals() -> None:
    def search(text: str) -> list[str]:
        raise KeyError(text)

    assert evaluate_retriever(search, LABELS, k=1).summary["recall@1"].errored == 20


def test_a_hanging_call_costs_its_query_alone(service: Service) -> None:
    service.hanging = {"q7"}
    started = monotonic()
    report = evaluate_retriever(service.search, LABELS, k=1, timeout_s=3, retries=0)
    assert monotonic() - started < 15
    assert [row.query_id for row in report.queries if row.status == "errored"] == ["q7"]
    assert "timeout_s=3" in str(report.queries[7].error)
    assert report.summary["recall@1"].scored == 19


PROGRAM = """
import json, sys
from urllib.parse import quote
from urllib.request import urlopen

def search(text):
    with urlopen(sys.argv_address + "/" + quote(text), timeout=20) as answer:
        return json.load(answer)
"""


@pytest.mark.parametrize(
    ("always", "arguments", "code", "says"),
    [
        (None, (), 0, ""),
        (401, (), 4, "nothing could be measured"),
        (500, ("--retries", "0"), 4, "nothing could be measured"),
        (429, ("--retries", "0"), 4, "nothing could be measured"),
    ],
)
def test_the_exit_code_says_what_a_service_did(
    service: Service,
    tmp_path: Path,
    always: int | None,
    arguments: tuple[str, ...],
    code: int,
    says: str,
) -> None:
    service.always = always
    module = PROGRAM.replace("sys.argv_address", repr(service.address))
    (tmp_path / "remote.py").write_text(module)
    rows = (json.dumps({"text": q, "relevant": r}) for q, r in LABELS.items())
    (tmp_path / "labels.jsonl").write_text("\n".join(rows))
    done = subprocess.run(
        [
            *[sys.executable, "-m", "chunkrecall", "run", "remote:search", "--k", "1"],
            *["--dataset", "labels.jsonl", "--format", "json", *arguments],
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    summary = json.loads(done.stdout)["summary"]["recall@1"]
    assert summary["scored"] == (20 if always is None else 0)
    assert summary["total"] == 20


def test_a_run_that_hangs_in_one_call_still_ends_and_gates(
    service: Service, tmp_path: Path
) -> None:
    service.hanging = {"q7"}
    module = PROGRAM.replace("sys.argv_address", repr(service.address))
    (tmp_path / "remote.py").write_text(module)
    rows = (json.dumps({"text": q, "relevant": r}) for q, r in LABELS.items())
    (tmp_path / "labels.jsonl").write_text("\n".join(rows))
    command = [sys.executable, "-m", "chunkrecall", "run", "remote:search", "--k", "1"]
    command += ["--dataset", "labels.jsonl", "--timeout-s", "3", "--retries", "0"]
    codes = []
    for gate in (["--min-coverage", "0.9"], ["--min-coverage", "1"], ["--min-recall", "1@1"]):
        done = subprocess.run(
            [*command, *gate], cwd=tmp_path, capture_output=True, timeout=40, check=False
        )
        codes.append(done.returncode)
    assert codes == [0, 4, 4]  # 19 of 20 measured: enough; too little; a gate asks for all


# Calls per period.


@given(
    calls=st.integers(1, 5),
    gaps=st.lists(st.floats(0, 3, allow_nan=False), min_size=1, max_size=60),
)
def test_no_window_ever_holds_more_calls_than_allowed(calls: int, gaps: list[float]) -> None:
    limit = RateLimit(calls, 1.0)
    now, starts = 0.0, []
    for gap in gaps:
        now += gap
        if limit.wait_s(now) == 0:
            limit.start(now)
            starts.append(now)
    for index, start in enumerate(starts):
        assert index + 1 - bisect_left(starts, start - 1.0 + 1e-9) <= calls


@pytest.mark.parametrize("max_concurrency", [1, 4])
def test_calls_are_held_back_and_waiting_is_no_latency(max_concurrency: int) -> None:
    starts: list[float] = []

    def search(text: str) -> list[str]:
        starts.append(monotonic())
        return right(text)

    run = retrieve(
        search, dict(list(LABELS.items())[:7]), rate_limit=(3, 0.2), max_concurrency=max_concurrency
    )
    assert all(later - first > 0.19 for first, later in zip(starts, starts[3:], strict=False))
    assert max(ranking.latency_s or 0 for ranking in run.rankings) < 0.15
    assert 0.35 < run.settings["rate_limit_wait_s"] < 5
    [note] = run.notes
    assert note.startswith("the rate limit of 3 calls per 0.2 s held calls back for 0.")


def test_calls_are_held_back_on_a_loop_too() -> None:
    starts: list[float] = []

    async def search(text: str) -> list[str]:
        starts.append(monotonic())
        return right(text)

    report = asyncio.run(
        aevaluate_retriever(search, dict(list(LABELS.items())[:7]), k=1, rate_limit=(3, 0.2))
    )
    assert report.mean(1) == 1
    assert all(later - first > 0.19 for first, later in zip(starts, starts[3:], strict=False))


def test_a_rate_limit_is_not_taken_for_a_blocked_loop() -> None:
    async def search(text: str) -> list[str]:
        await asyncio.sleep(0.02)
        return right(text)

    labels = dict(list(LABELS.items())[:6])
    report = asyncio.run(aevaluate_retriever(search, labels, k=1, rate_limit=(1, 0.1)))
    assert any("held calls back" in note for note in report.notes)
    assert not any("no overlap observed" in note for note in report.notes)


@pytest.mark.parametrize(
    ("value", "calls", "per_s"),
    [
        ("100/min", 100, 60),
        ("10/s", 10, 1),
        ("5 per 2 seconds", 5, 2),
        ("3/0.5s", 3, 0.5),
        ("1000/hour", 1000, 3600),
        ((7, 1.5), 7, 1.5),
    ],
)
def test_a_rate_limit_reads_as_people_write_it(value: object, calls: int, per_s: float) -> None:
    limit = rate_limit_of(value)  # type: ignore[arg-type]
    assert limit is not None
    assert (limit.calls, limit.per_s) == (calls, per_s)


@pytest.mark.parametrize(
    "value", ["", "100", "fast", "0/s", "5/0s", "-1/s", "5/day", (0, 1), (1, 0)]
)
def test_a_rate_limit_that_allows_nothing_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="rate_limit"):
        rate_limit_of(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [5, 1.5, (1,), (True, 1), ("1", 1), (1, "s")])
def test_a_rate_limit_of_another_type_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="rate_limit"):
        rate_limit_of(value)  # type: ignore[arg-type]


# Repeats.


class Unstable:
    """Finds everything, but q12 only at every second time."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    def __call__(self, text: str) -> list[str]:
        self.asked[text] += 1
        if text == "q12" and self.asked[text] % 2 == 0:
            return ["wrong"]
        return right(text)


def test_unstable_queries_are_named_and_may_be_quarantined() -> None:  # F129
    search = Unstable()
    report = evaluate_retriever(search, LABELS, k=(1, 5), repeats=10)
    assert set(search.asked.values()) == {10}
    assert [row.query_id for row in report.unstable] == ["q12"]
    row = report.queries[12]
    assert (row.recall["recall@1"], row.hit["hit@5"], row.spread["recall@1"]) == (0.5, 0.5, 1.0)
    assert [call["recall@1"] for call in row.calls] == [1, 0] * 5
    assert row.union == {"recall@1": 1.0, "recall@5": 1.0}
    assert "0.500 over 10 repeats (0.000 to 1.000)" in row.reason
    assert Fraction(report.mean(1) or 0).limit_denominator(1000) == Fraction(39, 40)
    assert any("'q12' (recall@1 0.000 to 1.000, a hit in 5 of 10)" in note for note in report.notes)
    assert "1 query is unstable" in str(report)
    with pytest.raises(GateError):
        assert_recall(report, at=1, min=0.99)
    assert_recall(report, at=1, min=0.99, exclude_ids=["q12"])
    assert len(report.queries) == report.summary["recall@1"].total == 20


def test_a_report_of_repeats_survives_a_file(tmp_path: Path) -> None:
    report = evaluate_retriever(Unstable(), LABELS, k=1, repeats=3)
    report.save(tmp_path / "report.json")
    loaded = Report.load(tmp_path / "report.json")
    assert loaded == report
    assert loaded.mean(1) == report.mean(1)
    assert loaded.repeats == 3


def test_a_repeat_that_failed_is_left_out_of_its_querys_mean() -> None:
    asked: Counter[str] = Counter()

    def search(text: str) -> list[str]:
        asked[text] += 1
        if text == "q3" and asked[text] == 1:
            raise KeyError(text)
        return right(text)

    report = evaluate_retriever(search, LABELS, k=1, repeats=3)
    row = report.queries[3]
    assert (row.status, row.recall["recall@1"], len(row.repeats)) == ("scored", 1.0, 2)
    assert "1 of 3 repeats failed: KeyError" in row.reason


@given(
    ranks=st.lists(
        st.lists(st.one_of(st.none(), st.integers(1, 4)), min_size=2, max_size=2),
        min_size=1,
        max_size=4,
    )
)
def test_the_mean_over_repeats_is_exact(ranks: list[list[int | None]]) -> None:
    answers = []
    for places in ranks:
        found = ["w1", "w2", "w3", "w4"]
        for label, place in zip("ab", places, strict=True):
            if place is not None:
                found[place - 1] = label
        answers.append(found)
    turns = iter(answers)
    report = evaluate_retriever(
        lambda text: next(turns), {"q": ["a", "b"]}, k=2, repeats=len(ranks), progress=False
    )
    expected = Fraction(sum(len({*one[:2]} & {"a", "b"}) for one in answers), 2 * len(answers))
    assert report.mean(2) == float(expected)


def test_each_repeat_has_a_checkpoint_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    first = evaluate_retriever(Unstable(), LABELS, k=1, repeats=2, checkpoint=path)
    assert (tmp_path / "run.2.jsonl").exists()
    search = Unstable()
    again = evaluate_retriever(search, LABELS, k=1, repeats=2, checkpoint=path)
    assert not search.asked
    assert [row.recall for row in again.queries] == [row.recall for row in first.queries]


def test_repeats_of_a_dead_service_are_not_run(service: Service) -> None:
    service.always = 401
    report = evaluate_retriever(service.search, LABELS, k=1, repeats=3, max_concurrency=1)
    assert sum(service.requests.values()) == 5
    assert report.notes[0] == "2 of 3 repeats were not run: the one before was stopped"


@pytest.mark.parametrize(("value", "error"), [(0, ValueError), (True, TypeError), (1.5, TypeError)])
def test_repeats_must_be_a_number_of_times(value: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="repeats"):
        evaluate_retriever(right, LABELS, repeats=value)  # type: ignore[arg-type]
    limits = {"on_error": "record", "max_concurrency": 8, "timeout_s": None, "retries": 2}
    how = Asking.of(depth=None, rate_limit=None, max_permanent_errors=5, **limits)
    with pytest.raises(error, match="repeats"):
        count_calls(right, as_dataset(LABELS), how, repeats=value)  # type: ignore[arg-type]


# What a run will cost.


def test_a_dry_run_counts_calls_and_invents_nothing() -> None:  # F138
    search = Unstable()
    dataset = as_dataset({f"q{i}": ["x"] for i in range(500)})
    how = Asking.of(
        depth=None,
        on_error="record",
        max_concurrency=8,
        timeout_s=None,
        retries=2,
        rate_limit=None,
        max_permanent_errors=5,
    )
    calls = count_calls(search, dataset, how, repeats=3)
    assert (calls.calls, calls.most, calls.to_dict()["inner_calls"]) == (1500, 4500, None)
    assert str(calls).startswith("1500 retriever calls: 500 queries x 3 repeats; at most 4500")
    assert "is not known beforehand" in str(calls)
    assert not search.asked


def test_a_dry_run_leaves_out_what_the_checkpoint_has(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"

    def search(text: str) -> list[str]:
        if text == "q9":
            raise KeyError(text)
        return right(text)

    evaluate_retriever(search, dict(list(LABELS.items())[:10]), k=1)
    retrieve(search, LABELS, checkpoint=path)
    limits = {
        "depth": None,
        "on_error": "record",
        "max_concurrency": 8,
        "timeout_s": None,
        "retries": 0,
        "rate_limit": None,
        "max_permanent_errors": 5,
        "checkpoint": path,
    }
    dataset = as_dataset(LABELS)
    assert count_calls(search, dataset, Asking.of(**limits)).calls == 0
    assert count_calls(search, dataset, Asking.of(**limits, only="errored")).calls == 1
    with pytest.raises(DatasetError, match="another run"):
        count_calls(search, as_dataset({"other": ["x"]}), Asking.of(**limits))


# Memory.


def test_lists_that_are_scored_as_they_come_give_the_same_report(tmp_path: Path) -> None:
    def search(text: str) -> list[str]:
        if text == "q9":
            raise KeyError(text)
        return ["wrong", *right(text)] if int(text[1:]) % 3 else ["wrong"]

    labels = {**LABELS, "nothing": []}
    plain = evaluate_retriever(search, labels, k=(1, 5), keep_texts=False)
    path = tmp_path / "run.jsonl"
    evaluate_retriever(search, labels, k=(1, 5), keep_texts=False, checkpoint=path)
    resumed = evaluate_retriever(search, labels, k=(1, 5), keep_texts=False, checkpoint=path)
    full = evaluate_retriever(search, labels, k=(1, 5))
    assert {name: one.mean for name, one in resumed.summary.items()} == {
        name: one.mean for name, one in full.summary.items()
    }
    for report in (plain, resumed):
        assert [row.label_ranks for row in report.queries] == [
            row.label_ranks for row in full.queries
        ]
        assert [row.status for row in report.queries] == [row.status for row in full.queries]
        assert all(row.retrieved == () for row in report.queries)
        assert report.rejectable == full.rejectable


def test_http_errors_hold_their_status() -> None:
    """What the tests above rest on: urllib's error has the status as `code`."""
    assert HTTPError("u", 401, "m", None, None).code == 401  # type: ignore[arg-type]
