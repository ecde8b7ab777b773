"""``regrade``: grade stored responses by another verifier."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from oversharp.diagnostics.records.arguments import check_arguments
from oversharp.diagnostics.records.names import store_file

if TYPE_CHECKING:
    from oversharp.diagnostics.audit.regrade import RegradeResult
    from oversharp.diagnostics.records.progress import ProgressSink


@check_arguments
def regrade(
    store: Path | str,
    verifier: str,
    *,
    series: str | None = None,
    guess_rate: float | None = None,
    grader_timeout: float = 30.0,
    grader_memory_gib: float = 4.0,
    grader_workers: int = 1,
    command: str | None = None,
    progress: ProgressSink | None = None,
) -> RegradeResult:
    """Grade the responses of a store by another verifier, and compare the two verdicts.

    Samples nothing. Both grades are kept: a second series, "SERIES (VERIFIER)", has the same samples and a separate
    verdict, and the report shows both and where the verifiers disagree. Use it to distinguish a change of answer style
    from a change of ability. If ``verifier`` graded the series already, outdated grades are recomputed in place. If it
    is interrupted, the same call continues.

    Parameters
    ----------
    store
        The audit.duckdb file, or its directory.
    verifier
        math, math_strict, exact, choice, expression, modes, reasoning_gym, a plug-in, or FILE.py:function.
    series
        Name of the series to grade again; required if the store has several.
    guess_rate
        False-accept rate of this verifier: the share of wrong responses that it accepts, from 0 to 1. Default: the
        verifier's own, else an assumed one.
    grader_timeout
        Time limit of FILE.py:function per response, in seconds; then its process is killed and the response gets the
        state timeout. Loading the file and the first call may take four times as long, and at least 20 s.
    grader_memory_gib
        Memory limit of each process of FILE.py:function, in GiB.
    grader_workers
        Number of processes that call FILE.py:function; each loads the file and the models in it.
    """
    from oversharp.diagnostics.app.report import require_report_place, write_report
    from oversharp.diagnostics.audit.regrade import regrade as run
    from oversharp.diagnostics.verifiers.own_workers.limits import GraderLimits

    require_report_place(store_file(store))
    limits = GraderLimits(timeout_s=grader_timeout, memory_gib=grader_memory_gib, workers=grader_workers)
    rate = "" if guess_rate is None else f", guess_rate={guess_rate!r}"
    command = command or f"oversharp.regrade({str(store)!r}, {verifier!r}, series={series!r}{rate})"
    result = run(
        store_file(store),
        verifier,
        series=series,
        guess_rate=guess_rate,
        limits=limits,
        command=command,
        progress=progress,
    )
    write_report(result.store_path, result.report_path)
    return result
