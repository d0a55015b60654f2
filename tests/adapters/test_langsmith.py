"""The LangSmith evaluators, offline, through LangSmith's own `evaluate` and `aevaluate`."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.load import dumpd
from langchain_core.messages import ToolMessage
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import InMemoryVectorStore
from langsmith import aevaluate, evaluate
from langsmith.schemas import Example

from chunkrecall import (
    ChunkId,
    Dataset,
    DatasetError,
    Label,
    Query,
    UnsupportedRetrieverError,
    evaluate_retriever,
)
from chunkrecall.langchain import (
    RecallEvaluator,
    async_evaluation_target,
    dataset_to_examples,
    evaluation_target,
    examples_to_dataset,
    offline_client,
    recall_summary_evaluator,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*parameter is in beta")

LABELS = {"a": ["a1", "a2"], "b": ["b1"], "c": ["nowhere"], "d": []}
ANSWERS = {"a": ["a1", "x", "a2"], "b": ["x", "b1"], "c": ["x"], "d": ["x"]}
EXPECTED = {
    "a": {"recall@1": 0.5, "recall@3": 1.0},
    "b": {"recall@1": 0.0, "recall@3": 1.0},
    "c": {"recall@1": 0.0, "recall@3": 0.0},
    "d": {"recall@1": None, "recall@3": None},
}


class Scripted(BaseRetriever):
    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return [Document(page_content=text) for text in ANSWERS[query]]


class NativeAsync(Scripted):
    async def _aget_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        await asyncio.sleep(0)
        return [Document(page_content=text) for text in ANSWERS[query]]


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every attempt to reach another machine; LangSmith's variables are set."""
    monkeypatch.setenv("LANGSMITH_TRACING", "true")
    monkeypatch.setenv("LANGSMITH_API_KEY", "secret")
    monkeypatch.setenv("LANGSMITH_ENDPOINT", "http://127.0.0.1:9")
    attempts: list[Any] = []

    def refuse(*args: Any, **kwargs: Any) -> Any:
        attempts.append(args)
        raise OSError("no network in tests")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    return attempts


def scores(rows: list[Any]) -> dict[str, dict[str, float | None]]:
    """By question, since rows come in the order in which they finish."""
    return {
        row["example"].inputs["query"]: {
            result.key: result.score for result in row["evaluation_results"]["results"]
        }
        for row in rows
    }


@pytest.mark.parametrize("max_concurrency", [0, 4])
def test_evaluate_gives_each_example_its_score_and_sends_nothing(
    connections: list[Any], max_concurrency: int
) -> None:
    before = {thread.name for thread in threading.enumerate()}
    results = evaluate(
        evaluation_target(Scripted()),
        data=dataset_to_examples(LABELS),
        evaluators=[RecallEvaluator(k=[1, 3])],
        summary_evaluators=[recall_summary_evaluator([1, 3])],
        upload_results=False,
        client=offline_client(),
        max_concurrency=max_concurrency,
    )
    assert scores(list(results)) == EXPECTED
    summary = {r.key: r for r in results._summary_results["results"]}
    report = evaluate_retriever(Scripted(), LABELS, k=(1, 3), progress=False)
    assert summary["recall@1"].score == report.mean(1)
    assert summary["recall@3"].score == report.mean(3) == 2 / 3
    assert "mean over 3 of 4 examples; 1 undefined, 0 failed" in summary["recall@3"].comment
    assert connections == []
    started = {thread.name for thread in threading.enumerate()} - before
    assert not {name for name in started if "langsmith" in name.lower()}


@pytest.mark.parametrize("retriever", [Scripted(), NativeAsync()], ids=["sync", "async"])
@pytest.mark.parametrize("max_concurrency", [0, 4])
def test_aevaluate_gives_each_example_its_score_and_sends_nothing(
    connections: list[Any], retriever: Any, max_concurrency: int
) -> None:
    async def main() -> list[Any]:
        results = await aevaluate(
            async_evaluation_target(retriever),
            data=dataset_to_examples(LABELS),
            evaluators=[RecallEvaluator(k=[1, 3])],
            upload_results=False,
            client=offline_client(),
            max_concurrency=max_concurrency,
        )
        return [row async for row in results]

    assert scores(asyncio.run(main())) == EXPECTED
    assert connections == []


def test_a_failing_target_costs_its_row_and_is_said_in_the_summary(connections: list[Any]) -> None:
    def target(inputs: dict[str, Any]) -> dict[str, Any]:
        if inputs["query"] == "b":
            raise RuntimeError("rate limit")
        return {"documents": ANSWERS[inputs["query"]]}

    results = evaluate(
        target,
        data=dataset_to_examples(LABELS),
        evaluators=[RecallEvaluator(k=3)],
        summary_evaluators=[recall_summary_evaluator(3)],
        upload_results=False,
        client=offline_client(),
        max_concurrency=0,
    )
    rows = list(results)
    assert scores(rows)["b"] == {"recall@3": None}
    failed = next(row for row in rows if row["example"].inputs["query"] == "b")
    assert "rate limit" in failed["evaluation_results"]["results"][0].comment
    (summary,) = results._summary_results["results"]
    assert summary.score == 0.5
    assert "1 undefined, 1 failed" in summary.comment


def summary_of(rows: list[tuple[Any, str | None, Any]], **options: Any) -> tuple[float | None, str]:
    """Score and comment of rows of outputs, error and reference outputs."""
    runs: Any = [SimpleNamespace(outputs=outputs, error=error) for outputs, error, _ in rows]
    examples: Any = [SimpleNamespace(inputs={"query": "q"}, outputs=wanted) for *_, wanted in rows]
    (one,) = recall_summary_evaluator(2, **options)(runs, examples)["results"]
    return one.score, one.comment


def hits(*ids: str) -> dict[str, Any]:
    return {"documents": [Document(page_content=f"text {one}", id=one) for one in ids]}


@pytest.mark.parametrize("matcher", [None, ChunkId()])
def test_a_failed_row_of_id_labels_costs_the_summary_no_other_row(matcher: Any) -> None:
    rows = [
        (hits("1", "2"), None, {"relevant_ids": ["1"]}),
        (None, "RuntimeError: rate limit", {"relevant_ids": ["2"]}),
        ({"answer": "x"}, None, {"relevant_ids": ["2"]}),
        (hits("3"), None, {"relevant_ids": ["4"]}),
    ]
    score, comment = summary_of(rows, matcher=matcher)
    assert score == 0.5
    assert comment == "mean over 2 of 4 examples; 0 undefined, 2 failed"


def test_a_failed_row_without_labels_is_undefined_in_the_summary() -> None:
    rows = [
        (hits("1"), None, {"relevant": ["text 1"]}),
        (None, "RuntimeError: rate limit", {"relevant": []}),
        (None, "RuntimeError: rate limit", None),
    ]
    assert summary_of(rows) == (1.0, "mean over 1 of 3 examples; 2 undefined, 0 failed")


def test_the_summary_is_the_mean_of_the_rows_whatever_their_labels_are() -> None:
    rows: list[Any] = [
        (hits("1"), None, {"relevant_ids": ["1"]}),
        (hits("1"), None, {"relevant": ["text 1", "text 2"]}),
        (hits("1"), None, {"relevant": "text 1"}),
    ]
    alone = [
        RecallEvaluator(2)(outputs=outputs, reference_outputs=wanted)[0]["score"]
        for outputs, _, wanted in rows
    ]
    assert alone == [1.0, 0.5, None]
    score, comment = summary_of(rows)
    assert score == 0.75
    assert comment == (
        "mean over 2 of 3 examples; 0 undefined, 1 failed, 1 of them with labels that cannot be read"
    )


DOCUMENTS = [Document(page_content="a", id="1"), Document(page_content="b")]


@pytest.mark.parametrize(
    "outputs",
    [
        DOCUMENTS,
        ["a", "b"],
        {"documents": DOCUMENTS},
        {"context": DOCUMENTS, "answer": "a"},
        {"context": "the prompt", "source_documents": DOCUMENTS},
        {"output": "the answer", "chunks": ["a", "b"]},
        {"documents": None, "output": {"answer": "a"}, "retrieved": DOCUMENTS},
        {"output": "the answer", "documents": (one for one in DOCUMENTS)},
        {"source_documents": DOCUMENTS},
        {"output": DOCUMENTS},
        {"output": {"documents": DOCUMENTS}},
        {"documents": [dumpd(one) for one in DOCUMENTS]},
        {"documents": [{"page_content": "a", "type": "Document"}, {"page_content": "b"}]},
        {"documents": [(one, 0.5) for one in DOCUMENTS]},
        ToolMessage("text", tool_call_id="1", artifact=DOCUMENTS),
        {
            "output": "the answer",
            "messages": [ToolMessage("text", tool_call_id="1", artifact=DOCUMENTS)],
        },
        {
            "messages": [
                ToolMessage("text", tool_call_id="1", artifact=DOCUMENTS[:1]),
                ToolMessage("text", tool_call_id="2", artifact=DOCUMENTS[1:]),
            ]
        },
    ],
)
def test_documents_are_found_in_every_usual_place(outputs: Any) -> None:
    (row,) = RecallEvaluator(k=5)(outputs=outputs, reference_outputs={"relevant": ["a", "b"]})
    assert row["key"] == "recall@5"
    assert row["score"] == 1.0, row["comment"]


@pytest.mark.parametrize(
    ("outputs", "reference", "phrase"),
    [
        ({"answer": "a"}, {"relevant": ["a"]}, "documents_key"),
        (None, {"relevant": ["a"]}, "returned nothing"),
        ({"documents": ["a"]}, {"answer": "a"}, "relevant_key"),
        ({"documents": ["a"]}, {"relevant": "a"}, "must be a list"),
        ({"documents": ["a"]}, {}, "nobody judged"),
        ({"documents": ["a"]}, None, "nobody judged"),
        ({"documents": ["a"]}, ["a"], "must be a dict with 'relevant', got list ['a']"),
        ({"documents": ["a"]}, {"relevant": [{"page_content": "a"}]}, "a label has text"),
        ({"documents": ["a"]}, {"relevant": [["b", {"text": 7}]]}, '"relevant"[0][1]'),
        ({"documents": ["a"]}, {"relevant": [DOCUMENTS[0]]}, "Document"),
        ({"documents": [7]}, {"relevant": ["a"]}, "int"),
        ({"documents": "a"}, {"relevant": ["a"]}, "bare str"),
        ({"documents": None}, {"relevant": ["a"]}, "documents_key"),
        (
            {"messages": [ToolMessage("text", tool_call_id="1")]},
            {"relevant": ["a"]},
            "content_and_artifact",
        ),
    ],
)
def test_an_unusable_row_is_none_with_a_comment_and_never_an_exception(
    outputs: Any, reference: Any, phrase: str
) -> None:
    rows = RecallEvaluator(k=[1, 5])(outputs=outputs, reference_outputs=reference)
    assert [row["score"] for row in rows] == [None, None]
    for row in rows:
        assert phrase in row["comment"]
        assert "errors.pydantic.dev" not in row["comment"]
        assert "\n" not in row["comment"]


@pytest.mark.parametrize(
    ("error", "comment"),
    [
        (" \n", "the target failed: without a message"),
        ("Traceback\nKeyError: 'x'\n", "the target failed: KeyError: 'x'"),
    ],
)
def test_a_failed_run_has_the_last_line_of_its_error_as_comment(error: str, comment: str) -> None:
    run: Any = SimpleNamespace(outputs=None, inputs={"query": "q"}, error=error)
    example = Example(id=uuid4(), inputs={"query": "q"}, outputs={"relevant": ["a"]})
    (one,) = RecallEvaluator(k=1).evaluate_run(run, example)["results"]
    assert (one.score, one.comment) == (None, comment)


def test_a_sync_target_of_an_async_function_is_refused_and_names_the_other() -> None:
    async def search(text: str) -> list[str]:
        return ANSWERS[text]

    with pytest.raises(UnsupportedRetrieverError, match="search is async.*async_evaluation_target"):
        evaluation_target(search)
    assert asyncio.run(async_evaluation_target(search)({"query": "b"}))["documents"]  # type: ignore[arg-type]


def test_the_keys_can_be_named_and_labels_may_be_ids_groups_and_objects() -> None:
    evaluator = RecallEvaluator(
        k=2, matcher=ChunkId(), query_key="q", documents_key="hits", relevant_key="gold"
    )
    hits = [Document(page_content="x", id="1"), Document(page_content="y", id="2")]
    (row,) = evaluator(
        inputs={"q": "?"}, outputs={"hits": hits}, reference_outputs={"gold_ids": ["1", "3"]}
    )
    assert row["score"] == 0.5
    (row,) = RecallEvaluator(k=2)(
        outputs=["a"], reference_outputs={"relevant": [["a", "b"], {"text": "c"}]}
    )
    assert row["score"] == 0.5


@pytest.mark.parametrize("make", [evaluation_target, async_evaluation_target])
def test_a_vector_store_is_asked_as_deep_as_the_target_says(make: Any) -> None:
    texts = [f"text {number}" for number in range(10)]
    store = InMemoryVectorStore.from_texts(texts, DeterministicFakeEmbedding(size=8))
    target = make(store, depth=10)
    outputs = target({"query": "q"})
    if asyncio.iscoroutine(outputs):
        outputs = asyncio.run(outputs)
    (row,) = RecallEvaluator(k=10)(outputs=outputs, reference_outputs={"relevant": texts})
    report = evaluate_retriever(store, {"q": texts}, k=10, progress=False)
    assert row["score"] == report.mean(10) == 1.0
    with pytest.raises(ValueError, match="InMemoryVectorStore.*depth=…"):
        make(store)
    with pytest.raises(ValueError, match="depth must be.*0"):
        make(store, depth=0)


def test_evaluate_run_accepts_what_langsmith_passes() -> None:
    evaluator = RecallEvaluator(k=1)
    run = SimpleNamespace(outputs={"documents": ["a"]}, inputs={"query": "q"}, error=None)
    example = Example(id=uuid4(), inputs={"query": "q"}, outputs={"relevant": ["a"]})
    results = evaluator.evaluate_run(run, example, evaluator_run_id=uuid4())["results"]  # type: ignore[arg-type]
    assert [(r.key, r.score) for r in results] == [("recall@1", 1.0)]
    assert evaluator.feedback_keys == ["recall@1"]
    without = evaluator.evaluate_run(run, None)["results"]  # type: ignore[arg-type]
    assert without[0].score is None


def test_a_dataset_survives_being_examples_and_exported_json() -> None:
    dataset = Dataset(
        [
            Query(
                query_id="q1",
                text="one?",
                relevant=["a", ["b", "c"], Label(text="d", chunk_id="4", grade=2)],
                tags=["hard"],
                metadata={"source": "x"},
            ),
            Query(query_id="q2", text="two?", relevant=[]),
            Query(query_id="q3", text="three?"),
        ]
    )
    examples = dataset_to_examples(dataset)
    assert examples_to_dataset(examples).fingerprint == dataset.fingerprint
    # Before langsmith 0.4 examples are models of pydantic 1.
    exported = [
        example.model_dump(mode="json")
        if hasattr(example, "model_dump")
        else json.loads(example.json())
        for example in examples
    ]
    again = examples_to_dataset(exported)
    assert again.fingerprint == dataset.fingerprint
    assert again["q1"].metadata == {"source": "x"}
    assert [e.id for e in dataset_to_examples(dataset)] == [e.id for e in examples]


def test_examples_that_cannot_be_read_are_all_named() -> None:
    with pytest.raises(DatasetError) as caught:
        examples_to_dataset(
            [
                {"inputs": {"query": "fine"}, "outputs": {"relevant": ["a"]}},
                {"inputs": {"prompt": "x"}, "outputs": {"relevant": ["a"]}},
                {"inputs": {"query": "x"}, "outputs": {"relevant": "a"}},
            ]
        )
    assert [problem.place for problem in caught.value.problems] == ["example 1", "example 2"]
    assert "query_key" in str(caught.value)


def test_an_answer_is_never_taken_for_a_label() -> None:
    dataset = examples_to_dataset([{"inputs": {"query": "q"}, "outputs": {"answer": "a"}}])
    assert dataset.queries[0].relevant is None
