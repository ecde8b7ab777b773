"""Checkpoint series on disk: which folders are checkpoints, their order, whether they are whole, their hashes."""

from __future__ import annotations

from diagnostics.series.finding import find_series

__all__ = ["find_series"]
