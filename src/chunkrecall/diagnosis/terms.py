"""Remedies in the words of the framework that the retriever belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_WITH_OWN_K = ("BM25Retriever", "TFIDFRetriever", "KNNRetriever", "SVMRetriever")


@dataclass(frozen=True, slots=True)
class Terms:
    """How the settings are called where the user writes them."""

    framework: str | None = None
    """"langchain", "llama-index" or None."""
    kind: str | None = None
    """The retriever's class."""

    @classmethod
    def of(cls, settings: object) -> Terms:
        """The terms of the retriever that an adapter describes."""
        if not isinstance(settings, Mapping):
            return cls()
        return cls(_text(settings, "framework"), _text(settings, "type"))

    def depth(self, depth: int) -> str:
        """How a retriever is told to return that many chunks."""
        if self.framework == "langchain":
            return f"k={depth}" if self.kind in _WITH_OWN_K else f'search_kwargs={{"k": {depth}}}'
        if self.framework == "llama-index":
            return f"similarity_top_k={depth}"
        return f'search_kwargs={{"k": {depth}}} (LangChain), similarity_top_k={depth} (LlamaIndex)'

    def splitter(self, setting: str) -> str:
        """The splitter with a setting, like `SentenceSplitter(chunk_overlap=…)`."""
        langchain = f"RecursiveCharacterTextSplitter({setting})"
        llama_index = f"SentenceSplitter({setting})"
        return self._either(langchain, llama_index)

    def hybrid(self) -> str:
        """How two retrievers are put together."""
        return self._either(
            "EnsembleRetriever(retrievers=[this, bm25])",
            'QueryFusionRetriever([this, bm25], num_queries=1, mode="reciprocal_rerank")',
        )

    def rebuild(self) -> str:
        """How the index is told of changed documents."""
        return self._either(
            'indexing.index(docs, record_manager, store, cleanup="incremental", '
            'source_id_key="source")',
            "index.refresh_ref_docs(documents)",
        )

    def _either(self, langchain: str, llama_index: str) -> str:
        if self.framework == "langchain":
            return langchain
        if self.framework == "llama-index":
            return llama_index
        return f"{langchain} (LangChain), {llama_index} (LlamaIndex)"


def _text(settings: Mapping[str, Any], key: str) -> str | None:
    value = settings.get(key)
    return value if isinstance(value, str) else None
