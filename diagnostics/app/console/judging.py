"""Output of `oversharp judge`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from oversharp.diagnostics.app.console.layout import (
    OutputColumn,
    OutputRow,
    print_json,
    print_lines,
    print_rows,
    print_table,
)
from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.verdict.words.numbers import bounds_text, points_text, signed_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oversharp.diagnostics.audit.judges.compared import CorrectedValue
    from oversharp.diagnostics.audit.judges.judge import JudgeResult
    from oversharp.diagnostics.audit.judges.probes import VerdictShift

PROBE_COLUMNS = (
    OutputColumn(heading="planted change", is_text=True),
    OutputColumn(heading="responses"),
    OutputColumn(heading="accepted"),
    OutputColumn(heading="refused"),
    OutputColumn(heading="shift", is_text=True),
)
CORRECTED_COLUMNS = (
    OutputColumn(heading="step"),
    OutputColumn(heading="value", is_text=True),
    OutputColumn(heading="judged"),
    OutputColumn(heading="corrected", is_text=True),
    OutputColumn(heading="sets"),
)


def show_judge(result: JudgeResult, as_json: bool) -> int:
    """Print the measurements of a judge, or the file to label."""
    if as_json:
        print_json(asdict(result))
        return 0
    if result.drawn is not None:
        print_rows(
            [
                OutputRow(label="labels", value=f"{plural(result.drawn, 'response')} in {result.label_file}"),
                OutputRow(
                    label="next",
                    value="write 1 (correct) or 0 into label, in each set up to the first 1; then repeat the command "
                    "without --draw-labels, with --labels FILE",
                ),
            ]
        )
        return 0
    print_rows(_summary(result))
    if result.probes is not None:
        print_lines([""])
        print_table(PROBE_COLUMNS, [_probe_cells(one) for one in result.probes.results])
    if result.corrected:
        print_lines([""])
        print_table(CORRECTED_COLUMNS, [_corrected_cells(one) for one in result.corrected])
    print_lines([""])
    print_rows(
        [
            *(OutputRow(label="note", value=sentence) for sentence in result.sentences),
            OutputRow(label="report", value=str(result.report_path), is_whole=True),
        ]
    )
    return 0


def _summary(result: JudgeResult) -> Iterator[OutputRow]:
    yield OutputRow(label="judge", value=f"{result.verifier}, series {result.series}")
    if result.probes is not None:
        agreement = f"{result.probes.agreement:.0%} of {plural(result.probes.n, 'response')}"
        yield OutputRow(label="repeats agree", value=agreement)
    n = sum(one.n_wrong + one.n_right for one in result.agreement)
    yield OutputRow(label="labels", value=f"{n} random ones at steps {_steps(result)}" if n else "none")
    if isinstance(result.leniency, str):
        yield OutputRow(label="leniency", value=f"not tested: {result.leniency}")
    elif result.leniency is not None:
        one = result.leniency
        change = f"{signed_text(one.change)}{bounds_text(one.low, one.high, signed=True)}"
        yield OutputRow(label="leniency", value=f"{change} points against {one.other}, p = {one.p:.2g}")


def _steps(result: JudgeResult) -> str:
    return ", ".join(str(one.step) for one in result.agreement)


def _probe_cells(result: VerdictShift) -> list[str]:
    shift = f"{signed_text(result.shift)}{bounds_text(result.low, result.high, signed=True)}"
    return [result.name, str(result.n), str(result.n_accepted), str(result.n_refused), shift]


def _corrected_cells(value: CorrectedValue) -> list[str]:
    text = signed_text if value.is_change else points_text
    bounds = f" ({value.why})" if value.why else bounds_text(value.low, value.high, signed=value.is_change)
    name = f"change of pass@{value.k}" if value.is_change else f"pass@{value.k}"
    return [str(value.step), name, text(value.judged), f"{text(value.value)}{bounds}", str(value.n)]
