"""Runs the demo: three reports, a diagnosis, and files to try the other commands on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from chunkrecall.demo.data import demo_corpus, demo_dataset
from chunkrecall.demo.pipelines import (
    langchain_vector,
    llama_index_bm25,
    llama_index_vector,
    load_embed,
)
from chunkrecall.diagnosis import Diagnosis, diagnose
from chunkrecall.errors import MissingExtraError
from chunkrecall.formats import save_dataset, save_run
from chunkrecall.retrieval import retrieve
from chunkrecall.scoring import score

if TYPE_CHECKING:
    from chunkrecall.metric import Cutoff
    from chunkrecall.report import Report

_DEPTH = 20


def run_demo(
    folder: Path, *, k: tuple[Cutoff, ...], say: Callable[[str], None]
) -> tuple[list[Report], Diagnosis]:
    """Evaluate three retrievers over the shipped corpus, and say why the first one missed chunks.

    Everything is also written to `folder`.

    Args:
        folder: Gets corpus.jsonl, dataset.jsonl, and a run and a report for each retriever.
        k: The cutoffs.
        say: Is told what happens.

    Raises:
        MissingExtraError: The extra "demo" is not installed.
    """
    chunks, dataset = demo_corpus(), demo_dataset()
    depth = max([_DEPTH, *[cutoff for cutoff in k if cutoff is not None]])
    say(f"{len(chunks)} chunks, {len(dataset)} labelled queries; nothing leaves this machine")
    try:
        embed = load_embed()
        retrievers = {
            "langchain-vector": langchain_vector(chunks, embed, depth=depth),
            "llama-index-vector": llama_index_vector(chunks, embed, depth=depth),
            "llama-index-bm25": llama_index_bm25(chunks, depth=depth),
        }
    except ImportError as error:
        if isinstance(error, MissingExtraError):
            raise
        raise MissingExtraError("demo", needed_for="the demo") from error
    folder.mkdir(parents=True, exist_ok=True)
    save_dataset(dataset, folder / "dataset.jsonl")
    (folder / "corpus.jsonl").write_text(
        "".join(
            json.dumps({"id": c.chunk_id, "text": c.text, "metadata": dict(c.metadata)}) + "\n"
            for c in chunks
        ),
        encoding="utf-8",
    )
    reports: list[Report] = []
    for name, retriever in retrievers.items():
        say(f"running {name}")
        run = retrieve(retriever, dataset, name=name)
        report = score(run, dataset, k=k)
        save_run(run, folder / f"{name}.run.jsonl")
        report.save(folder / f"{name}.report.json")
        reports.append(report)
    first, *others = reports
    say(f"asking {first.name} once more, to see why it missed what it missed")
    diagnosis = diagnose(
        first, corpus=chunks, retriever=retrievers[first.name], others=others, dataset=dataset
    )
    (folder / f"{first.name}.diagnosis.json").write_text(diagnosis.to_json(), encoding="utf-8")
    return reports, diagnosis
