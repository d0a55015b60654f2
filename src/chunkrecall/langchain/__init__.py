"""LangChain: retrievers, Runnables and vector stores under chunkrecall.

Raises:
    MissingExtraError: langchain-core is not installed.
"""

from chunkrecall.errors import MissingExtraError

try:
    import langchain_core  # noqa: F401 - only whether it is there
except ImportError as error:
    raise MissingExtraError("langchain", needed_for="chunkrecall.langchain") from error

from chunkrecall.langchain.adapter import LangChainAdapter
from chunkrecall.langchain.documents import documents_to_chunks, documents_to_texts

__all__ = ["LangChainAdapter", "documents_to_chunks", "documents_to_texts"]
