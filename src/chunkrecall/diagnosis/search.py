"""Causes that lie in the search: limits, approximation, mismatched models, depth."""

from __future__ import annotations

from math import isclose

from chunkrecall.diagnosis.case import Case
from chunkrecall.diagnosis.causes import Certainty, Finding
from chunkrecall.metric import depth_of
from chunkrecall.records import Chunks
from chunkrecall.render import count


def filtered(case: Case) -> Finding | None:
    """The label comes back when the filter is lifted."""
    return _lifted(case, "filter", "filtered", "correct the metadata or the filter")


def below_threshold(case: Case) -> Finding | None:
    """The label comes back when the score threshold is lifted."""
    return _lifted(case, "threshold", "below_threshold", "lower the threshold")


def _lifted(case: Case, limit: str, cause: str, remedy: str) -> Finding | None:
    rank = case.probes.rank(limit, case)
    if rank is None or not case.probes.has("deeper", case) or case.is_reachable:
        return None
    said = case.probes.limits.get(limit, limit)
    score = _score_at(case.probes.chunks.get(limit, {}).get(case.lists.query.query_id), rank)
    scored = "" if score is None else f" with the score {score:.4g}"
    evidence = (
        f"without the {limit} ({said}) it stands at rank {rank}{scored}; with it, nowhere in the "
        f"first {case.probes.depth}"
    )
    return Finding(cause, "fact", evidence, f"{remedy}: {said}", {"rank": rank, limit: said})


def approximate_search(case: Case) -> Finding | None:
    """A deeper search ranks it within the cutoff, and the search that was scored did not."""
    rank = case.probes.rank("deeper", case)
    if rank is None or not case.is_within(rank) or case.rank is not None:
        return None
    is_better = _is_better(case, rank)
    if is_better is False:  # a tie, which any search may break as it likes
        return None
    again = case.probes.rank("repeat", case)
    varies = case.is_within(again) or not case.probes.has("repeat", case)
    depth = case.probes.depth
    evidence = f"a search for {depth} ranks it {rank}, the scored one did not return it"
    if is_better:
        evidence += ", and returned chunks with a worse score"
    if case.is_within(again):
        evidence += f"; the same search repeated ranks it {again}: identical calls differ"
    remedy = (
        "search more exactly (larger ef_search or nprobe, or a flat index), or ask for more and "
        f"keep the first: {case.terms.depth(depth or rank)}"
    )
    # Where identical calls differ, chance alone may have brought it; without scores, a tie.
    certainty: Certainty = "fact" if is_better and not varies else "hypothesis"
    details = {"rank": rank, "probe_depth": depth, "repeat_rank": again}
    return Finding("approximate_search", certainty, evidence, remedy, details)


def _is_better(case: Case, rank: int) -> bool | None:
    """Whether its score differs from that of a scored chunk below it; None without scores."""
    deep = case.probes.chunks["deeper"].get(case.lists.query.query_id)
    own = _score_at(deep, rank)
    if deep is None or own is None:
        return None
    scored = set(case.lists.top)
    below = [deep[i].score for i in range(rank, len(deep)) if deep.texts[i] in scored]
    return any(score is not None and not isclose(score, own) for score in below)


def model_mismatch(case: Case) -> Finding | None:
    """Asked with the label's own text, the retriever does not bring it to the top."""
    key = (case.lists.query.query_id, case.wanted.name)
    if key not in case.probes.own_ranks or case.probes.limits:
        return None
    own = case.probes.own_ranks[key]
    known = case.is_reachable or bool(case.indexed)
    if not known or (own is not None and own <= max(3, min(10, depth_of(case.k)))):
        return None
    place = f"at rank {own}" if own is not None else f"not among the first {case.probes.depth}"
    evidence = f"asked with the label's own text, the retriever has it {place}; it should be first"
    remedy = (
        "embed queries and documents with one model and one normalisation, and index again what "
        "was embedded with another"
    )
    return Finding("model_mismatch", "hypothesis", evidence, remedy, {"own_rank": own})


def crowded_out(case: Case) -> Finding | None:
    """Without the repeats before it, it would be within the cutoff."""
    rank, chunks = _standing(case)
    if rank is None or chunks is None or rank > len(chunks):
        return None
    distinct = len(set(chunks.texts[: rank - 1]) - {""}) + 1
    repeats = rank - distinct
    if not repeats or distinct > depth_of(case.k):
        return None
    evidence = (
        f"at rank {rank}; at rank {distinct} without the {count(repeats, 'repeat', 'repeats')} of "
        "other chunks before it"
    )
    remedy = "index every text once, or remove repeats before the cut (dedupe=True)"
    details = {"rank": rank, "rank_without_repeats": distinct}
    return Finding("crowded_out", "fact", evidence, remedy, details)


def below_cutoff(case: Case) -> Finding | None:
    """It was found, at a rank that is known."""
    rank, _ = _standing(case)
    form = ""
    if rank is None and case.form_rank is not None:
        rank, form = case.form_rank, ", in another form,"
    if rank is None or case.is_within(rank):
        return None
    is_listed = rank <= len(case.lists.chunks)
    how = "" if is_listed else f" of a deeper search for {case.probes.depth}"
    is_short = case.reach < depth_of(case.k)
    last = f"the list of {case.lists.query.retrieved_count} chunks" if is_short else case.k
    evidence = f"at rank {rank}{form}{how}, below {last if is_short else f'the cutoff {last}'}"
    remedy = f"ask for more, {case.terms.depth(rank)}, or rerank"
    return Finding("below_cutoff", "fact", evidence, remedy, {"rank": rank})


def nothing_returned(case: Case) -> Finding | None:
    """The list is empty."""
    if case.lists.query.retrieved_count:
        return None
    return Finding(
        "nothing_returned",
        "fact",
        "no results at all (empty list)",
        "look at what the retriever makes of this query: tokeniser, stemmer, language, filters",
        {"retrieved_count": 0},
    )


def _standing(case: Case) -> tuple[int | None, Chunks | None]:
    """The rank of the label, and the list in which it has it."""
    if case.rank is not None:
        return case.rank, case.lists.chunks
    rank = case.probes.rank("deeper", case)
    if rank is None:
        return None, None
    return rank, case.probes.chunks["deeper"].get(case.lists.query.query_id)


def _score_at(chunks: Chunks | None, rank: int) -> float | None:
    if chunks is None or rank > len(chunks):
        return None
    return chunks[rank - 1].score
