"""Numerical accuracy regression harness for PyTorch PT2E quantization."""

__version__ = "0.1.0"
