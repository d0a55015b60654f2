"""What `RecallCallbackHandler` costs a retrieval above a handler that does nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.callbacks import BaseCallbackHandler
from tests.benchmarks.measure import Candidate, Figure, Settings, in_turns
from tests.benchmarks.scripted import CHUNKS, LangChain, Script

from chunkrecall.langchain import RecallCallbackHandler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from chunkrecall import Dataset

    Inputs = tuple[LangChain, Dataset, BaseCallbackHandler]

_TARGET_US = 30.0


class Empty(BaseCallbackHandler):
    """Inline like ours, and empty."""

    run_inline = True

    def on_retriever_start(self, *args: Any, **kwargs: Any) -> None:
        """Nothing."""

    def on_retriever_end(self, *args: Any, **kwargs: Any) -> None:
        """Nothing."""


def figures(settings: Settings) -> Iterator[Figure]:
    """One chain-less retriever, as many queries as the loop's benchmark has."""
    queries = settings.queries // 2
    script = Script.of(queries)

    def prepared(handler_of: Callable[[Dataset], BaseCallbackHandler]) -> Callable[[], Inputs]:
        def prepare() -> Inputs:
            dataset = script.dataset()
            return LangChain(answers=script.documents()), dataset, handler_of(dataset)

        return prepare

    candidates = {
        "chunkrecall": Candidate(
            prepared(lambda dataset: RecallCallbackHandler(dataset, CHUNKS)), all_queries
        ),
        "empty handler": Candidate(prepared(lambda dataset: Empty()), all_queries),
    }
    timings = in_turns(candidates, rounds=settings.rounds)
    extra_us = timings.extra_s("chunkrecall", "empty handler") / queries * 1e6
    yield Figure(
        measure="RecallCallbackHandler: CPU a retrieval above an empty handler",
        ours=f"{extra_us:.1f} us",
        peer=f"{timings.median_s('empty handler') / queries * 1e6:.1f} us with the empty handler",
        ratio=timings.times_faster("chunkrecall", "empty handler"),
        target=f"<= {_TARGET_US:g} us",
        met=extra_us <= _TARGET_US,
    )


def all_queries(inputs: Inputs) -> int:
    """Every query once, the handler told of each."""
    retriever, dataset, handler = inputs
    config: Any = {"callbacks": [handler]}
    return sum(len(retriever.invoke(query.text, config=config)) for query in dataset)
