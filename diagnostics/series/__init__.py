"""Checkpoint series on disk: which folders are checkpoints, their order, whether they are whole, their hashes."""

from __future__ import annotations

from oversharp.diagnostics.series.finding import current_hash, find_series

__all__ = ["current_hash", "find_series"]
