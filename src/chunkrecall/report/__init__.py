"""Reports: scores of single queries, summaries, and their views."""

from chunkrecall.report.query_score import QueryScore, Status
from chunkrecall.report.reason import recall_reason
from chunkrecall.report.report import Report
from chunkrecall.report.summary import Summary, summarize

__all__ = ["QueryScore", "Report", "Status", "Summary", "recall_reason", "summarize"]
