"""The framework-free buffer behind every callback: retrievals in, scores out."""

from chunkrecall.recording.recorder import Call, Recorder
from chunkrecall.recording.stages import LostLabel, Stage

__all__ = ["Call", "LostLabel", "Recorder", "Stage"]
