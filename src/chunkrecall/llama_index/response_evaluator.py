"""Recall of the chunks behind a query engine's answer, for `BatchEvalRunner`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llama_index.core.evaluation.base import BaseEvaluator, EvaluationResult

from chunkrecall.llama_index.metric import score_labels
from chunkrecall.llama_index.nodes import TextFrom, nodes_to_chunks
from chunkrecall.metric import Cutoffs, check_ks, cutoff_name
from chunkrecall.records import Chunks, Label
from chunkrecall.retrieval import Attempt, describe_error

if TYPE_CHECKING:
    from llama_index.core.prompts.mixin import PromptDictType

    from chunkrecall.matching import Matcher
    from chunkrecall.report import QueryScore


class ResponseRecallEvaluator(BaseEvaluator):
    """Recall of the chunks that a response was written from, after all postprocessors.

    Never raises: a row that cannot be scored is an invalid result with the reason, since one
    exception ends a whole `BatchEvalRunner` run, after three tries.

    Labels come with each row: `reference_contexts`, a list of chunk texts (or `Label`s, or lists of
    alternatives), or `reference_ids`, a list of node ids. Give a runner a list of them, as long as
    the queries, for all its evaluators, or `{"evaluator name": {"reference_contexts": […]}}`.

    Args:
        k: One cutoff or several; None is the whole list. The score is that at the largest.
        matcher: How labels are compared with chunks; as in `evaluate_retriever`.
        threshold: The score from which on a row passes; without it `passing` is None.
        text_from: As in `LlamaIndexAdapter`; needs responses, not bare contexts.

    Raises:
        ValueError: An invalid cutoff or threshold.
    """

    def __init__(
        self,
        k: Cutoffs = None,
        *,
        matcher: Matcher | None = None,
        threshold: float | None = None,
        text_from: TextFrom = None,
    ) -> None:
        self._cutoffs = check_ks(k)
        if threshold is not None and not 0 <= threshold <= 1:
            raise ValueError(f"threshold must be within 0 and 1, got {threshold!r}")
        self._matcher = matcher
        self._threshold = threshold
        self._text_from = text_from

    def evaluate(
        self,
        query: str | None = None,
        response: str | None = None,
        contexts: Sequence[str] | None = None,
        *,
        reference_contexts: Sequence[Any] | None = None,
        reference_ids: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> EvaluationResult:
        """The recall of the contexts, in their order."""
        with Attempt() as attempt:
            chunks = None if contexts is None else _texts(contexts)
            attempt.value = self._score(query, chunks, reference_contexts, reference_ids)
        return self._result(attempt, query, response, contexts)

    async def aevaluate(
        self,
        query: str | None = None,
        response: str | None = None,
        contexts: Sequence[str] | None = None,
        *,
        reference_contexts: Sequence[Any] | None = None,
        reference_ids: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> EvaluationResult:
        """The recall of the contexts, in their order."""
        return self.evaluate(
            query,
            response,
            contexts,
            reference_contexts=reference_contexts,
            reference_ids=reference_ids,
        )

    def evaluate_response(
        self,
        query: str | None = None,
        response: Any = None,
        *,
        reference_contexts: Sequence[Any] | None = None,
        reference_ids: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> EvaluationResult:
        """The recall of a response's source nodes; a response that streams is not consumed."""
        chunks = None
        with Attempt() as attempt:
            nodes = getattr(response, "source_nodes", None)
            if nodes is not None:
                chunks = nodes_to_chunks(nodes, text_from=self._text_from)
            attempt.value = self._score(query, chunks, reference_contexts, reference_ids)
        answer = getattr(response, "response", None)
        text = answer if isinstance(answer, str) else None
        return self._result(attempt, query, text, None if chunks is None else list(chunks.texts))

    async def aevaluate_response(
        self,
        query: str | None = None,
        response: Any = None,
        *,
        reference_contexts: Sequence[Any] | None = None,
        reference_ids: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> EvaluationResult:
        """The recall of a response's source nodes; a response that streams is not consumed."""
        return self.evaluate_response(
            query,
            response,
            reference_contexts=reference_contexts,
            reference_ids=reference_ids,
        )

    def _score(
        self,
        query: str | None,
        chunks: Chunks | None,
        reference_contexts: Sequence[Any] | None,
        reference_ids: Sequence[str] | None,
    ) -> QueryScore:
        if chunks is None:
            raise ValueError("there are no retrieved contexts: give contexts or a response")
        labels: list[Any] = []
        for field, values in (
            ("reference_contexts", reference_contexts),
            ("reference_ids", reference_ids),
        ):
            if values is not None and (
                isinstance(values, (str, bytes)) or not isinstance(values, Sequence)
            ):
                raise TypeError(f"{field} must be a list for each query, got {values!r:.80}")
        labels += reference_contexts or ()
        labels += [Label(chunk_id=one) for one in reference_ids or ()]
        if not labels:
            raise ValueError(
                "there are no labels: give each query its reference_contexts or reference_ids"
            )
        return score_labels(
            labels, chunks, query=query or "", k=self._cutoffs, matcher=self._matcher
        )

    def _result(
        self,
        attempt: Attempt,
        query: str | None,
        response: str | None,
        contexts: Sequence[str] | None,
    ) -> EvaluationResult:
        common: dict[str, Any] = {
            "query": query if isinstance(query, str) else None,
            "response": response if isinstance(response, str) else None,
            "contexts": contexts if _are_texts(contexts) else None,
        }
        if attempt.error is not None:
            reason = describe_error(attempt.error)
            return EvaluationResult(**common, invalid_result=True, invalid_reason=reason)
        score: QueryScore = attempt.value
        value = score.recall[cutoff_name(self._cutoffs[-1])]
        is_passing = None
        if self._threshold is not None and value is not None:
            is_passing = value >= self._threshold
        return EvaluationResult(**common, score=value, passing=is_passing, feedback=score.reason)

    def _get_prompts(self) -> PromptDictType:
        """None: no language model is asked."""
        return {}

    def _update_prompts(self, prompts_dict: PromptDictType) -> None:
        """Nothing to update."""


def _texts(contexts: Sequence[str]) -> Chunks:
    if not _are_texts(contexts):
        raise TypeError(f"contexts must be a list of texts, got {contexts!r:.80}")
    return Chunks(list(contexts))


def _are_texts(contexts: object) -> bool:
    return (
        isinstance(contexts, Sequence)
        and not isinstance(contexts, (str, bytes))
        and all(isinstance(one, str) for one in contexts)
    )
