"""A miss that nothing explains: what to pass to learn more."""

from __future__ import annotations

from chunkrecall.diagnosis.case import Case
from chunkrecall.diagnosis.causes import Finding


def unknown(case: Case) -> Finding:
    """Says what was looked at, and what would tell more."""
    known = []
    wanted = []
    if not case.lists.chunks.texts and case.lists.query.retrieved_count:
        wanted.append("a report that keeps its texts (keep_texts=True), to compare them")
    if case.corpus is None:
        wanted.append("corpus=, to tell whether the label is indexed, and in which form")
    elif not case.is_comparable:
        wanted.append("a corpus whose chunks say where they stand, as the label is a place alone")
    elif case.indexed:
        known.append("it is indexed")
    if case.probes.depth is not None:
        known.append(f"it is not among the first {case.probes.depth}")
        wanted.append(f"a probe_depth= above {case.probes.depth}, to see its rank")
    elif case.probes.refusal is not None:
        known.append(f"its rank is unknown, as {case.probes.refusal}")
        wanted.append("a report of a retriever that returns more, to see its rank")
    else:
        wanted.append("retriever= (and probe_depth=), to see its rank in a deeper search")
    if not case.has_stages:
        wanted.append("stages=, if the pipeline has several")
    if not case.others:
        wanted.append("others=, to see whether another retriever finds it")
    if case.token_count is None and case.text is not None:
        wanted.append("token_counter=, to see whether the embedding model reads all of it")
    evidence = f"not known; {'; '.join(known)}" if known else "not known from what was passed"
    return Finding(
        "unknown",
        "hypothesis",
        evidence,
        f"pass {'; '.join(wanted)}" if wanted else "look at the query and the label",
        {"pass": wanted},
    )
