"""How much memory a report without texts keeps for each query."""

from __future__ import annotations

import gc
import tracemalloc
from typing import TYPE_CHECKING

from tests.benchmarks.measure import Figure, Settings
from tests.benchmarks.scripted import LangChain, LlamaIndex, Script

from chunkrecall import Dataset, Report, evaluate_retriever

if TYPE_CHECKING:
    from collections.abc import Iterator

_TARGET_BYTES = 1000


def figures(settings: Settings) -> Iterator[Figure]:
    """Ten chunks, four cutoffs and one label a query; the dataset is not counted."""
    queries = settings.queries // 2
    script = Script.of(queries)
    for retriever in (LangChain(answers=script.documents()), LlamaIndex(script.nodes())):
        kept = kept_bytes(retriever, script.dataset()) / queries
        yield Figure(
            measure=f"report without texts, {type(retriever).__name__}: bytes a query",
            ours=f"{kept:,.0f} B",
            peer="",
            ratio=None,
            target=f"<= {_TARGET_BYTES} B",
            met=kept <= _TARGET_BYTES,
        )


def kept_bytes(retriever: object, dataset: Dataset) -> int:
    """What is still allocated when only the report is left."""
    evaluated(retriever, Dataset(dataset.queries[:10]))  # what is loaded once is not the report's
    _ = dataset.fingerprint, dataset.notes, dataset.queries[0].query_id in dataset
    gc.collect()
    tracemalloc.start()
    try:
        report = evaluated(retriever, dataset)
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    if report.run is not None:
        raise ValueError("the report keeps its run")
    return kept


def evaluated(retriever: object, dataset: Dataset) -> Report:
    """A report whose means have been looked at."""
    report = evaluate_retriever(
        retriever,
        dataset,
        k=(1, 3, 5, 10),
        max_concurrency=1,
        progress=False,
        keep_texts=False,
    )
    report.mean(10)
    return report
