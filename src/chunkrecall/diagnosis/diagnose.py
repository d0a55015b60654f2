"""Reads the causes of every miss from what is known, and says the systematic one first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, SupportsIndex

from chunkrecall.adapters import adapt
from chunkrecall.diagnosis import boundaries, form, index, judgement, search
from chunkrecall.diagnosis.case import Case, Lists, Wanted
from chunkrecall.diagnosis.causes import Finding, in_order
from chunkrecall.diagnosis.corpus import Corpus, read_corpus
from chunkrecall.diagnosis.probing import Probes, probe
from chunkrecall.diagnosis.remedies import missed_labels, remedies
from chunkrecall.diagnosis.result import Diagnosis, Miss
from chunkrecall.diagnosis.rules import Rules, rules_of
from chunkrecall.diagnosis.stages import StageLosses
from chunkrecall.diagnosis.systematic import headline, rules_that_help
from chunkrecall.diagnosis.terms import Terms
from chunkrecall.diagnosis.unknown import unknown
from chunkrecall.matching import Matcher
from chunkrecall.metric import Cutoff, check_k, cutoff_name, depth_of
from chunkrecall.recording import numbered
from chunkrecall.records import Chunks, DatasetInput, Run
from chunkrecall.render import count, quoted, share
from chunkrecall.report import QueryScore, Report
from chunkrecall.scoring import score

ASSUMED_TOKEN_LIMIT = 256
"""What the usual small sentence-transformers read."""
_LIMIT_NAMES = ("token_limit", "limit", "max_seq_length", "max_tokens", "model_max_length")
_SANE_LIMIT = 10_000_000  # tokenizers without one say 10 ** 30
_FEWEST_TAGGED = 2
_COLLAPSE = 0.5

TESTS: tuple[Callable[[Case], Finding | None], ...] = (
    form.text_differs,
    form.id_differs,
    index.dropped_as_duplicate,
    index.lost_at_stage,
    index.stale,
    boundaries.merged,
    boundaries.neighbour_window,
    boundaries.split,
    index.not_indexed,
    search.filtered,
    search.below_threshold,
    search.approximate_search,
    search.model_mismatch,
    search.nothing_returned,
    search.crowded_out,
    search.below_cutoff,
    index.found_by_other,
    index.wrong_chunk,
    index.truncated,
    judgement.label_doubtful,
)
_MEANS_INDEXED = frozenset({"text_differs", "id_differs", "merged", "split"})


def diagnose(
    report: Report,
    *,
    corpus: object = None,
    retriever: object = None,
    probe_depth: int | None = None,
    stages: object = None,
    others: Iterable[Report | Run] = (),
    token_counter: Callable[[str], Any] | None = None,
    token_limit: int | None = None,
    dataset: DatasetInput | None = None,
    matcher: Matcher | None = None,
    at: SupportsIndex | None = None,
) -> Diagnosis:
    """Why each missed label was missed, with the evidence, and what would bring it back.

    What cannot be known from what was passed is "unknown", and says what to pass. Nothing here
    changes the report or its scores: a retriever that is passed is copied and asked again, for the
    queries that missed something, deeper, without its filter and threshold, and with the labels'
    own texts.

    Args:
        report: Of `evaluate_retriever` or `score`. One that was loaded from a file has no metadata
            and no labelled set; pass `dataset` with it.
        corpus: All chunks that are indexed: a list of texts, Documents, nodes or Chunks; a vector
            store, docstore or index of either framework; the path of a `corpus.jsonl`.
        retriever: The retriever that the report is of.
        probe_depth: How deep to ask it; by default five times the cutoff, and 100 at least.
        stages: A recorder, or its `stages`; by default those in the report.
        others: Reports, or runs, of other retrievers over the same queries.
        token_counter: A function from a text to its number of tokens (or to the tokens) in the
            embedding model.
        token_limit: How many tokens that model reads; by default what the counter says of itself,
            or else 256.
        dataset: The labelled set, where the report has lost it.
        matcher: How the report was matched, where that was by a matcher of your own.
        at: The cutoff at which a label that is not found is a miss; the report's largest by
            default.

    Raises:
        TypeError: An argument of the wrong kind.
        ValueError: The report has no such cutoff, or a `probe_depth` below 1.
    """
    if not isinstance(report, Report):
        raise TypeError(f"report must be a Report, got {type(report).__name__}")
    k = report.cutoffs[-1] if at is None else check_k(at)
    if k not in report.cutoffs:
        report.mean(k)  # says which cutoffs there are
    depth = check_k(probe_depth)
    rules = rules_of(report, dataset, matcher, k)
    indexed = None if corpus is None else read_corpus(corpus)
    rivals = [_as_report(one, rules) for one in _listed(others)]
    missed = {
        row.query_id: [rules.wanted(row, label) for label in missed_labels(row, k)]
        for row in report.queries
        if missed_labels(row, k)
    }
    probes = probe(
        retriever, missed, rules, depth=depth, texts_of=lambda one: _texts_of(one, rules, indexed)
    )
    losses = StageLosses(stages, report)
    terms = _terms(report, retriever)
    limit, is_assumed = _limit(token_counter, token_limit)
    chunks = _lists(report)
    lists = {row.query_id: Lists(row, chunks[row.query_id], k) for row in report.queries}
    names = numbered([one.name for one in rivals])
    other_ranks = [
        (name, {row.query_id: row for row in one.queries})
        for name, one in zip(names, rivals, strict=True)
    ]
    explained: list[tuple[Case, list[Finding]]] = []
    for query_id, labels in missed.items():
        for wanted in labels:
            query = lists[query_id].query
            case = Case(
                lists=lists[query_id],
                wanted=wanted,
                rank=query.ranks[wanted.name],
                reads_ids=rules.reads_ids,
                compared=rules.compared,
                id_key=getattr(rules.matcher, "metadata_key", None),
                terms=terms,
                corpus=indexed,
                indexed=rules.indexed(wanted, indexed),
                probes=probes,
                loss=losses.of(query, wanted.name),
                has_stages=bool(losses),
                others={
                    name: _rank_of(rows.get(query_id), wanted.name, k) for name, rows in other_ranks
                },
                token_count=None,
                token_limit=limit,
                is_limit_assumed=is_assumed,
            )
            explained.append(_explained(case, token_counter))
    misses = tuple([_miss(case, findings) for case, findings in explained])
    helping = rules_that_help(explained)
    total = sum(len(row.labels) for row in report.queries if row.status == "scored")
    shares = [
        judgement.judged(one, rules, k, chunks if one is report else _lists(one))
        for one in (report, *rivals)
    ]
    candidates = [found for case, _ in explained if (found := judgement.best_candidate(case))]
    return Diagnosis(
        name=report.name,
        k=k,
        recall=report.summary[cutoff_name(k)].mean,
        headline=headline(misses, helping, total - len(misses)),
        misses=misses,
        remedies=tuple(
            remedies(explained, helping, report=report, others=rivals, rules=rules, terms=terms)
        ),
        candidates=tuple(sorted(candidates, key=lambda one: -one.similarity)),
        judged=tuple(shares),
        notes=tuple(
            chain(
                _notes(report, rules, probes, misses, losses),
                judgement.notes_on_labels(report, rules, shares, rivals),
                _variance(explained),
            )
        ),
        queries=len(report.queries),
        labels=total,
    )


def _explained(
    case: Case, token_counter: Callable[[str], Any] | None
) -> tuple[Case, list[Finding]]:
    if token_counter is not None and case.text is not None:
        counted = token_counter(case.text)
        number = counted if isinstance(counted, int) else len(counted)
        case = _with_tokens(case, number)
    findings = [found for test in TESTS if (found := test(case)) is not None]
    causes = {one.cause for one in findings}
    if causes & _MEANS_INDEXED:
        findings = [one for one in findings if one.cause != "not_indexed"]
    return case, in_order(findings) or [unknown(case)]


def _with_tokens(case: Case, number: int) -> Case:
    return replace(case, token_count=number)


def _miss(case: Case, findings: Sequence[Finding]) -> Miss:
    first = findings[0]
    return Miss(
        query_id=case.lists.query.query_id,
        query_text=case.lists.query.text,
        label=case.wanted.name,
        cause=first.cause,
        secondary=tuple([one.cause for one in findings[1:]]),
        evidence=first.evidence,
        remedy=first.remedy,
        certainty=first.certainty,
        findings=tuple(findings),
    )


def _lists(report: Report) -> dict[str, Chunks]:
    """The scored list of each query, with metadata where the run is still at hand."""
    run = report.run
    whole = {} if run is None else {one.query_id: one.chunks for one in run.rankings}
    return {row.query_id: _chunks(row, whole.get(row.query_id)) for row in report.queries}


def _chunks(row: QueryScore, whole: Chunks | None) -> Chunks:
    plain = Chunks(row.retrieved, row.retrieved_ids or None)
    if whole is None or not row.retrieved:
        return plain
    if len(whole) == len(plain):
        return whole
    # Repeats or the query's own chunk were removed before scoring: find the ones that stayed.
    kept: list[int] = []
    position = 0
    for text, chunk_id in zip(row.retrieved, row.retrieved_ids or [None] * len(plain), strict=True):
        while position < len(whole):
            chunk = whole[position]
            position += 1
            if chunk.text == text and chunk.chunk_id == chunk_id:
                kept.append(position - 1)
                break
    return whole.take(kept) if len(kept) == len(plain) else plain


def _as_report(source: object, rules: Rules) -> Report:
    if isinstance(source, Report):
        return source
    if isinstance(source, Run):
        return score(source, rules.dataset, k=rules.report.cutoffs, **rules.scoring)
    raise TypeError(f"others must hold Reports or Runs, got {type(source).__name__}")


def _listed(others: object) -> list[object]:
    if isinstance(others, (Report, Run)):
        return [others]
    if isinstance(others, Mapping):
        return list(others.values())
    if not isinstance(others, Iterable):
        raise TypeError(f"others must be a list of Reports or Runs, got {type(others).__name__}")
    return list(others)


def _rank_of(row: QueryScore | None, label: str, k: Cutoff) -> int | None:
    rank = None if row is None else row.ranks.get(label)
    return rank if rank is not None and rank <= depth_of(k) else None


def _texts_of(wanted: Wanted, rules: Rules, corpus: Corpus | None) -> Sequence[str]:
    if wanted.texts or corpus is None or not rules.reads_ids:
        return wanted.texts
    return [corpus.chunks.texts[i] for one in wanted.ids for i in corpus.by_id.get(one, ())]


def _terms(report: Report, retriever: object) -> Terms:
    if retriever is not None:
        return Terms.of(adapt(retriever).describe())
    return Terms.of(None if report.run is None else report.run.settings.get("retriever"))


def _limit(counter: object, limit: int | None) -> tuple[int, bool]:
    if limit is not None:
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise ValueError(f"token_limit must be an integer of at least 1, got {limit!r}")
        return limit, False
    for name in _LIMIT_NAMES:
        said = getattr(counter, name, None)
        if isinstance(said, int) and not isinstance(said, bool) and 0 < said < _SANE_LIMIT:
            return said, False
    return ASSUMED_TOKEN_LIMIT, True


def _notes(
    report: Report, rules: Rules, probes: Probes, misses: Sequence[Miss], losses: StageLosses
) -> Iterable[str]:
    one = report.summary[cutoff_name(rules.k)]
    if one.errored or one.not_run:
        yield (
            f"{one.errored} errored and {one.not_run} not run queries are no misses and are not "
            "diagnosed"
        )
    if misses and any(row.retrieved_count and not row.retrieved for row in report.queries):
        yield "the report keeps no texts: make it with keep_texts=True to compare them"
    if not rules.is_matcher_known:
        yield (
            f"matched by {report.rules.get('matcher')}; the corpus was looked up by exact text: "
            "pass matcher= to look it up in the same way"
        )
    if probes.refusal is not None:
        yield f"no deeper search: {probes.refusal}"
    if losses and any("lost_at_stage" in (one.cause, *one.secondary) for one in misses):
        stages = Counter(
            str(found.details.get("stage"))
            for miss in misses
            for found in miss.findings
            if found.cause == "lost_at_stage"
        )
        said = ", ".join(f"{stage} {number}" for stage, number in stages.most_common())
        yield f"labels lost by stage: {said}"
    yield from _collapsed_tags(report, rules.k)


def _collapsed_tags(report: Report, k: Cutoff) -> Iterable[str]:
    name = cutoff_name(k)
    scored = [row for row in report.queries if row.status == "scored"]
    for tag in sorted({tag for row in scored for tag in row.tags}):
        inside = [row.recall[name] or 0.0 for row in scored if tag in row.tags]
        outside = [row.recall[name] or 0.0 for row in scored if tag not in row.tags]
        if len(inside) < _FEWEST_TAGGED or not outside:
            continue
        mine, rest = sum(inside) / len(inside), sum(outside) / len(outside)
        if rest - mine >= _COLLAPSE:
            yield (
                f"queries tagged {quoted(tag, limit=60)} have {name} {share(mine)} and the others "
                f"{share(rest)}: look at what sets these "
                f"{count(len(inside), 'query', 'queries')} apart"
            )


def _variance(explained: Sequence[tuple[Case, Sequence[Finding]]]) -> Iterable[str]:
    """Whether asking the same again gave another list."""
    seen: dict[str, bool] = {}
    for case, _ in explained:
        query_id = case.lists.query.query_id
        again = case.probes.chunks.get("repeat", {}).get(query_id)
        if again is not None and query_id not in seen:
            mine = case.lists.chunks.texts
            seen[query_id] = tuple(again.texts[: len(mine)]) != tuple(mine)
    differing = sum(seen.values())
    if differing:
        yield (
            f"identical calls differ: {differing} of {len(seen)} repeated searches gave another "
            "list"
        )
