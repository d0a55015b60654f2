"""LangSmith evaluators that score the documents a target returned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from langsmith.evaluation import EvaluationResult, EvaluationResults, RunEvaluator

from chunkrecall.adapters import CONTAINER_KEYS, container_key, to_chunks
from chunkrecall.metric import Cutoffs, check_ks, cutoff_name
from chunkrecall.records import Dataset, Query, Ranking, Run
from chunkrecall.records.rows import RowError, label_from_row
from chunkrecall.report import summarize
from chunkrecall.retrieval import Attempt, describe_error
from chunkrecall.scoring import plan_scoring, score_plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from langsmith.schemas import Example
    from langsmith.schemas import Run as LangSmithRun

    from chunkrecall.matching import Matcher
    from chunkrecall.report import QueryScore

_QUERY_KEYS = ("query", "question", "input", "text")


class RecallEvaluator(RunEvaluator):
    """Recall@K of each example, for `langsmith.evaluate` and for a direct call.

    A LangSmith `RunEvaluator` that gives one `recall@k` for each cutoff and never raises: a row
    that cannot be scored gets the score None and a comment. Called as `evaluator(outputs=…,
    reference_outputs=…)`, the shape of openevals, it gives a list of `{"key", "score", "comment"}`.

    Documents are read from a list of Documents, texts or serialised documents, from a dict that
    holds one under `documents`, `context`, `source_documents` or `output`, and from the artifacts
    of tool messages, also within a graph's state.

    Args:
        k: One cutoff or several.
        matcher: How labels are compared with chunks; as in `evaluate_retriever`.
        query_key: The key of the example's inputs that holds the question, shown in comments.
        documents_key: The key of the outputs that holds the documents, where it is not a usual one.
        relevant_key: The key of the reference outputs that holds the labels: chunk texts, label
            objects, or lists of alternatives. `<relevant_key>_ids` holds chunk ids.
    """

    def __init__(
        self,
        k: Cutoffs = 5,
        *,
        matcher: Matcher | None = None,
        query_key: str | None = None,
        documents_key: str | None = None,
        relevant_key: str = "relevant",
    ) -> None:
        self.cutoffs = check_ks(k)
        """Ascending; None is the whole list."""
        self._matcher = matcher
        self._query_key = query_key
        self._documents_key = documents_key
        self._relevant_key = relevant_key

    @property
    def feedback_keys(self) -> list[str]:
        """`recall@k` for each cutoff; LangSmith needs them for rows on which an evaluator fails."""
        return [cutoff_name(k) for k in self.cutoffs]

    def evaluate_run(
        self,
        run: LangSmithRun,
        example: Example | None = None,
        evaluator_run_id: UUID | None = None,  # noqa: ARG002 - LangSmith passes it by name
    ) -> EvaluationResults:
        """One result for each cutoff."""
        rows = self._results(
            inputs=(example.inputs if example is not None else run.inputs) or {},
            outputs=run.outputs,
            reference_outputs=None if example is None else example.outputs,
            error=run.error,
        )
        return {
            "results": [
                EvaluationResult(
                    key=row["key"],
                    score=row["score"],
                    comment=row["comment"],
                    extra={"error": True} if row["failed"] else None,
                )
                for row in rows
            ]
        }

    def __call__(
        self,
        *,
        inputs: Mapping[str, Any] | None = None,
        outputs: Any,  # noqa: ANN401 - whatever the target returned
        reference_outputs: Mapping[str, Any] | None = None,
        **kwargs: Any,  # noqa: ANN401, ARG002 - openevals passes more
    ) -> list[dict[str, Any]]:
        """One `{"key", "score", "comment"}` for each cutoff."""
        rows = self._results(
            inputs=inputs or {}, outputs=outputs, reference_outputs=reference_outputs, error=None
        )
        return [{key: row[key] for key in ("key", "score", "comment")} for row in rows]

    def _results(
        self, *, inputs: object, outputs: object, reference_outputs: object, error: str | None
    ) -> list[dict[str, Any]]:
        if error:
            message = error.strip() or "without a message"
            return self._unusable(f"the target failed: {message.splitlines()[-1]}")
        with Attempt() as attempt:
            attempt.value = self.score_row(
                inputs=inputs, outputs=outputs, reference_outputs=reference_outputs
            )
        if attempt.error is not None:
            return self._unusable(describe_error(attempt.error))
        score: QueryScore = attempt.value
        if score.error is not None:
            return self._unusable(score.error)
        return [
            {
                "key": cutoff_name(k),
                "score": score.recall[cutoff_name(k)],
                "comment": score.reason_at(k),
                "failed": False,
            }
            for k in self.cutoffs
        ]

    def score_row(
        self,
        *,
        inputs: object,
        outputs: object,
        reference_outputs: object,
        error: str | None = None,
    ) -> QueryScore:
        """The score of one row; it is errored where the outputs cannot be read.

        Args:
            inputs: Those of the example.
            outputs: What the target returned.
            reference_outputs: Those of the example.
            error: What LangSmith says of a target that failed.

        Raises:
            TypeError: Labels of a kind that cannot be read.
            ValueError: There are no labels under the key that was given, or the matcher cannot
                read them.
        """
        query = self._query(inputs, reference_outputs)
        plan = plan_scoring(
            Dataset([query]),
            k=self.cutoffs,
            matcher=self._matcher,
            relevance_level=1,
            dedupe=False,
            exclude_self=False,
            no_relevant="exclude",
            on_error="record",
            keep_texts=True,
        )
        with Attempt() as attempt:
            attempt.value = to_chunks(_documents(outputs, self._documents_key))
        if not error and attempt.error is not None:
            error = describe_error(attempt.error)
        chunks = () if error else attempt.value
        ranking = Ranking(query_id=query.query_id, chunks=chunks, error=error or None)
        return score_plan(Run(rankings=[ranking]), plan).queries[0]

    def _query(self, inputs: object, reference_outputs: object) -> Query:
        relevant, relevant_ids = self._labels(reference_outputs)
        return Query(
            query_id="row",
            text=self._question(inputs),
            relevant=relevant,
            relevant_ids=relevant_ids,
        )

    def _labels(self, reference_outputs: object) -> tuple[list[Any] | None, list[str] | None]:
        if reference_outputs is None:
            return None, None
        if not isinstance(reference_outputs, Mapping):
            raise TypeError(
                f"the reference outputs must be a dict with {self._relevant_key!r}, got "
                f"{type(reference_outputs).__name__} {reference_outputs!r:.80}"
            )
        relevant = reference_outputs.get(self._relevant_key)
        ids = reference_outputs.get(f"{self._relevant_key}_ids")
        if relevant is None and ids is None and reference_outputs:
            raise ValueError(
                f"the reference outputs have no {self._relevant_key!r}; they have "
                f"{sorted(map(str, reference_outputs))} — name the key with relevant_key=…"
            )
        if relevant is None:
            return None, ids
        key = self._relevant_key
        labels = [_label(one, f'"{key}"[{index}]') for index, one in enumerate(_listed(relevant))]
        return labels, ids

    def _question(self, inputs: object) -> str:
        if isinstance(inputs, str):
            return inputs
        if isinstance(inputs, Mapping):
            for key in (self._query_key,) if self._query_key else _QUERY_KEYS:
                if isinstance(inputs.get(key), str):
                    question: str = inputs[key]
                    return question
        return ""

    def _unusable(self, comment: str) -> list[dict[str, Any]]:
        return [
            {"key": key, "score": None, "comment": comment, "failed": True}
            for key in self.feedback_keys
        ]


def recall_summary_evaluator(
    k: Cutoffs = 5,
    *,
    matcher: Matcher | None = None,
    documents_key: str | None = None,
    relevant_key: str = "relevant",
) -> Callable[[Sequence[LangSmithRun], Sequence[Example]], EvaluationResults]:
    """A LangSmith summary evaluator: mean recall at each cutoff over the rows that have a score.

    Each row is scored alone, as `RecallEvaluator` does it. The comment says over how many rows the
    mean is, and how many were undefined or failed. Means are exact. Arguments are those of
    `RecallEvaluator`.
    """
    evaluator = RecallEvaluator(
        k, matcher=matcher, documents_key=documents_key, relevant_key=relevant_key
    )

    def recall_summary(
        runs: Sequence[LangSmithRun], examples: Sequence[Example]
    ) -> EvaluationResults:
        scores, unreadable = _row_scores(evaluator, runs, examples)
        summary = summarize(scores, evaluator.cutoffs, unlabelled=0, has_ceiling=False)
        results = []
        for key in evaluator.feedback_keys:
            one = summary[key]
            comment = (
                f"mean over {one.averaged_over} of {one.total + unreadable} examples; "
                f"{one.undefined} undefined, {one.errored + unreadable} failed"
            )
            if unreadable:
                comment += f", {unreadable} of them with labels that cannot be read"
            results.append(EvaluationResult(key=key, score=one.mean, comment=comment))
        return {"results": results}

    return recall_summary


def _row_scores(
    evaluator: RecallEvaluator, runs: Sequence[LangSmithRun], examples: Sequence[Example]
) -> tuple[list[QueryScore], int]:
    """The score of each row, scored alone as the evaluator does; how many have no usable labels."""
    scores: list[QueryScore] = []
    unreadable = 0
    for run, example in zip(runs, examples, strict=True):
        with Attempt() as attempt:
            attempt.value = evaluator.score_row(
                inputs=example.inputs,
                outputs=run.outputs,
                reference_outputs=example.outputs,
                error=run.error,
            )
        if attempt.error is None:
            scores.append(attempt.value)
        else:
            unreadable += 1
    return scores, unreadable


def _documents(outputs: object, key: str | None) -> object:
    """The list of documents in what a target returned."""
    if key is not None:
        if not isinstance(outputs, Mapping) or key not in outputs:
            known = sorted(map(str, outputs)) if isinstance(outputs, Mapping) else "no dict"
            raise ValueError(f"the outputs have no {key!r}; there is {known}")
        return outputs[key]
    if isinstance(outputs, Mapping):
        name = container_key(outputs)
        inside = None if name is None else outputs[name]
        messages = outputs.get("messages")
        is_answer = inside is None or isinstance(inside, str)
        if is_answer and isinstance(messages, Sequence) and not isinstance(messages, str):
            return _artifacts(messages)
        if inside is not None:
            return _documents(inside, None) if isinstance(inside, Mapping) else inside
        raise ValueError(
            f"the outputs hold no documents under {', '.join(map(repr, CONTAINER_KEYS))}; they "
            f"have {sorted(map(str, outputs))} — name the key with documents_key=…"
        )
    if outputs is None:
        raise ValueError("the target returned nothing")
    if hasattr(outputs, "artifact"):
        return _artifacts([outputs])
    return outputs


def _artifacts(messages: Sequence[object]) -> list[object]:
    """The documents in the artifacts of tool messages, in order."""
    found: list[object] = []
    seen = False
    for message in messages:
        artifact = getattr(message, "artifact", None)
        if isinstance(artifact, (list, tuple)):
            seen = True
            found.extend(artifact)
    if not seen:
        raise ValueError(
            "no tool message carries documents: make the retriever tool with "
            'create_retriever_tool(…, response_format="content_and_artifact")'
        )
    return found


def _listed(values: object) -> list[Any]:
    if isinstance(values, (str, bytes)) or not isinstance(values, Sequence):
        raise TypeError(f"labels must be a list, got {type(values).__name__} {values!r:.80}")
    return list(values)


def _label(item: object, place: str) -> Any:  # noqa: ANN401 - a text, a Label or a list of them
    """A label as JSON or Python code may hold it."""
    if isinstance(item, list):
        return [_label(member, f"{place}[{index}]") for index, member in enumerate(item)]
    if not isinstance(item, Mapping):
        return item
    try:
        return label_from_row(item, place)
    except RowError as error:
        raise ValueError(str(error)) from None
