"""Findings of a kernel measure over rows that a test writes out."""

from typing import Any

import numpy as np

from oversharp.diagnostics.measures import get_measure
from oversharp.diagnostics.measures.kernel.gradients.examples import tiny_kernels
from oversharp.diagnostics.records.types import Finding

OWN_PAIR_AND_PANEL = [("q", "own", True), ("q", "own", False), ("q", "panel", True)]


def at_base(measure: str, kernel: Any, rows: list[tuple[str, str, bool]], **given: Any) -> dict[str, Finding]:
    """Scope → finding of the only checkpoint; ``rows`` and ``given`` as in ``tiny_kernels``."""
    evidence = tiny_kernels({"base": np.asarray(kernel, dtype=np.float64)}, rows, **given)
    return {finding.scope: finding for finding in get_measure(measure)(evidence)}
