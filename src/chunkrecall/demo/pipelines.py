"""Three retrievers over the demo corpus, made of real parts that work offline.

The embedding model ships inside the wordllama package, so nothing is downloaded.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chunkrecall.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langchain_core.embeddings import Embeddings
    from langchain_core.retrievers import BaseRetriever
    from llama_index.core.base.base_retriever import BaseRetriever as LlamaIndexRetriever
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.schema import BaseNode

    from chunkrecall.records import Chunk


def load_embed() -> Callable[[Sequence[str]], list[list[float]]]:
    """A function from texts to unit vectors of 256 numbers.

    Raises:
        MissingExtraError: The extra "demo" is not installed.
    """
    try:
        import wordllama
    except ImportError as error:
        raise MissingExtraError("demo", needed_for="the demo") from error
    folder = Path(wordllama.__file__).parent
    model = wordllama.WordLlama.load(cache_dir=folder, disable_download=True)

    def embed(texts: Sequence[str]) -> list[list[float]]:
        return [vector.tolist() for vector in model.embed(list(texts), norm=True)]

    return embed


def langchain_vector(
    chunks: Sequence[Chunk], embed: Callable[[Sequence[str]], list[list[float]]], *, depth: int
) -> BaseRetriever:
    """LangChain's InMemoryVectorStore over the chunks."""
    from langchain_core.documents import Document
    from langchain_core.vectorstores import InMemoryVectorStore

    store = InMemoryVectorStore(langchain_embedding(embed))
    store.add_documents(
        [
            Document(id=chunk.chunk_id, page_content=chunk.text, metadata=dict(chunk.metadata))
            for chunk in chunks
        ]
    )
    return store.as_retriever(search_kwargs={"k": depth})


def llama_index_vector(
    chunks: Sequence[Chunk], embed: Callable[[Sequence[str]], list[list[float]]], *, depth: int
) -> LlamaIndexRetriever:
    """LlamaIndex's VectorStoreIndex over the same chunks with the same model."""
    from llama_index.core import VectorStoreIndex

    index = VectorStoreIndex(nodes=_nodes(chunks), embed_model=llama_index_embedding(embed))
    return index.as_retriever(similarity_top_k=depth)


def llama_index_bm25(chunks: Sequence[Chunk], *, depth: int) -> LlamaIndexRetriever:
    """LlamaIndex's BM25 retriever over the same chunks.

    Raises:
        MissingExtraError: The extra "demo" is not installed.
    """
    try:
        from llama_index.retrievers.bm25 import BM25Retriever
    except ImportError as error:
        raise MissingExtraError("demo", needed_for="the demo") from error
    logging.getLogger("bm25s").setLevel(logging.WARNING)  # it logs at DEBUG by default
    retriever: LlamaIndexRetriever = BM25Retriever.from_defaults(
        nodes=_nodes(chunks), similarity_top_k=depth
    )
    return retriever


def langchain_embedding(embed: Callable[[Sequence[str]], list[list[float]]]) -> Embeddings:
    """The embedding function as LangChain's class."""
    from langchain_core.embeddings import Embeddings

    class DemoEmbeddings(Embeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return embed(texts)

        def embed_query(self, text: str) -> list[float]:
            return embed([text])[0]

    return DemoEmbeddings()


def llama_index_embedding(embed: Callable[[Sequence[str]], list[list[float]]]) -> BaseEmbedding:
    """The embedding function as LlamaIndex's class."""
    from llama_index.core.base.embeddings.base import BaseEmbedding

    class DemoEmbedding(BaseEmbedding):
        def _get_text_embedding(self, text: str) -> list[float]:
            return embed([text])[0]

        def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
            return embed(texts)

        def _get_query_embedding(self, query: str) -> list[float]:
            return embed([query])[0]

        async def _aget_query_embedding(self, query: str) -> list[float]:
            return self._get_query_embedding(query)

    return DemoEmbedding()


def _nodes(chunks: Sequence[Chunk]) -> list[BaseNode]:
    from llama_index.core.schema import TextNode

    nodes: list[BaseNode] = []
    for chunk in chunks:
        metadata: dict[str, Any] = dict(chunk.metadata)
        # Only the text is embedded: LlamaIndex would put the metadata in front of it.
        hidden = list(metadata)
        node = TextNode(
            text=chunk.text,
            metadata=metadata,
            excluded_embed_metadata_keys=hidden,
            excluded_llm_metadata_keys=hidden,
        )
        node.id_ = str(chunk.chunk_id)
        nodes.append(node)
    return nodes
