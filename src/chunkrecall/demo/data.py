"""The shipped corpus and its labels."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from chunkrecall.records import Chunk, Dataset, Label, Query


def demo_corpus() -> list[Chunk]:
    """The chunks of a fictional product's help centre and handbook, in file order."""
    return [
        Chunk(text=row["text"], chunk_id=row["id"], metadata=row["metadata"])
        for row in _rows("corpus.jsonl")
    ]


def demo_dataset() -> Dataset:
    """The labelled questions; every label carries the chunk's text and its id."""
    texts = {chunk.chunk_id: chunk.text for chunk in demo_corpus()}
    return Dataset(
        [
            Query(
                query_id=row["query_id"],
                text=row["text"],
                relevant=[
                    Label(text=texts[chunk_id], chunk_id=chunk_id)
                    for chunk_id in row["relevant_ids"]
                ],
                tags=row["tags"],
            )
            for row in _rows("queries.jsonl")
        ],
        name="demo",
    )


def _rows(name: str) -> list[dict[str, Any]]:
    lines = (files("chunkrecall.demo") / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line]
