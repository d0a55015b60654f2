"""Labels that cannot match as they stand: another form of the text, or an id of another kind."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from chunkrecall.diagnosis.case import Case, shown
from chunkrecall.diagnosis.causes import Certainty, Finding
from chunkrecall.diagnosis.passages import plain_id
from chunkrecall.records import Chunk
from chunkrecall.text import code_points

_METADATA_LINE = re.compile(r"[A-Za-z_][\w .-]{0,60}: .*")
_SHOWN_DIFFERENCE = 2
_PREFIX = "metadata prefix"

STEPS: tuple[tuple[str, str], ...] = (
    ("whitespace", "NormalizedText()"),
    ("NFC", "NormalizedText()"),
    ("NFKC", 'NormalizedText(unicode="NFKC")'),
    ("invisible", "NormalizedText(strip_invisible=True)"),
    ("HTML", "NormalizedText(unescape_html=True)"),
    ("case", "NormalizedText(casefold=True)"),
    ("accents", "NormalizedText(strip_accents=True)"),
)
"""A word of `near_miss`'s phrases, and the matcher that looks past the difference."""


def text_differs(case: Case) -> Finding | None:
    """A chunk has the label's text in another form."""
    if case.reads_ids or case.rank is not None:
        return None
    for text in case.wanted.texts:
        found = _near(case, text) or _prefixed(case, text)
        if found is not None:
            return found
    return None


def _near(case: Case, text: str) -> Finding | None:
    near = case.lists.near.find(text)
    if near is not None and case.may_be(case.lists.chunks.texts[near[0] - 1]):
        rank, how = near
        chunk = case.lists.chunks[rank - 1]
        return _form(text, chunk.text, how, f"the chunk at rank {rank}", {"rank": rank})
    deep = case.deep_near
    near = None if deep is None else deep.find(text)
    if near is not None and case.may_be(case.deep_texts[near[0] - 1]):
        rank, how = near
        where = f"the chunk at rank {rank} of a deeper search"
        return _form(text, case.deep_texts[rank - 1], how, where, {"probe_rank": rank})
    if case.corpus is None or case.indexed:
        return None
    near = case.corpus.near.find(text)
    if near is None:
        return None
    index, how = near[0] - 1, near[1]
    chunk = case.corpus.chunks[index]
    where = f"{case.corpus.named(index)} of the corpus"
    return _form(text, chunk.text, how, where, {"chunk_id": chunk.chunk_id})


def _form(text: str, other: str, how: str, where: str, details: Mapping[str, Any]) -> Finding:
    difference = first_difference(text, other)
    return Finding(
        "text_differs",
        "fact",
        f"{where} is {how}: {difference}",
        f"match with {matcher_for(how)}, or label the text as it is indexed",
        {**details, "how": how, "difference": difference},
    )


def matcher_for(how: str) -> str:
    """The matcher that looks past what `near_miss` named."""
    if how == _PREFIX:
        return "chunks without metadata (NodeWithScore.node.get_content(), Document.page_content)"
    if "apart from whitespace" in how:
        return "labels whose words are not split or joined; no matcher looks past that"
    options = {
        option
        for word, matcher in STEPS
        if word in how and (option := matcher.partition("(")[2].rstrip(")"))
    }
    return f"NormalizedText({', '.join(sorted(options))})"


def first_difference(text: str, other: str) -> str:
    """Where two texts begin to differ, by code points."""
    place = next(
        (i for i, (a, b) in enumerate(zip(text, other, strict=False)) if a != b),
        min(len(text), len(other)),
    )
    mine, theirs = (one[place : place + _SHOWN_DIFFERENCE] for one in (text, other))
    return (
        f"from character {place + 1} on the label has {code_points(mine) or 'nothing'} and the "
        f"chunk {code_points(theirs) or 'nothing'}"
    )


def _prefixed(case: Case, text: str) -> Finding | None:
    """The label or the chunk is the other one with metadata in front."""
    chunks = case.lists.chunks
    for rank in range(1, len(chunks) + 1):
        chunk = chunks[rank - 1]
        prefix = prefix_of(text, chunk)
        if prefix is not None and case.may_be(chunk.text):
            return _prefix(prefix, chunk, f"the chunk at rank {rank}", {"rank": rank})
    if case.corpus is None or case.indexed:
        return None
    for index in case.corpus.passages_like(text):
        chunk = case.corpus.chunks[index]
        if prefix := prefix_of(text, chunk):
            where = f"{case.corpus.named(index)} of the corpus"
            return _prefix(prefix, chunk, where, {"chunk_id": chunk.chunk_id})
    return None


def _prefix(
    prefix: tuple[str, str], chunk: Chunk, where: str, details: Mapping[str, Any]
) -> Finding:
    side, front = prefix
    who = "the label is the text of" if side == "label" else "the text of"
    tail = (
        f"{where} with metadata in front: {shown(front)}"
        if side == "label"
        else f"{where} is the label with metadata in front: {shown(front)}"
    )
    remedy = (
        "label the chunk's own text, without metadata: node.get_content() puts none in front with "
        "MetadataMode.NONE"
        if side == "label"
        else "index the text without its metadata, or label the text as it is indexed"
    )
    # Without the chunk's metadata, what looks like it may be text.
    certainty: Certainty = "fact" if chunk.metadata else "hypothesis"
    evidence = f"{who} {tail}"
    return Finding("text_differs", certainty, evidence, remedy, {**details, "how": _PREFIX})


def prefix_of(text: str, chunk: Chunk) -> tuple[str, str] | None:
    """Which side has metadata in front of the other one's text, "label" or "chunk", and what."""
    for side, longer, shorter in (("label", text, chunk.text), ("chunk", chunk.text, text)):
        body = shorter.strip()
        if not body or len(longer) <= len(shorter) or not longer.rstrip().endswith(body):
            continue
        front = longer.rstrip()[: -len(body)]
        if not front.endswith("\n"):  # a sentence such as "Note: see below." before the text
            continue
        lines = [line.strip() for line in front.strip().splitlines() if line.strip()]
        if lines and all(_is_metadata(line, chunk.metadata) for line in lines):
            return side, front
    return None


def _is_metadata(line: str, metadata: Mapping[str, Any]) -> bool:
    if not _METADATA_LINE.fullmatch(line):
        return False
    key, _, value = line.partition(": ")
    return str(metadata[key]) == value if key in metadata else not metadata


def id_differs(case: Case) -> Finding | None:
    """The label's id is that of a document, or is written otherwise."""
    if not case.reads_ids or case.indexed:
        return None
    wanted = set(case.wanted.ids)
    chunks = case.lists.chunks
    pools = [(f"rank {rank}", chunks[rank - 1]) for rank in range(1, len(chunks) + 1)]
    if case.corpus is not None:
        pools += [
            (case.corpus.named(i), case.corpus.chunks[i]) for i in case.corpus.ids_like(wanted)
        ]
    for where, chunk in pools:
        finding = _id_kind(case, wanted, chunk, where)
        if finding is not None:
            return finding
    return None


def _id_kind(case: Case, wanted: set[str], chunk: Chunk, where: str) -> Finding | None:
    for key, value in chunk.metadata.items():
        if key == case.id_key:
            if not isinstance(value, str) and str(value) in wanted:
                return Finding(
                    "id_differs",
                    "fact",
                    f"the metadata {key!r} of the chunk at {where} is the "
                    f"{type(value).__name__} {value!r:.80}, the label the text {str(value)!r:.80}",
                    f"store {key!r} as a string when you index",
                    {"kind": "id type", "key": key},
                )
        elif isinstance(value, str) and value in wanted:
            is_parent = value == chunk.doc_id
            what = "its document's id" if is_parent else f"its metadata {key!r}"
            return Finding(
                "id_differs",
                "fact",
                f"the label {value!r:.80} is no chunk's id, and {what} at {where}",
                f"match {'documents' if is_parent else 'that key'} with ChunkId({key!r})",
                {"kind": "parent id" if is_parent else "metadata key", "key": key},
            )
        elif not isinstance(value, (str, bool)) and str(value) in wanted:
            return Finding(
                "id_differs",
                "fact",
                f"the label {str(value)!r:.80} is the {type(value).__name__} in the metadata "
                f"{key!r} at {where}",
                f"store {key!r} as a string and match with ChunkId({key!r})",
                {"kind": "id type", "key": key},
            )
    chunk_id = chunk.chunk_id
    if chunk_id is not None and case.id_key is None:
        same = next((one for one in wanted if plain_id(one) == plain_id(chunk_id)), None)
        if same is not None and same != chunk_id:
            return Finding(
                "id_differs",
                "fact",
                f"the label's id {same!r:.80} and that at {where}, {chunk_id!r:.80}, differ in "
                "case, spaces or leading zeros alone",
                "write the ids alike: they are compared as they stand",
                {"kind": "id form", "key": None},
            )
    return None
