"""Labels whose text was returned, or is indexed, within other boundaries."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from chunkrecall.diagnosis.case import Case
from chunkrecall.diagnosis.causes import Certainty, Finding
from chunkrecall.diagnosis.passages import Passages, Piece, overlap_share
from chunkrecall.render import count, percent

WHOLE = 0.9
"""The share of a label that pieces must cover for it to count as there."""
_SLIDING = 1 / 3
"""The share of the smaller chunk that two have in common where windows slide over the text; the
overlap that splitters are usually given is less."""
_MOST = 0.5
"""The share of the label that its neighbours must have between them."""


def merged(case: Case) -> Finding | None:
    """One chunk holds the whole label and more."""
    if case.indexed or case.rank is not None or case.reads_ids:
        return None
    for text in case.texts:
        index = case.lists.passages.containing(text)
        if index is not None:
            size = len(case.lists.top[index])
            evidence = (
                f"the chunk at rank {index + 1} holds the whole label and more ({size} characters "
                f"against {len(text)})"
            )
            return _merged(case, len(text), evidence, {"rank": index + 1, "is_returned": True})
    if case.corpus is None:
        return None
    for text in case.texts:
        index = case.corpus.passages.containing(text)
        if index is not None:
            named = case.corpus.named(index)
            evidence = f"{named} of the corpus holds the whole label and more; it was not returned"
            return _merged(case, len(text), evidence, {"chunk": named, "is_returned": False})
    return None


def _merged(case: Case, size: int, evidence: str, details: dict[str, object]) -> Finding:
    remedy = (
        "label what is indexed, match with Contains(), which looks inside chunks, or split to the "
        f"labels' size: {case.terms.splitter(f'chunk_size={max(1, size)}')}"
    )
    return Finding("merged", "fact", evidence, remedy, details)


def neighbour_window(case: Case) -> Finding | None:
    """Overlapping chunks next to the labelled one were returned, with its words."""
    if case.reads_ids:
        return None
    for text in case.texts:
        pieces, share = case.lists.passages.cover(text)
        if share < _MOST or _is_one_whole(pieces, share):
            continue
        if not all(_is_beside(piece) or piece.is_inside for piece in pieces):
            continue
        slides = any(overlap_share(one, other) >= _SLIDING for one, other in pairwise(pieces))
        if slides or (case.indexed and any(map(_is_beside, pieces))):
            ranks = sorted({piece.index + 1 for piece in pieces})
            evidence = (
                f"neighbouring windows returned: the chunks at {_ranks(ranks)} overlap the "
                f"labelled one and have {percent(share)} of its text"
            )
            remedy = (
                "count a label as found when its text was returned (Coverage()), label every "
                "window that holds the answer, or overlap less: "
                f"{case.terms.splitter('chunk_overlap=…')}"
            )
            details = {"ranks": ranks, "coverage": share, "is_returned": share >= WHOLE}
            return Finding("neighbour_window", "fact", evidence, remedy, details)
    return None


def split(case: Case) -> Finding | None:
    """The label is spread over several chunks, none of which is it."""
    if case.indexed or case.rank is not None or case.reads_ids:
        return None
    for text in case.texts:
        found = _split_in(case, text, case.lists.passages)
        if found is not None:
            return found
    for text in case.texts:
        if case.corpus is not None:
            found = _split_in(case, text, case.corpus.passages)
            if found is not None:
                return found
    return None


def _split_in(case: Case, text: str, passages: Passages) -> Finding | None:
    pieces, share = passages.cover(text)
    indexes = list(dict.fromkeys(piece.index for piece in pieces))
    is_returned = passages is case.lists.passages
    # Every piece ends where a chunk or the label does. In the index that is telling even where
    # the rest is too short to be looked for.
    if share < WHOLE and (is_returned or share < _MOST):
        return None
    if len(indexes) < 2 and (is_returned or share == 1.0):
        return None
    if is_returned:
        ranks = sorted(index + 1 for index in indexes)
        evidence = (
            f"split across {len(indexes)} retrieved chunks: those at {_ranks(ranks)} have "
            f"{percent(share)} of the label between them"
        )
        details = {"ranks": ranks, "coverage": share, "is_returned": True}
    else:
        _, returned = case.lists.passages.cover(text)
        chunks = count(len(indexes), "chunk", "chunks")
        held = "the label" if share >= WHOLE else f"{percent(share)} of the label"
        evidence = (
            f"the index holds {held} split across {chunks}; {percent(returned)} of it was returned"
        )
        details = {"chunks": len(indexes), "coverage": returned, "is_returned": False}
    size = f"chunk_size={max(1, len(text))}"
    remedy = (
        "count a label as found when its pieces were returned (Coverage()), label the pieces, or "
        f"split coarser: {case.terms.splitter(size)}"
    )
    certainty: Certainty = "fact" if share >= WHOLE and len(indexes) > 1 else "hypothesis"
    return Finding("split", certainty, evidence, remedy, details)


def _is_beside(piece: Piece) -> bool:
    """Whether the passage reaches over one end of the wanted text, and ends within it."""
    return piece.begins != piece.ends


def _is_one_whole(pieces: Sequence[Piece], share: float) -> bool:
    """Whether one chunk holds all of it: then it was merged, whatever stands beside it."""
    return len(pieces) == 1 and share == 1.0


def _ranks(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
