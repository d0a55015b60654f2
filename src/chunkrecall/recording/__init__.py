"""The framework-free buffer behind every callback: retrievals in, scores out."""

from chunkrecall.recording.recorder import Recorder
from chunkrecall.recording.stages import FINAL, LostLabel, Stage, fate_of, numbered
from chunkrecall.recording.state import Call

__all__ = ["FINAL", "Call", "LostLabel", "Recorder", "Stage", "fate_of", "numbered"]
