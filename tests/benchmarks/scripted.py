"""Retrievers of both frameworks that give ready-made answers, at once or after a while."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from random import Random
from typing import Any

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever as LangChainBase
from llama_index.core.base.base_retriever import BaseRetriever as LlamaIndexBase
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from chunkrecall import Dataset, Query

CHUNKS = 10
_FOUND = 0.9
_CHARACTERS = 200


class LangChain(LangChainBase):
    """Without async code of its own: LangChain borrows a thread for it."""

    answers: Any  # not a dict[str, list[Document]]: pydantic would copy it
    delay_s: float = 0.0

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        if self.delay_s:
            time.sleep(self.delay_s)
        return self.answers[query]


class AsyncLangChain(LangChain):
    """With both."""

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun
    ) -> list[Document]:
        await asyncio.sleep(self.delay_s)
        return self.answers[query]


class LlamaIndex(LlamaIndexBase):
    """Without async code of its own: LlamaIndex calls the sync body on the loop."""

    def __init__(self, answers: dict[str, list[NodeWithScore]], delay_s: float = 0.0) -> None:
        super().__init__()
        self.answers = answers
        self.delay_s = delay_s

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        if self.delay_s:
            time.sleep(self.delay_s)
        return self.answers[query_bundle.query_str]


class AsyncLlamaIndex(LlamaIndex):
    """With both."""

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        await asyncio.sleep(self.delay_s)
        return self.answers[query_bundle.query_str]


@dataclass(frozen=True, slots=True)
class Script:
    """Questions, what is retrieved for each, and the one label of each, as JSON text."""

    rows: str

    @classmethod
    def of(cls, queries: int) -> Script:
        """Ten chunks a query; nine labels of ten are among them."""
        random = Random(queries)
        letters = "etaoin shrdlu cmfwyp"
        rows = []
        for number in range(queries):
            texts = ["".join(random.choices(letters, k=_CHARACTERS)) for _ in range(CHUNKS)]
            found = random.random() < _FOUND
            rows.append(
                {
                    "query_id": f"q{number}",
                    "text": f"question {number}",
                    "relevant": [random.choice(texts) if found else f"nowhere {number}"],
                    "texts": texts,
                }
            )
        return cls(json.dumps(rows))

    def dataset(self) -> Dataset:
        """The labelled questions, of new strings."""
        rows = json.loads(self.rows)
        return Dataset(
            [Query(query_id=r["query_id"], text=r["text"], relevant=r["relevant"]) for r in rows]
        )

    def documents(self) -> dict[str, list[Document]]:
        """LangChain's answer to each question, of new objects."""
        return {
            row["text"]: [
                Document(page_content=text, id=f"{row['query_id']}-{i}", metadata=_metadata(i))
                for i, text in enumerate(row["texts"])
            ]
            for row in json.loads(self.rows)
        }

    def nodes(self) -> dict[str, list[NodeWithScore]]:
        """LlamaIndex's answer to each question, of new objects."""
        return {
            row["text"]: [
                NodeWithScore(
                    node=TextNode(text=text, id_=f"{row['query_id']}-{i}", metadata=_metadata(i)),
                    score=1.0 - i / CHUNKS,
                )
                for i, text in enumerate(row["texts"])
            ]
            for row in json.loads(self.rows)
        }


def _metadata(index: int) -> dict[str, Any]:
    return {"source": "handbook.md", "page": index}
