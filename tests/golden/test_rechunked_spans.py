"""Labels as source spans, against chunks that two splitters made of the documents at three sizes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_text_splitters import RecursiveCharacterTextSplitter
from llama_index.core import Document as LlamaDocument
from llama_index.core.node_parser import SentenceSplitter

sys.path.insert(0, str(Path(__file__).parent))
from pipelines import rows

from chunkrecall import (
    Coverage,
    Dataset,
    Label,
    Query,
    diagnose,
    evaluate_retriever,
    relabel,
    score,
)
from chunkrecall.records import Chunks
from chunkrecall.render import Column, Table, to_terminal
from chunkrecall.render import Document as Shown

pytestmark = [pytest.mark.data, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

README = Path(__file__).parents[2] / "README.md"
QUERIES_A_CORPUS = 30
DEPTH = 10
SIZES = {"RecursiveCharacterTextSplitter": (400, 800, 1600), "SentenceSplitter": (128, 256, 512)}
"""Characters for the one, tokens for the other."""
BOUNDARIES = ("split", "merged", "neighbour_window")


def documents(folder: Path) -> dict[str, str]:
    return {row["id"]: row["text"] for row in rows(folder / "documents.jsonl")}


def spans(folder: Path) -> Dataset:
    """The first queries of each document, labelled with the authors' own character spans."""
    taken: dict[str, int] = {}
    queries = []
    for row in rows(folder / "queries.jsonl"):
        name = row["corpus_id"]
        taken[name] = taken.get(name, 0) + 1
        if taken[name] <= QUERIES_A_CORPUS:
            relevant = [
                Label.span(one["document"], one["start"], one["end"], text=one["content"])
                for one in row["references"]
            ]
            queries.append(Query(query_id=row["id"], text=row["query"], relevant=relevant))
    return Dataset(queries, name="chroma_spans")


def langchain_chunks(texts: dict[str, str], size: int) -> list[Document]:
    splitter = RecursiveCharacterTextSplitter(
        chunk_size=size, chunk_overlap=0, add_start_index=True
    )
    whole = [Document(page_content=text, metadata={"source": name}) for name, text in texts.items()]
    return splitter.split_documents(whole)


def llama_index_nodes(texts: dict[str, str], size: int) -> list[Any]:
    splitter = SentenceSplitter(chunk_size=size, chunk_overlap=0)
    whole = [LlamaDocument(text=text, id_=name) for name, text in texts.items()]
    return splitter.get_nodes_from_documents(whole)


def langchain_retriever(chunks: list[Document]) -> Any:
    from langchain_community.retrievers import BM25Retriever

    return BM25Retriever.from_documents(chunks, k=DEPTH)


def llama_index_retriever(nodes: list[Any]) -> Any:
    from llama_index.retrievers.bm25 import BM25Retriever

    return BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=DEPTH)


def test_the_same_spans_score_every_chunking(data_folder: Path) -> None:
    folder = data_folder / "chroma_spans"
    texts, labelled = documents(folder), spans(folder)
    passages = Dataset(
        [
            Query(
                query_id=query.query_id,
                text=query.text,
                relevant=[Label(text=label.text) for label in query.relevant or ()],
            )
            for query in labelled
        ]
    )
    table = []
    for splitter, sizes in SIZES.items():
        split, made = (
            (langchain_chunks, langchain_retriever)
            if splitter.startswith("Recursive")
            else (llama_index_nodes, llama_index_retriever)
        )
        for size in sizes:
            chunks = split(texts, size)
            report = evaluate_retriever(
                made(chunks), labelled, k=DEPTH, matcher=Coverage(), progress=False
            )
            run = report.run
            assert run is not None
            resolved = relabel(labelled, chunks)
            by_passage = relabel(passages, chunks)
            by_text = score(run, passages, k=DEPTH)
            exact = by_text.mean(DEPTH)
            why = diagnose(by_text, corpus=chunks)
            chunk_recall = score(run, resolved.dataset, k=DEPTH).mean(DEPTH)
            coverage = report.summary[f"coverage@{DEPTH}"].mean
            recall = report.mean(DEPTH)
            assert exact is not None
            assert chunk_recall is not None
            assert recall is not None
            assert coverage is not None
            # Nearly every miss has the boundaries for its cause, and the headline says so.
            boundaries = {cause: why.counts.get(cause, 0) for cause in BOUNDARIES}
            assert sum(boundaries.values()) > 0.9 * len(why.misses)
            assert any(
                word in why.headline for word in ("split across", "inside larger", "spread over")
            )
            # A verbatim excerpt is hardly ever a chunk; where it stands is always known.
            assert exact < 0.05
            assert coverage >= recall > 0.2
            assert chunk_recall > 0.2
            assert len(resolved.unresolved) <= 2
            # Passages that stand twice, or end a few characters into a chunk, differ.
            agreeing = same_chunks(resolved.dataset, by_passage.dataset)
            assert agreeing > 0.8
            means = [exact, chunk_recall, recall, coverage, agreeing]
            lost = [len(resolved.unresolved), len(by_passage.unresolved)]
            shares = [f"{mean:.3f}" for mean in means]
            causes = " ".join(f"{cause} {number}" for cause, number in boundaries.items() if number)
            table.append(
                (
                    splitter,
                    str(size),
                    str(len(chunks)),
                    *shares,
                    *map(str, lost),
                    causes,
                    why.headline,
                )
            )
    said = "\n".join(f"| {' | '.join(row[:7])} |" for row in table)
    headings = (
        *("splitter", "size", "chunks", "exact", "relabelled"),
        *("Coverage", "coverage@10", "span = passage", "spans lost", "passages lost"),
        *("causes", "headline"),
    )
    shown = Table("recall@10", tuple(map(Column, headings)), tuple(table))
    print(to_terminal(Shown((shown,)), width=300))
    print(said)
    assert said in README.read_text(encoding="utf-8")


def same_chunks(one: Dataset, other: Dataset) -> float:
    """The share of the queries for which spans and passages led to the same chunks."""
    same = sum(
        {str(label) for label in query.relevant or ()}
        == {str(label) for label in other[query.query_id].relevant or ()}
        for query in one
    )
    return same / len(one)


def test_every_offset_of_both_splitters_is_read_as_it_was_written(data_folder: Path) -> None:
    texts = documents(data_folder / "chroma_spans")
    from chunkrecall.adapters import to_chunks

    for found in (langchain_chunks(texts, 800), llama_index_nodes(texts, 256)):
        chunks: Chunks = to_chunks(found)
        placed = 0
        for index, text in enumerate(chunks.texts):
            span = chunks.span_at(index)
            if span is not None:
                placed += 1
                assert texts[span.doc_id][span.start : span.end] == text
        assert placed > 0.99 * len(chunks)
