"""The version, read by the build and by `chunkrecall --version`."""

__version__ = "0.1.0"
