"""The framework-free buffer behind every callback: retrievals in, scores out."""

from chunkrecall.recording.recorder import Recorder
from chunkrecall.recording.stages import FINAL, LostLabel, Stage, numbered
from chunkrecall.recording.state import Call

__all__ = ["FINAL", "Call", "LostLabel", "Recorder", "Stage", "numbered"]
