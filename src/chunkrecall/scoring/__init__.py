"""From ranked lists and labels to a report: the one place where a score is decided."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Literal

from chunkrecall.records import DatasetInput, Ranking, Run
from chunkrecall.report import QueryScore, Report
from chunkrecall.scoring.plan import NoRelevant, ScoringPlan, plan_scoring
from chunkrecall.scoring.scorer import Scorer

if TYPE_CHECKING:
    from chunkrecall.matching import Matcher
    from chunkrecall.metric import Cutoffs

__all__ = [
    "NoRelevant",
    "ScoringPlan",
    "StreamedScores",
    "plan_scoring",
    "score",
    "score_plan",
    "score_ranking",
]


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
    if on_error not in ("record", "zero"):
        raise ValueError(f"on_error must be 'record' or 'zero', got {on_error!r}")
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


def score_ranking(plan: ScoringPlan, query_id: str, ranking: Ranking) -> QueryScore:
    """The score of one ranked list under a checked plan.

    Raises:
        KeyError: The dataset has no such query.
    """
    query = plan.dataset[query_id]
    return Scorer(plan, is_complete=False).score(query, plan.labels_of(query_id), ranking)


def score_plan(run: Run, plan: ScoringPlan, *, unlabelled: int = 0) -> Report:
    """The report of a run under a checked plan.

    Args:
        run: The ranked lists.
        plan: Rules and labels.
        unlabelled: Retrievals that belong to no labelled query, besides those in the run.
    """
    rankings = {ranking.query_id: ranking for ranking in run.rankings}
    scorer = Scorer(plan, is_complete=run.complete)
    queries = tuple(
        [
            scorer.score(query, labels, rankings.get(query.query_id))
            for query, labels in zip(plan.dataset.queries, plan.labels.queries, strict=True)
        ]
    )
    unlabelled += sum(query_id not in plan.dataset for query_id in rankings)
    return _report(run, plan, scorer, queries, unlabelled)


class StreamedScores:
    """Scores each ranked list as it comes, so that no text is held longer than its query takes."""

    def __init__(self, plan: ScoringPlan) -> None:
        self._plan = plan
        self._scorer = Scorer(plan, is_complete=False)
        self._scores: dict[str, QueryScore] = {}
        self._lock = Lock()

    def keep(self, ranking: Ranking) -> Ranking:
        """The ranking without its chunks; of several of one query the last one counts."""
        query_id = ranking.query_id
        with self._lock:
            labels = self._plan.labels_of(query_id)
            self._scores[query_id] = self._scorer.score(
                self._plan.dataset[query_id], labels, ranking
            )
        return ranking.without_chunks()

    def report(self, run: Run) -> Report:
        """The report of the run, whose rankings have been kept; the others were not run."""
        plan, scorer = self._plan, self._scorer
        queries = tuple(
            [
                self._scores.get(query.query_id) or scorer.score(query, labels, None)
                for query, labels in zip(plan.dataset.queries, plan.labels.queries, strict=True)
            ]
        )
        return _report(run, plan, scorer, queries, 0)


def _report(
    run: Run,
    plan: ScoringPlan,
    scorer: Scorer,
    queries: tuple[QueryScore, ...],
    unlabelled: int,
) -> Report:
    return Report(
        name=run.name,
        cutoffs=plan.cutoffs,
        queries=queries,
        rules=plan.rules(),
        notes=(*run.notes, *plan.labels.notes, *scorer.notes(run, unlabelled)),
        dataset_name=plan.dataset.name,
        # Made when somebody asks: it costs as much as a quarter of the scoring.
        fingerprint_of=plan.dataset if plan.keep_texts else plan.dataset.fingerprint,
        unlabelled=unlabelled,
        absent=scorer.absent,
        rejected=scorer.rejected,
        rejectable=scorer.rejectable,
        has_ceiling=scorer.has_keys and not plan.labels.has_groups,
        matcher=plan.labels.matcher,
        run=run if plan.keep_texts else None,
    )
