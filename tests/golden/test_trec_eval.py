"""trec_eval's own test suite: its qrels, runs and expected output, through `score`."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from chunkrecall import Chunk, Dataset, Label, Query, Ranking, Run, score

pytestmark = pytest.mark.data

# expected output, qrels, run, relevance level, cut of the run, absent queries count as 0 (-c)
SUITES = [
    ("out.test.a", "qrels.test", "results.test", 1, None, False),
    ("out.test.aq", "qrels.test", "results.test", 1, None, False),
    ("out.test.meas_params", "qrels.test", "results.test", 1, None, False),
    ("out.test.aqc", "qrels.test", "results.trunc", 1, None, True),
    ("out.test.aqcM", "qrels.test", "results.trunc", 1, 100, True),
    ("out.test.aql", "qrels.rel_level", "results.test", 2, None, False),
]


def read_qrels(path: Path) -> Dataset:
    grades: dict[str, list[Label]] = defaultdict(list)
    for line in path.read_text().splitlines():
        query_id, _, document, grade = line.split()
        grades[query_id].append(Label(chunk_id=document, grade=int(grade)))
    return Dataset([Query(query_id=q, text=q, relevant=labels) for q, labels in grades.items()])


def read_run(path: Path, cut: int | None) -> dict[str, list[Chunk]]:
    scored: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for line in path.read_text().splitlines():
        query_id, _, document, _, value = line.split()[:5]
        scored[query_id].append((float(value), document))
    return {
        query_id: [Chunk(text="", chunk_id=d) for _, d in sorted(rows, reverse=True)[:cut]]
        for query_id, rows in scored.items()
    }


def expected_values(path: Path) -> list[tuple[str, int | None, str, float]]:
    values = []
    for line in path.read_text().splitlines():
        measure, query_id, value = line.split()
        name, _, k = measure.rpartition("_")
        if measure == "set_recall":
            values.append(("recall", None, query_id, float(value)))
        elif name in ("recall", "success"):
            kind = "recall" if name == "recall" else "hit"
            values.append((kind, int(k), query_id, float(value)))
    return values


def test_there_are_241_values(data_folder: Path) -> None:
    folder = data_folder / "trec_eval"
    assert sum(len(expected_values(folder / suite[0])) for suite in SUITES) == 241


@pytest.mark.parametrize("suite", SUITES, ids=[suite[0] for suite in SUITES])
def test_every_recall_and_success_of_trec_eval_is_reproduced(
    data_folder: Path, suite: tuple[str, str, str, int, int | None, bool]
) -> None:
    output, qrels, results, level, cut, absent_count = suite
    folder = data_folder / "trec_eval"
    dataset = read_qrels(folder / qrels)
    ranked = read_run(folder / results, cut)
    if not absent_count:  # without -c trec_eval averages over the queries of the run
        dataset = Dataset([query for query in dataset if query.query_id in ranked])
    expected = expected_values(folder / output)
    assert expected
    run = Run(rankings=[Ranking(query_id=q, chunks=chunks) for q, chunks in ranked.items()])
    report = score(run, dataset, k={k for _, k, _, _ in expected}, relevance_level=level)
    rows = {query.query_id: query for query in report.queries}
    for kind, k, query_id, value in expected:
        name = f"{kind}@{'all' if k is None else k}"
        if query_id == "all":
            ours = report.summary[name].mean
        else:
            ours = (rows[query_id].recall if kind == "recall" else rows[query_id].hit)[name]
        assert f"{ours:.4f}" == f"{value:.4f}", (query_id, name)
