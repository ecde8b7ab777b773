"""The verb ``regrade``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from oversharp.diagnostics.records.arguments import checked_arguments
from oversharp.diagnostics.records.names import store_file

if TYPE_CHECKING:
    from oversharp.diagnostics.audit.regrade import RegradeResult
    from oversharp.diagnostics.records.progress import ProgressSink


@checked_arguments
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
    """Grade the responses in a store by another verifier too, and show the verdict under each.

    Samples nothing. Both grades are kept; a second series, "SERIES (VERIFIER)", has the same samples and a verdict of
    its own, and the report shows both and where the verifiers disagree: a change of how answers are written looks like
    a change of ability. Grades by older rules of ``verifier`` itself are made again in place. Killed, it continues.

    Parameters
    ----------
    store
        The audit.duckdb file, or the directory that holds it.
    verifier
        Who grades: math, math_strict, exact, choice, expression, modes, reasoning_gym, a plug-in, or FILE.py:function.
    series
        Name of the series to grade again; needed where there are several.
    guess_rate
        Of wrong responses, the share that this verifier accepts, from 0 to 1. Default: what the verifier knows, else an
        assumed one.
    grader_timeout
        Seconds that FILE.py:function has for a response; then its process is killed and the response has the state
        timeout. Loading the file and the first call may take four times as long, and 20 s at least.
    grader_memory_gib
        Most memory that the process of FILE.py:function may allocate, in GiB; each process that it starts, too.
    grader_workers
        Processes that FILE.py:function is called in at a time; each loads the file, with any model that it loads.
    """
    from oversharp.diagnostics.app.report import require_report_place, write_report
    from oversharp.diagnostics.audit.regrade import regrade as run
    from oversharp.diagnostics.verifiers.own_workers.limits import GraderLimits

    require_report_place(store_file(store))
    limits = GraderLimits(timeout_s=grader_timeout, memory_gib=grader_memory_gib, workers=grader_workers)
    said = "" if guess_rate is None else f", guess_rate={guess_rate!r}"
    command = command or f"oversharp.regrade({str(store)!r}, {verifier!r}, series={series!r}{said})"
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
