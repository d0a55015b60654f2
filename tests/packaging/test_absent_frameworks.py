"""Either framework may be missing: its own module says what to install, the rest works."""

from __future__ import annotations

from collections.abc import Callable

import pytest

LANGCHAIN = ("langchain", "langchain_core", "langchain_community", "langchain_classic", "langsmith")
LLAMA_INDEX = ("llama_index", "llama_index_instrumentation")
RunPython = Callable[..., list[str]]


@pytest.mark.parametrize(
    ("module", "absent", "extra"),
    [
        ("chunkrecall.langchain", LANGCHAIN, "langchain"),
        ("chunkrecall.llama_index", LLAMA_INDEX, "llama-index"),
    ],
)
@pytest.mark.parametrize("caught_as", ["MissingExtraError", "ChunkRecallError", "ImportError"])
def test_the_module_of_an_absent_framework_names_the_command_to_run(
    module: str, absent: tuple[str, ...], extra: str, caught_as: str, run_python: RunPython
) -> None:
    code = f"""
        from chunkrecall import ChunkRecallError, MissingExtraError
        try:
            import {module}
        except {caught_as} as error:
            print(type(error).__name__)
            print(error)
    """
    kind, message = run_python(code, absent=absent)
    assert kind == "MissingExtraError"
    assert f'pip install "chunkrecall[{extra}]"' in message


LANGCHAIN_RETRIEVER = """
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever

    class Retriever(BaseRetriever):
        def _get_relevant_documents(self, query, *, run_manager):
            return [Document(page_content="x"), Document(page_content="a")]
"""
LLAMA_INDEX_RETRIEVER = """
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.schema import NodeWithScore, TextNode

    class Retriever(BaseRetriever):
        def _retrieve(self, query_bundle):
            return [NodeWithScore(node=TextNode(text=text)) for text in "xa"]
"""
EVALUATED = """
    import asyncio
    from chunkrecall import aevaluate_retriever, evaluate_retriever

    report = evaluate_retriever(Retriever(), {"q": ["a", "b"]}, k=(1, 2))
    print(report.mean(1), report.mean(2))
    report = asyncio.run(aevaluate_retriever(Retriever(), {"q": ["a", "b"]}, k=(1, 2)))
    print(report.mean(1), report.mean(2))
"""


@pytest.mark.parametrize(
    ("retriever", "absent"),
    [(LANGCHAIN_RETRIEVER, LLAMA_INDEX), (LLAMA_INDEX_RETRIEVER, LANGCHAIN)],
    ids=["LangChain without LlamaIndex", "LlamaIndex without LangChain"],
)
def test_one_framework_is_evaluated_where_the_other_is_absent(
    retriever: str, absent: tuple[str, ...], run_python: RunPython
) -> None:
    # Of two labels, "a" stands at rank 2 and "b" nowhere.
    assert run_python(retriever + EVALUATED, absent=absent) == ["0.0 0.5", "0.0 0.5"]


@pytest.mark.parametrize(
    ("retriever", "other"),
    [(LANGCHAIN_RETRIEVER, "llama_index"), (LLAMA_INDEX_RETRIEVER, "langchain_core")],
    ids=["LangChain", "LlamaIndex"],
)
def test_evaluating_one_framework_does_not_import_the_other(
    retriever: str, other: str, run_python: RunPython
) -> None:
    code = f"""
    import sys
    print({other!r} in sys.modules, "chunkrecall.{other.removesuffix("_core")}" in sys.modules)
    """
    assert run_python(retriever + EVALUATED + code)[2:] == ["False False"]


def test_pandas_is_asked_for_only_by_the_method_that_needs_it(run_python: RunPython) -> None:
    code = """
        from chunkrecall import MissingExtraError, evaluate_retriever
        report = evaluate_retriever(lambda text: ["a"], {"q": ["a"]}, k=1)
        try:
            report.to_pandas()
        except MissingExtraError as error:
            print(error)
    """
    (message,) = run_python(code, absent=("pandas",))
    assert 'pip install "chunkrecall[pandas]"' in message
