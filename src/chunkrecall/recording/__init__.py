"""The framework-free buffer behind every callback: retrievals in, scores out."""

from chunkrecall.recording.recorder import Recorder
from chunkrecall.recording.stages import LostLabel, Stage
from chunkrecall.recording.state import Call

__all__ = ["Call", "LostLabel", "Recorder", "Stage"]
