"""Checkpoint series on disk. Find, order, check and hash the checkpoints of a run."""

from __future__ import annotations

from oversharp.diagnostics.series.finding import current_hash, find_series

__all__ = ["current_hash", "find_series"]
