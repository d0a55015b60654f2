"""Checked by mypy, never run: how users write calls must type-check."""

from chunkrecall import (
    Chunk,
    Dataset,
    Diagnosis,
    EvalResult,
    Label,
    NormalizedText,
    Query,
    Ranking,
    Report,
    Run,
    aevaluate_retriever,
    diagnose,
    evaluate,
    evaluate_retriever,
    recall_at_k,
    recall_at_ks,
    score,
)

dataset = Dataset(
    [
        Query(query_id="q1", text="?", relevant=["a", ["b", "c"], Label(text="d", grade=2)]),
        Query(query_id="q2", text="?", relevant_ids=["1"], tags=["hard"]),
    ],
    name="labels",
)
run = Run(rankings=[Ranking(query_id="q1", chunks=[Chunk(text="a")])])
report: Report = score(run, dataset, k=(1, None), matcher=NormalizedText(casefold=True))
mean: float | None = report.mean(1)
low: float | None = report.summary["recall@1"].bound_low
other: Report = evaluate_retriever(lambda text: [text], {"a": ["a"]}, k=5)
recall: float | None = recall_at_k(["a"], {"a"}, 1)
many: list[float | None] = recall_at_ks([["a"]], [["a"]], [1, None])[None]
outcome: EvalResult | list[EvalResult] = evaluate("recall_at_k", hypothesis="[]", reference="[]")
found: Diagnosis = diagnose(report, corpus=["a"], others=[report, run], token_counter=len)
counts: dict[str, int] = found.counts


async def main() -> Report:
    return await aevaluate_retriever(lambda text: [text], dataset)
