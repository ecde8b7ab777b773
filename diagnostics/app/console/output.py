"""JSON on stdout, warnings on stderr, and what a result reads from its store."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oversharp.diagnostics.records.cells import escape_controls

if TYPE_CHECKING:
    from oversharp.diagnostics.verdict.record import Verdict


def print_json(summary: Mapping[str, Any]) -> None:
    """Print a JSON object; control characters of paths and names are written out."""
    print(escape_controls(json.dumps(summary, indent=2, default=str)))


def verdict_summary(verdict: Verdict) -> Any:
    """Return all fields of a verdict as JSON has them."""
    return json.loads(verdict.to_json())


def warn(text: str) -> None:
    """Print a warning on stderr."""
    print(escape_controls(f"warning: {text}"), file=sys.stderr)


def warn_left_out(left_out: Mapping[str, str]) -> None:
    """Print a warning for each label that was left out, with its reason."""
    for label, reason in left_out.items():
        warn(f"left out {label}: {reason}")


def made_of_series(store_path: Path, series: str) -> str | None:
    """Return the decomposition of a series' change of pass@k in one sentence; None without a significant part."""
    from oversharp.diagnostics.store import Store
    from oversharp.diagnostics.store.load import made_of

    with Store.open(store_path, read_only=True) as store:
        return made_of(store, series)
