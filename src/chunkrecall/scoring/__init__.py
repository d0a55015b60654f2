"""From ranked lists and labels to a report: the one place where a score is decided."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from chunkrecall.matching import Matcher
from chunkrecall.metric import Cutoff, Cutoffs, check_ks, cutoff_name, hit_positions
from chunkrecall.records import Chunks, Dataset, DatasetInput, Ranking, Run, as_dataset
from chunkrecall.report import QueryScore, Report
from chunkrecall.scoring.labels import ActiveLabels, LabelPlan, first_ranks_in, plan_labels

if TYPE_CHECKING:
    from chunkrecall.records import Query

__all__ = ["NoRelevant", "ScoringPlan", "plan_scoring", "score", "score_plan", "score_ranking"]

NoRelevant = Literal["exclude", "zero", "one", "mlflow"]
_SELF_HITS_SHARE = 0.1


@dataclass(frozen=True, kw_only=True)
class ScoringPlan:
    """Checked rules and labels: everything that can be refused before anything is retrieved."""

    dataset: Dataset
    labels: LabelPlan
    cutoffs: tuple[Cutoff, ...]
    relevance_level: int
    dedupe: bool
    exclude_self: bool
    no_relevant: NoRelevant
    on_error: str
    keep_texts: bool

    @property
    def depth(self) -> int | None:
        """The largest cutoff that is a number; None when there is none."""
        numbers = [k for k in self.cutoffs if k is not None]
        return max(numbers) if numbers else None

    def labels_of(self, query_id: str) -> ActiveLabels:
        """The active labels of one query."""
        return self._labels_by_id[query_id]

    @cached_property
    def _labels_by_id(self) -> dict[str, ActiveLabels]:
        ids = (query.query_id for query in self.dataset.queries)
        return dict(zip(ids, self.labels.queries, strict=True))

    def rules(self) -> dict[str, Any]:
        """The rules as plain JSON values."""
        return {
            "matcher": self.labels.matcher.describe(),
            "relevance_level": self.relevance_level,
            "dedupe": self.dedupe,
            "exclude_self": self.exclude_self,
            "no_relevant": self.no_relevant,
            "on_error": self.on_error,
        }


def score(
    run: Run,
    dataset: DatasetInput,
    *,
    k: Cutoffs = (1, 3, 5, 10),
    matcher: Matcher | None = None,
    relevance_level: int = 1,
    dedupe: bool = False,
    exclude_self: bool = False,
    no_relevant: NoRelevant = "exclude",
    on_error: Literal["record", "zero"] = "record",
    keep_texts: bool = True,
) -> Report:
    """Score the ranked lists of a run against a labelled dataset.

    Recall is per query, |labels found in the first k| / |labels|, and its mean is over queries. A
    query without labels is undefined, one whose retrieval failed is errored; neither enters the
    mean unless a policy says so. A query that a complete run does not mention retrieved nothing and
    scores 0, as with trec_eval's `-c`.

    Args:
        run: The ranked lists; those of queries that the dataset lacks are counted as unlabelled.
        dataset: The labelled queries.
        k: One cutoff or several, each at least 1; None is the whole list.
        matcher: How labels are compared; by default `ChunkId()` when every label is an id alone,
            else `ExactText()`.
        relevance_level: The grade from which on a label counts, at least 1.
        dedupe: Remove repeated chunks before the list is cut; otherwise a repeat occupies its slot.
        exclude_self: Remove a chunk whose id is the query's.
        no_relevant: What a query gets that was judged to have nothing relevant: nothing
            ("exclude"), 0, 1, or with "mlflow" 1 when nothing was retrieved and 0 otherwise.
        on_error: "zero" gives an errored query 0; its status stays errored.
        keep_texts: Whether the report keeps the retrieved texts.

    Raises:
        ValueError: An invalid argument, or a label that the matcher cannot read.
        DatasetError: One label with different grades.
    """
    if not isinstance(run, Run):
        raise TypeError(f"run must be a Run, got {type(run).__name__} — read a file with load_run")
    plan = plan_scoring(
        dataset,
        k=k,
        matcher=matcher,
        relevance_level=relevance_level,
        dedupe=dedupe,
        exclude_self=exclude_self,
        no_relevant=no_relevant,
        on_error=on_error,
        keep_texts=keep_texts,
    )
    return score_plan(run, plan)


def plan_scoring(
    dataset: DatasetInput,
    *,
    k: Cutoffs,
    matcher: Matcher | None,
    relevance_level: int,
    dedupe: bool,
    exclude_self: bool,
    no_relevant: NoRelevant,
    on_error: str,
    keep_texts: bool,
) -> ScoringPlan:
    """Check the rules and settle the labels; arguments and errors are those of `score`."""
    if isinstance(relevance_level, bool) or not isinstance(relevance_level, int):
        raise TypeError(f"relevance_level must be an integer, got {relevance_level!r}")
    if relevance_level < 1:
        raise ValueError(f"relevance_level must be at least 1, got {relevance_level}")
    if no_relevant not in ("exclude", "zero", "one", "mlflow"):
        raise ValueError(
            f"no_relevant must be 'exclude', 'zero', 'one' or 'mlflow', got {no_relevant!r}"
        )
    if on_error not in ("record", "zero", "raise"):
        raise ValueError(f"on_error must be 'record', 'zero' or 'raise', got {on_error!r}")
    labelled = as_dataset(dataset)
    return ScoringPlan(
        dataset=labelled,
        labels=plan_labels(labelled, matcher, relevance_level),
        cutoffs=check_ks(k),
        relevance_level=relevance_level,
        dedupe=dedupe,
        exclude_self=exclude_self,
        no_relevant=no_relevant,
        on_error=on_error,
        keep_texts=keep_texts,
    )


def score_ranking(plan: ScoringPlan, query_id: str, ranking: Ranking) -> QueryScore:
    """The score of one ranked list under a checked plan.

    Raises:
        KeyError: The dataset has no such query.
    """
    query = plan.dataset[query_id]
    return _Scorer(plan, is_complete=False).score(query, plan.labels_of(query_id), ranking)


def score_plan(run: Run, plan: ScoringPlan, *, unlabelled: int = 0) -> Report:
    """The report of a run under a checked plan.

    Args:
        run: The ranked lists.
        plan: Rules and labels.
        unlabelled: Retrievals that belong to no labelled query, besides those in the run.
    """
    rankings = {ranking.query_id: ranking for ranking in run.rankings}
    scorer = _Scorer(plan, is_complete=run.complete)
    queries = tuple(
        [
            scorer.score(query, labels, rankings.get(query.query_id))
            for query, labels in zip(plan.dataset.queries, plan.labels.queries, strict=True)
        ]
    )
    unlabelled += sum(query_id not in plan.dataset for query_id in rankings)
    return Report(
        name=run.name,
        cutoffs=plan.cutoffs,
        queries=queries,
        rules=plan.rules(),
        notes=(*run.notes, *plan.labels.notes, *scorer.notes(unlabelled)),
        dataset_name=plan.dataset.name,
        dataset_fingerprint=plan.dataset.fingerprint,
        unlabelled=unlabelled,
        absent=scorer.absent,
        rejected=scorer.rejected,
        rejectable=scorer.rejectable,
        has_ceiling=scorer.has_keys and not plan.labels.has_groups,
        run=run if plan.keep_texts else None,
    )


class _Scorer:
    """Scores one query after another and remembers what the reader should know."""

    def __init__(self, plan: ScoringPlan, *, is_complete: bool) -> None:
        self._plan = plan
        self._matcher = plan.labels.matcher
        self._keyed = plan.labels.keyed
        self.has_keys = callable(getattr(self._matcher, "key", None))
        self._is_complete = is_complete
        self.absent = self.rejected = self.rejectable = 0
        self._answered = self._longest = self._removed = 0
        self._self_hits = self._textless = self._keyless = self._chunks = 0

    def score(self, query: Query, labels: ActiveLabels, ranking: Ranking | None) -> QueryScore:
        chunks = self._answer(query, ranking)
        common: dict[str, Any] = {
            "query_id": query.query_id,
            "text": query.text,
            "cutoffs": self._plan.cutoffs,
            "labels": labels.names,
            "tags": query.tags,
            "latency_s": None if ranking is None else ranking.latency_s,
            "error": None if ranking is None else ranking.error,
            "exception": None if ranking is None else ranking.exception,
        }
        if chunks is None:
            common["label_ranks"] = (None,) * len(labels.names)
        else:
            chunks, keys = self._scored_list(query, chunks)
            common["label_ranks"] = self._ranks(labels, chunks, keys)
            common["retrieved_count"] = len(chunks)
            if self._plan.keep_texts:
                common["retrieved"] = tuple(chunks.texts)  # the same tuple, where it is one
                common["retrieved_ids"] = (
                    () if chunks.chunk_ids is None else tuple(chunks.chunk_ids)
                )
        if not labels.names:
            assigned = self._without_labels(query, chunks)
            return QueryScore(
                status="undefined",
                assigned=assigned,
                explanation=self._why_undefined(query),
                **common,
            )
        if ranking is not None and ranking.error is not None:
            return QueryScore(
                status="errored",
                assigned=0.0 if self._plan.on_error == "zero" else None,
                explanation=f"the retriever failed: {ranking.error}",
                **common,
            )
        if chunks is None:
            return QueryScore(
                status="not_run", explanation="the run ended before this query", **common
            )
        if ranking is None:
            self.absent += 1
            common["explanation"] = "absent from the run"
        return QueryScore(status="scored", **common)

    def _answer(self, query: Query, ranking: Ranking | None) -> Chunks | None:
        """What was retrieved; None when there is no answer to score."""
        if ranking is None:
            return Chunks(()) if self._is_complete else None
        if ranking.error is not None:
            return None
        chunks = ranking.chunks
        self._answered += 1
        self._longest = max(self._longest, len(chunks))
        self._chunks += len(chunks)
        if "" in chunks.texts:
            self._textless += chunks.texts.count("")
        if chunks.chunk_ids is not None and query.query_id in chunks.chunk_ids:
            self._self_hits += 1
        return chunks

    def _scored_list(self, query: Query, chunks: Chunks) -> tuple[Chunks, Sequence[Hashable]]:
        """The list that is cut, and its keys, after the removals that the rules ask for."""
        keys = chunks.texts if self._keyed is None else self._keyed.chunk_keys(chunks)
        if len(keys) != len(chunks):
            raise ValueError(
                f"matcher {self._matcher.describe()!r} gave {len(keys)} keys for "
                f"{len(chunks)} chunks"
            )
        if self._keyed is not None and not any(keys):
            self._keyless += len(chunks)
        if not (self._plan.dedupe or self._plan.exclude_self):
            return chunks, keys
        kept = []
        seen: set[Hashable] = set()
        for index, key in enumerate(keys):
            if (
                self._plan.exclude_self
                and chunks.chunk_ids is not None
                and chunks.chunk_ids[index] == query.query_id
            ):
                continue
            if self._plan.dedupe and key not in (
                None,
                "",
            ):  # chunks without text or id are no repeats of each other
                if key in seen:
                    continue
                seen.add(key)
            kept.append(index)
        self._removed += len(keys) - len(kept)
        return chunks.take(kept), [keys[index] for index in kept]

    def _ranks(
        self, labels: ActiveLabels, chunks: Chunks, keys: Sequence[Hashable]
    ) -> tuple[int | None, ...]:
        if not labels.names:
            return ()
        if self._keyed is not None:
            wanted = {key for one in labels.keys for key in one}
            ranks = {keys[rank - 1]: rank for rank in hit_positions(wanted, keys)}
            return first_ranks_in(ranks, labels.keys)
        flat = [member for members in labels.members for member in members]
        given = tuple(self._matcher.first_ranks(flat, chunks))
        if len(given) != len(flat) or not all(
            rank is None or 1 <= rank <= len(chunks) for rank in given
        ):
            raise ValueError(
                f"matcher {self._matcher.describe()!r} must give one rank from 1 to {len(chunks)} "
                f"or None for each of {len(flat)} labels, got {given!r:.200}"
            )
        rest = iter(given)
        return tuple(
            min((rank for rank in [next(rest) for _ in members] if rank is not None), default=None)
            for members in labels.members
        )

    def _without_labels(self, query: Query, chunks: Chunks | None) -> float | None:
        """Counts correct rejections; the value that the policy assigns, if any."""
        if not query.judged:
            return None
        if chunks is not None:
            self.rejectable += 1
            self.rejected += not chunks
        policy = self._plan.no_relevant
        if policy == "mlflow":
            return None if chunks is None else float(not chunks)
        return {"zero": 0.0, "one": 1.0}.get(policy)

    def _why_undefined(self, query: Query) -> str:
        if not query.judged:
            return "nobody judged what is relevant (no labels)"
        if query.relevant:
            return f"no label reaches relevance level {self._plan.relevance_level}"
        return "judged, and nothing is relevant"

    def notes(self, unlabelled: int) -> list[str]:
        """What the rankings show that a reader of the means should know."""
        plan = self._plan
        notes = []
        if plan.relevance_level != 1:
            notes.append(f"labels count from grade {plan.relevance_level} on")
        if plan.dedupe:
            notes.append("repeated chunks were removed before the cut (dedupe=True)")
        if plan.exclude_self:
            notes.append("chunks with the query's own id were removed (exclude_self=True)")
        if plan.no_relevant != "exclude":
            notes.append(
                f"queries with nothing relevant got a value by the policy no_relevant="
                f"{plan.no_relevant!r}"
            )
        if plan.on_error == "zero":
            notes.append("errored queries count as 0 in the mean (on_error='zero')")
        deeper = [k for k in plan.cutoffs if k is not None and k > self._longest]
        if self._answered and deeper:
            names = ", ".join(cutoff_name(k) for k in deeper)
            verb = "was" if len(deeper) == 1 else "were"
            notes.append(
                f"{names} {verb} measured on lists of at most {self._longest} chunks: raise the "
                "retriever's own k"
            )
        if self._chunks and self._keyless == self._chunks:
            notes.append(
                f"no retrieved chunk has a value to match by ({self._matcher.describe()}): give "
                "the chunks ids when you index them (Document(id=…), TextNode(id_=…)), or name the "
                "metadata key that holds them with ChunkId(key=…)"
            )
        if self._textless:
            notes.append(
                f"{self._textless} retrieved chunks have no text; they hold their rank and match "
                "no text"
            )
        if not plan.exclude_self and self._self_hits > self._answered * _SELF_HITS_SHARE:
            notes.append(
                f"in {self._self_hits} of {self._answered} queries a retrieved chunk has the "
                "query's own id: exclude_self=True removes it"
            )
        if unlabelled:
            notes.append(f"{unlabelled} retrievals belong to no labelled query")
        return notes
