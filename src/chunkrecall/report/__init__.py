"""Reports: scores of single queries, summaries, and their views."""

from chunkrecall.report.query_score import QueryScore, Status, measured
from chunkrecall.report.reason import recall_reason
from chunkrecall.report.repeats import merge_repeats
from chunkrecall.report.report import Report
from chunkrecall.report.summary import Summary, summarize

__all__ = [
    "QueryScore",
    "Report",
    "Status",
    "Summary",
    "measured",
    "merge_repeats",
    "recall_reason",
    "summarize",
]
