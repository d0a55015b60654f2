"""LlamaIndex: retrievers, indexes and query engines under chunkrecall.

Raises:
    MissingExtraError: llama-index-core is not installed.
"""

from chunkrecall.errors import MissingExtraError

try:
    import llama_index.core  # noqa: F401 - only whether it is there
except ImportError as error:
    raise MissingExtraError("llama-index", needed_for="chunkrecall.llama_index") from error

from importlib import import_module
from typing import TYPE_CHECKING, Any

from chunkrecall.llama_index.adapter import LlamaIndexAdapter
from chunkrecall.llama_index.nodes import nodes_to_chunks, nodes_to_texts
from chunkrecall.llama_index.spans import RecallSpanHandler, record_recall

if TYPE_CHECKING:
    from chunkrecall.llama_index.callbacks import RecallCallbackHandler
    from chunkrecall.llama_index.metric import RecallAtK, register_metrics
    from chunkrecall.llama_index.response_evaluator import ResponseRecallEvaluator
    from chunkrecall.llama_index.retriever_evaluator import RetrieverRecallEvaluator

__all__ = [
    "LlamaIndexAdapter",
    "RecallAtK",
    "RecallCallbackHandler",
    "RecallSpanHandler",
    "ResponseRecallEvaluator",
    "RetrieverRecallEvaluator",
    "nodes_to_chunks",
    "nodes_to_texts",
    "record_recall",
    "register_metrics",
]

# LlamaIndex's evaluation package is slow to import.
_LATER = {
    "RecallAtK": "metric",
    "RecallCallbackHandler": "callbacks",
    "ResponseRecallEvaluator": "response_evaluator",
    "RetrieverRecallEvaluator": "retriever_evaluator",
    "register_metrics": "metric",
}


def __getattr__(name: str) -> Any:
    home = _LATER.get(name)
    if home is None:
        raise AttributeError(f"module 'chunkrecall.llama_index' has no attribute {name!r}")
    return getattr(import_module(f"chunkrecall.llama_index.{home}"), name)
