"""The demo: a labelled corpus that ships with the package, and three real retrievers over it."""

from chunkrecall.demo.data import demo_corpus, demo_dataset
from chunkrecall.demo.run import run_demo

__all__ = ["demo_corpus", "demo_dataset", "run_demo"]
