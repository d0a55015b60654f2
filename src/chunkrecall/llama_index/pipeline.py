"""A retriever and its node postprocessors, asked as one retriever."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llama_index.core.schema import NodeWithScore, QueryBundle

from chunkrecall.llama_index.adapter import LlamaIndexAdapter
from chunkrecall.recording import FINAL, numbered
from chunkrecall.records import Chunks, Ranking, Run

if TYPE_CHECKING:
    from llama_index.core.postprocessor.types import BaseNodePostprocessor


class Pipeline:
    """Adapter of a retriever with postprocessors behind it, that keeps what each step gave.

    A postprocessor gets copies of the nodes: some edit a node's text in place, and an in-memory
    retriever would return the edited node to the next query.
    """

    def __init__(
        self, retriever: LlamaIndexAdapter, postprocessors: Sequence[BaseNodePostprocessor]
    ) -> None:
        self._retriever = retriever
        self._postprocessors = postprocessors
        self._steps: dict[str, list[Chunks]] = {}
        self.name = retriever.name
        self.tracing = retriever.tracing
        self.notes = retriever.notes
        self.has_sync = retriever.has_sync
        self.has_async = retriever.has_async

    def at_depth(self, depth: int | None) -> Pipeline:
        """The same steps behind the retriever at that depth; itself where it stays the same."""
        deeper = self._retriever.at_depth(depth)
        if deeper is not self._retriever:
            self._retriever = deeper
            self.notes = deeper.notes
            self.has_async = deeper.has_async
        return self

    def retrieve(self, query: str) -> Chunks:
        """The chunks after the last postprocessor."""
        nodes = self._retriever.nodes(query)
        steps = self._first(query, nodes)
        bundle = QueryBundle(query)
        current = _copied(nodes) if self._postprocessors else nodes
        for postprocessor in self._postprocessors:
            current = postprocessor.postprocess_nodes(current, query_bundle=bundle)  # type: ignore[arg-type]
            steps.append(self._retriever.chunks(current))
        return steps[-1]

    async def aretrieve(self, query: str) -> Chunks:
        """The chunks after the last postprocessor."""
        nodes = await self._retriever.anodes(query)
        steps = self._first(query, nodes)
        bundle = QueryBundle(query)
        current = _copied(nodes) if self._postprocessors else nodes
        for postprocessor in self._postprocessors:
            current = await postprocessor.apostprocess_nodes(current, query_bundle=bundle)  # type: ignore[arg-type]
            steps.append(self._retriever.chunks(current))
        return steps[-1]

    def describe(self) -> Mapping[str, Any]:
        """What the retriever says of itself, and the postprocessors."""
        names = [type(one).__name__ for one in self._postprocessors]
        return {**self._retriever.describe(), "node_postprocessors": names}

    def is_wrong_way(self, error: Exception) -> bool:
        """Whether the retriever lacks this way of being called."""
        return self._retriever.is_wrong_way(error)

    def stage_runs(self, run: Run, texts: Mapping[str, str]) -> list[Run]:
        """The lists after each step but the last, a run each, named by the step's class.

        Args:
            run: The lists after the last step, with the errors.
            texts: Each query's text by its id. Queries of one text have one list a step.
        """
        names = [self.name, *(type(one).__name__ for one in self._postprocessors)]
        runs = []
        for index, name in enumerate(numbered(names)):
            rankings = []
            for ranking in run.rankings:
                steps = self._steps.get(texts[ranking.query_id], [])
                if index < len(steps):
                    chunks, query_id = steps[index], ranking.query_id
                    rankings.append(Ranking(query_id=query_id, chunks=chunks))
                else:
                    rankings.append(ranking)  # it failed before this step ended
            runs.append(Run(name=name, rankings=rankings, complete=run.complete))
        return [*runs, Run(name=FINAL, rankings=run.rankings, complete=run.complete)]

    def _first(self, query: str, nodes: object) -> list[Chunks]:
        steps = [self._retriever.chunks(nodes)]
        if self._postprocessors:
            self._steps[query] = steps
        return steps


def _copied(nodes: object) -> list[NodeWithScore]:
    if not isinstance(nodes, list):
        raise TypeError(f"the retriever returned {type(nodes).__name__}, not a list of nodes")
    copies = []
    for item in nodes:
        node, score = (item.node, item.score) if isinstance(item, NodeWithScore) else (item, None)
        copy = node.model_copy(update={"metadata": dict(node.metadata)})
        copies.append(NodeWithScore(node=copy, score=score))
    return copies
