"""Real labelled sets and runs through every format that loses nothing: the same numbers after."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from pipelines import by_id, by_text, rows

from chunkrecall import (
    Chunk,
    Ranking,
    Run,
    load_dataset,
    load_run,
    save_dataset,
    save_run,
    score,
)

pytestmark = [pytest.mark.data, pytest.mark.slow]

SETS = ("anthropic_codebase", "anthropic_docs", "chroma_spans", "xquad_zh")
SUFFIXES = ("jsonl", "json", "csv", "tsv", "parquet")
K = (1, 5, 10)


@pytest.mark.parametrize("name", SETS)
def test_a_real_set_and_its_run_come_back(data_folder: Path, tmp_path: Path, name: str) -> None:
    folder = data_folder / name
    corpus = {row["id"]: row["text"] for row in rows(folder / "corpus.jsonl")}
    with gzip.open(folder / "runs" / "langchain.bm25.jsonl.gz", "rt") as lines:
        stored = list(map(json.loads, lines))
    run = Run(
        name="bm25",
        rankings=[
            Ranking(
                query_id=row["id"],
                chunks=[Chunk(text=corpus[one], chunk_id=one) for one in row["ids"][:10]],
            )
            for row in stored
        ],
    )
    labelled = {"text": by_text(folder), "id": by_id(folder)}
    expected = {kind: score(run, dataset, k=K) for kind, dataset in labelled.items()}
    for suffix in SUFFIXES:
        path = tmp_path / f"run.{suffix}"
        save_run(run, path)
        run_again = load_run(path)
        for kind, dataset in labelled.items():
            target = tmp_path / f"{kind}.{suffix}"
            save_dataset(dataset, target)
            again = load_dataset(target)
            assert again.fingerprint == dataset.fingerprint, suffix
            report = score(run_again, again, k=K)
            assert [report.mean(k) for k in K] == [expected[kind].mean(k) for k in K], suffix
