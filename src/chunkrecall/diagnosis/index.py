"""Causes that lie in what the index holds, and in what the pipeline did with it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from chunkrecall.diagnosis.case import Case, shown
from chunkrecall.diagnosis.causes import Finding
from chunkrecall.diagnosis.similarity import similarity
from chunkrecall.records import Chunk

_VERSION_KEYS = re.compile(
    r"(.*_)?(version|revision|rev|date|year|timestamp|modified|updated|updated_at|ingested_at|"
    r"created_at|valid_from|valid_to|last_modified|last_modified_date|creation_date|mtime|etag|"
    r"checksum|doc_hash|is_current|is_latest)",
    re.IGNORECASE,
)
_SAME_PASSAGE = 0.5
_ALMOST_SAME = 0.7
_NUMBERS = re.compile(r"\d+")


def dropped_as_duplicate(case: Case) -> Finding | None:
    """A stage kept another chunk with the same text; or a twin with another id was returned."""
    loss = case.loss
    if loss is not None and loss.how is not None and loss.how.startswith("dropped as duplicate"):
        evidence = f"{loss.how} at {loss.stage}, where it stood at rank {loss.rank_before} before"
        return Finding(
            "dropped_as_duplicate",
            "fact",
            evidence,
            "label the text, or every id that carries it, as alternatives",
            {"stage": loss.stage, "rank_before": loss.rank_before},
        )
    if not case.reads_ids or case.rank is not None:
        return None
    for text in case.texts:
        if text in case.lists.top:
            rank = list(case.lists.top).index(text) + 1
            twin = case.lists.chunks[rank - 1].chunk_id
            return Finding(
                "dropped_as_duplicate",
                "hypothesis",
                f"the chunk at rank {rank} has the label's text under the id {twin!r:.80}",
                "match by text, or label every id that carries the text, as alternatives",
                {"rank": rank, "chunk_id": twin},
            )
    return None


def lost_at_stage(case: Case) -> Finding | None:
    """One stage had it, and the next had not."""
    loss = case.loss
    if loss is None:
        return None
    before = f"{loss.before} had it" if loss.before else "it was there"
    how = f" ({loss.how})" if loss.how else ""
    rank = "" if loss.rank_before is None else f" at rank {loss.rank_before}"
    return Finding(
        "lost_at_stage",
        "fact",
        f"{before}{rank}, and {loss.stage} lost it{how}",
        f"let {loss.stage} keep more (top_n, similarity_cutoff), or use another one",
        {"stage": loss.stage, "before": loss.before, "rank_before": loss.rank_before},
    )


def stale(case: Case) -> Finding | None:
    """Another version of the same passage was returned, or is what the index holds."""
    if case.rank is not None or case.text is None:
        return None
    own = case.corpus.chunks[case.indexed[0]] if case.corpus is not None and case.indexed else None
    chunks = case.lists.chunks
    best: Finding | None = None
    for rank in range(1, len(case.lists.top) + 1):
        chunk = chunks[rank - 1]
        found = _stale(case, case.text, own, chunk, rank)
        if found is not None and found.certainty == "fact":
            return found
        best = best or found
    return best


def _stale(case: Case, text: str, own: Chunk | None, chunk: Chunk, rank: int) -> Finding | None:
    alike = similarity(text, chunk.text)
    if alike < _SAME_PASSAGE or chunk.text in case.texts:
        return None
    versions = _differing_versions(own, chunk) if own is not None else _versions(chunk.metadata)
    same = own is not None and own.doc_id is not None and own.doc_id == chunk.doc_id
    details = {"rank": rank, "similarity": round(alike, 3), "versions": versions}
    remedy = f"delete a document's old chunks when it changes: {case.terms.rebuild()}"
    if same and versions and own is not None:
        said = ", ".join(f"{key} {a!r:.40} against {b!r:.40}" for key, (a, b) in versions.items())
        evidence = (
            f"stale version returned: the chunk at rank {rank} is of the same source "
            f"{own.doc_id!r:.80}, another version ({said})"
        )
        return Finding("stale", "fact", evidence, remedy, details)
    if own is not None or not versions or alike < _SAME_PASSAGE:
        return None
    if _NUMBERS.sub("#", text) != _NUMBERS.sub("#", chunk.text) and alike < _ALMOST_SAME:
        return None
    said = ", ".join(f"{key} {value!r:.40}" for key, value in versions.items())
    evidence = (
        f"the chunk at rank {rank} reads almost like the label, and has a version ({said}): "
        f"{shown(chunk.text)}; pass corpus= with the label's chunk to compare the two"
    )
    return Finding("stale", "hypothesis", evidence, remedy, details)


def _versions(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value
        for key, value in metadata.items()
        if isinstance(key, str)
        and _VERSION_KEYS.fullmatch(key)
        and isinstance(value, (str, int, float))
    }


def _differing_versions(own: Chunk, other: Chunk) -> dict[str, Any]:
    mine, theirs = _versions(own.metadata), _versions(other.metadata)
    return {
        key: (mine[key], theirs[key]) for key in mine if key in theirs and mine[key] != theirs[key]
    }


def not_indexed(case: Case) -> Finding | None:
    """The corpus has neither the label nor its text in any form or boundaries."""
    if case.corpus is None or case.indexed or case.is_reachable or not case.is_comparable:
        return None
    size = len(case.corpus)
    evidence = f"{case.compared} over {size} chunks of the corpus found nothing"
    details: dict[str, Any] = {"corpus_size": size}
    nearest = None if case.text is None else case.corpus.nearest(case.text)
    if nearest is not None:
        index, alike = nearest
        named = case.corpus.named(index)
        text = case.corpus.chunks.texts[index]
        evidence += f"; nearest text, {alike:.2f} alike: {named} {shown(text)}"
        details |= {"nearest": case.corpus.chunks[index].chunk_id, "similarity": round(alike, 3)}
    remedy = (
        "index the document, or correct the label; ids that change with every run can be derived "
        "from the content, or labelled by text"
        if case.reads_ids
        else "index the document, or correct the label; no retriever can find it as it is"
    )
    return Finding("not_indexed", "fact", evidence, remedy, details)


def wrong_chunk(case: Case) -> Finding | None:
    """A chunk of the label's document was returned."""
    if case.is_reachable or not case.documents:
        return None
    chunks = case.lists.chunks
    for rank in range(1, len(case.lists.top) + 1):
        document = chunks[rank - 1].doc_id
        if document in case.documents:
            evidence = (
                f"right document, wrong chunk: rank {rank} is another chunk of {document!r:.80}"
            )
            remedy = (
                "ask for more, rerank, or let a hit bring its neighbours along (parent documents, "
                f"sentence windows); larger chunks: {case.terms.splitter('chunk_size=…')}"
            )
            return Finding(
                "wrong_chunk", "fact", evidence, remedy, {"rank": rank, "doc_id": document}
            )
    return None


def found_by_other(case: Case) -> Finding | None:
    """Another retriever has it within the same cutoff."""
    found = {name: rank for name, rank in case.others.items() if rank is not None}
    if not found:
        return None
    said = ", ".join(f"{name} has it at rank {rank}" for name, rank in found.items())
    return Finding(
        "found_by_other",
        "fact",
        said,
        f"put the two together: {case.terms.hybrid()}",
        {"ranks": found},
    )


def truncated(case: Case) -> Finding | None:
    """The chunk has more tokens than the embedding model reads."""
    if case.token_count is None or case.token_count <= case.token_limit:
        return None
    limit = f"{case.token_limit}"
    if case.is_limit_assumed:
        limit += ", which is assumed: say the model's own with token_limit="
    return Finding(
        "truncated",
        "hypothesis",
        f"possibly truncated at embedding: {case.token_count} tokens > {limit}",
        "split to what the model reads, or embed with a model that reads more; it need not help: "
        f"{case.terms.splitter(f'chunk_size={case.token_limit}')}",
        {"tokens": case.token_count, "limit": case.token_limit},
    )
