"""LangChain: retrievers, Runnables and vector stores under chunkrecall.

Raises:
    MissingExtraError: langchain-core is not installed.
"""

from chunkrecall.errors import MissingExtraError

try:
    import langchain_core  # noqa: F401 - only whether it is there
except ImportError as error:
    raise MissingExtraError("langchain", needed_for="chunkrecall.langchain") from error

from importlib import import_module
from typing import TYPE_CHECKING, Any

from chunkrecall.langchain.adapter import LangChainAdapter
from chunkrecall.langchain.callbacks import RecallCallbackHandler, record_recall
from chunkrecall.langchain.documents import documents_to_chunks, documents_to_texts

if TYPE_CHECKING:
    from chunkrecall.langchain.evaluator import RecallEvaluator, recall_summary_evaluator
    from chunkrecall.langchain.langsmith import (
        async_evaluation_target,
        dataset_to_examples,
        evaluation_target,
        examples_to_dataset,
        offline_client,
    )

__all__ = [
    "LangChainAdapter",
    "RecallCallbackHandler",
    "RecallEvaluator",
    "async_evaluation_target",
    "dataset_to_examples",
    "documents_to_chunks",
    "documents_to_texts",
    "evaluation_target",
    "examples_to_dataset",
    "offline_client",
    "recall_summary_evaluator",
    "record_recall",
]

# langsmith is slow to import, and langchain-core defers it too.
_LATER = {
    "RecallEvaluator": "evaluator",
    "recall_summary_evaluator": "evaluator",
    "async_evaluation_target": "langsmith",
    "dataset_to_examples": "langsmith",
    "evaluation_target": "langsmith",
    "examples_to_dataset": "langsmith",
    "offline_client": "langsmith",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name
    home = _LATER.get(name)
    if home is None:
        raise AttributeError(f"module 'chunkrecall.langchain' has no attribute {name!r}")
    return getattr(import_module(f"chunkrecall.langchain.{home}"), name)
