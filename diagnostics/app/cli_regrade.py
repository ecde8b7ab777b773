"""`oversharp regrade`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from diagnostics.app.cli_shared import LEFT_OUT_EXIT_CODE, Json, Quiet, command_line, progress_sink


def regrade(
    store: Path,
    /,
    *,
    verifier: str,
    series: str | None = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Grade the responses in a store by another verifier too, and show the verdict under each.

    Samples nothing. Both grades are kept; a second series, "SERIES (VERIFIER)", has the same samples and a verdict of
    its own, and the report shows both and the responses on which the verifiers disagree: a change of how answers are
    written looks like a change of ability. Killed or stopped, the same command continues.

    Parameters
    ----------
    store
        The audit.duckdb file.
    verifier
        Who grades: math, exact, choice, expression, modes, reasoning_gym, or one of another package.
    series
        Name of the series to grade again; needed where there are several.
    """
    from diagnostics.audit.regrade import regrade as run_regrade
    from diagnostics.verifiers.names import listed_graders

    result = run_regrade(
        store, verifier, series=series, command=command_line(), progress=progress_sink(as_json or quiet)
    )
    if as_json:
        summary = {
            **asdict(result),
            "verdict": json.loads(result.verdict.to_json()),
            "of_verdict": None if result.of_verdict is None else json.loads(result.of_verdict.to_json()),
        }
        print(json.dumps(summary, indent=2, default=str))
    else:
        first = "none yet" if result.of_verdict is None else result.of_verdict.sentence
        print(f"verdict of {result.of_series}, by {listed_graders(result.own_verifiers)}: {first}")
        print(f"verdict of {result.series}: {result.verdict.sentence}")
        print(f"they disagree on {result.n_disagreed:,} of {result.n_samples:,} samples")
        print(f"report  {result.report_path}\nstore   {result.store_path}")
    if result.left_out:
        label, why = next(iter(result.left_out.items()))
        problems = "1 problem" if len(result.left_out) == 1 else f"{len(result.left_out)} problems"
        print(f"warning: {problems} left out, the first is {label}: {why}", file=sys.stderr)
    return LEFT_OUT_EXIT_CODE if result.left_out else 0
