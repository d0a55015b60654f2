"""LlamaIndex: retrievers, indexes and query engines under chunkrecall.

Raises:
    MissingExtraError: llama-index-core is not installed.
"""

from chunkrecall.errors import MissingExtraError

try:
    import llama_index.core  # noqa: F401 - only whether it is there
except ImportError as error:
    raise MissingExtraError("llama-index", needed_for="chunkrecall.llama_index") from error

from chunkrecall.llama_index.adapter import LlamaIndexAdapter
from chunkrecall.llama_index.nodes import nodes_to_chunks, nodes_to_texts

__all__ = ["LlamaIndexAdapter", "nodes_to_chunks", "nodes_to_texts"]
