"""What `evaluate_retriever` costs a query above the bare loop over `invoke` or `retrieve`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.benchmarks.measure import Candidate, Figure, Settings, in_turns
from tests.benchmarks.scripted import CHUNKS, LangChain, LlamaIndex, Script

from chunkrecall import Dataset, Report, evaluate_retriever

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_TARGET_US = 40.0


def figures(settings: Settings) -> Iterator[Figure]:
    """Both frameworks, on half as many queries as the lists have."""
    queries = settings.queries // 2
    script = Script.of(queries)
    frameworks: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
        "LangChain": (
            lambda: (LangChain(answers=script.documents()), script.dataset()),
            by_invoke,
        ),
        "LlamaIndex": (lambda: (LlamaIndex(script.nodes()), script.dataset()), by_retrieve),
    }
    for name, (prepare, bare) in frameworks.items():
        candidates = {
            "chunkrecall": Candidate(prepare, by_chunkrecall, chunk_count),
            "bare loop": Candidate(prepare, bare),
        }
        timings = in_turns(candidates, rounds=settings.rounds)
        extra_us = timings.extra_s("chunkrecall", "bare loop") / queries * 1e6
        yield Figure(
            measure=f"evaluate_retriever, {name}: CPU a query above the bare loop",
            ours=f"{extra_us:.1f} us",
            peer=f"{timings.median_s('bare loop') / queries * 1e6:.1f} us the bare loop itself",
            ratio=timings.times_faster("chunkrecall", "bare loop"),
            target=f"<= {_TARGET_US:g} us",
            met=extra_us <= _TARGET_US,
        )


def by_chunkrecall(inputs: tuple[Any, Dataset]) -> Report:
    """Retrieval and scoring, in the calling thread."""
    retriever, dataset = inputs
    return evaluate_retriever(retriever, dataset, max_concurrency=1, progress=False)


def by_invoke(inputs: tuple[LangChain, Dataset]) -> int:
    """LangChain alone."""
    retriever, dataset = inputs
    return sum(len(retriever.invoke(query.text)) for query in dataset)


def by_retrieve(inputs: tuple[LlamaIndex, Dataset]) -> int:
    """LlamaIndex alone."""
    retriever, dataset = inputs
    return sum(len(retriever.retrieve(query.text)) for query in dataset)


def chunk_count(report: Report) -> int:
    """How many chunks came, if the scores are what the script says; nothing otherwise."""
    recall = report.mean(CHUNKS)
    return sum(q.retrieved_count for q in report.queries) if recall and recall > 0.8 else 0
