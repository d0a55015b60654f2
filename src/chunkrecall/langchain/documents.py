"""LangChain Documents to chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias, cast

from langchain_core.documents import Document

from chunkrecall.adapters import check_texts, items_of, pair_score, to_chunk
from chunkrecall.records import Chunks

TextFrom: TypeAlias = "str | Callable[[Document], str] | None"


def documents_to_chunks(documents: Iterable[object], *, text_from: TextFrom = None) -> Chunks:
    """The chunks of a retriever's Documents, in order; texts and metadata are copied.

    Args:
        documents: Documents of any subclass, (Document, score) pairs, serialised Documents, texts.
        text_from: A metadata key, or a function of the Document, that gives the chunk's text where
            `page_content` does not hold it.

    Raises:
        TypeError: A bare string, an item that holds no chunk text, or a text that is no string,
            with its index.
        ValueError: A Document without the metadata key that `text_from` names.
    """
    items = documents if isinstance(documents, list) else list(items_of(documents))
    chunks = chunks_of_documents(items, text_from)
    if chunks is not None:
        return chunks
    if text_from is not None:
        raise TypeError(
            "text_from needs a list of Documents, got "
            + ", ".join(sorted({type(item).__name__ for item in items}))
        )
    return Chunks.of([to_chunk(item, index) for index, item in enumerate(items)])


def documents_to_texts(documents: Iterable[object], *, text_from: TextFrom = None) -> list[str]:
    """The chunk texts of a retriever's Documents, in order; see `documents_to_chunks`."""
    return list(documents_to_chunks(documents, text_from=text_from).texts)


def chunks_of_documents(items: Sequence[object], text_from: TextFrom = None) -> Chunks | None:
    """The chunks of a list of Documents or (Document, score) pairs; None for anything else."""
    if set(map(type, items)) == {Document}:  # nearly always; isinstance is slow on pydantic classes
        return _columns(cast("list[Document]", items), text_from, None)
    scores: list[float | None] = []
    is_scored = False
    documents: list[Document] = []
    for item in items:
        if isinstance(item, Document):
            documents.append(item)
        elif isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], Document):
            documents.append(item[0])
            is_scored = True
            scores.append(pair_score(item, len(documents) - 1))
            continue
        else:
            return None
        scores.append(None)
    return _columns(documents, text_from, scores if is_scored else None)


def _columns(
    documents: Sequence[Document], text_from: TextFrom, scores: list[float | None] | None
) -> Chunks:
    if text_from is None:
        texts = [document.page_content for document in documents]
    else:
        texts = [_text(document, text_from) for document in documents]
    check_texts(texts, "Document")
    ids = [document.id for document in documents]
    metadatas = [document.metadata.copy() if document.metadata else None for document in documents]
    if text_from is not None:  # the offsets are those of the content, and LangChain keeps no end
        for document, metadata in zip(documents, metadatas, strict=True):
            start = None if metadata is None else metadata.get("start_index")
            if metadata is not None and isinstance(start, int):
                metadata.setdefault("end_index", start + len(document.page_content))
    return Chunks(
        tuple(texts),
        tuple(ids) if any(ids) else None,
        scores=scores,
        metadatas=tuple(metadatas) if any(metadatas) else None,
    )


def _text(document: Document, text_from: str | Callable[[Document], str]) -> str:
    if callable(text_from):
        return text_from(document)
    if text_from not in document.metadata:
        raise ValueError(
            f"text_from={text_from!r}: a retrieved Document has no such metadata key; it has "
            f"{sorted(map(str, document.metadata))}"
        )
    text: str = document.metadata[text_from]
    return text
