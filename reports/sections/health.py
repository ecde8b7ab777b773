"""Sample health section: rates of truncated, unparsed and ungraded responses, which can look like lost modes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from oversharp.diagnostics.verdict.words.caveats import NOTABLE_RISE
from oversharp.diagnostics.verifiers.names import grader_name
from oversharp.reports import numbers
from oversharp.reports.context import Context
from oversharp.reports.evidence.source import SeriesSource, Source
from oversharp.reports.records import Block, Cell, Column, Folded, Missing, Section, Table

#: Maximum number of characters to show of the end of a response, which has the answer, and of an answer.
_END_CHARACTERS, _ANSWER_CHARACTERS = 160, 60
#: Measure → words for the responses that it counts, as in "3 % truncated".
_RATES = {
    "truncation_rate": "truncated",
    "parse_failure_rate": "without a parseable answer",
    "ambiguous_rate": "without a single answer",
    "timeout_rate": "timed out",
}
#: Measure → text for a rate that is 0 at all checkpoints, after "No response of any checkpoint".
_NEVER = {
    "truncation_rate": "was truncated",
    "parse_failure_rate": "had no parseable answer",
    "ambiguous_rate": "had several answers",
    "timeout_rate": "timed out in grading",
}


def health(context: Context) -> Section:
    """Build the section on sample health. One sentence lists all rates that are 0 at all checkpoints."""
    never = tuple(measure for measure in _RATES if _is_zero_throughout(context, measure))
    lead = [context.with_series_name(series, _lead(context, series, never)) for series in context.series]
    if len(never) == len(_RATES):
        lead = []
    if never:
        words = tuple(_NEVER[measure] for measure in never)
        lead.append(f"No response of any checkpoint {numbers.listing(words, last='or')}.")
    return Section(
        section_id="health",
        title="Sample health",
        short="Health",
        lead=tuple(lead),
        blocks=(
            *(block for series in context.series for block in _import_notes(series)),
            *disagreement_tables(context.source),
            *_fold_figures(context.blocks(context.in_section("health"))),
        ),
    )


def _fold_figures(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """Fold the figures, because the section's first sentences have their results. Missing measures stay visible."""
    figures = tuple(block for block in blocks if not isinstance(block, Missing))
    missing = tuple(block for block in blocks if isinstance(block, Missing))
    if not figures:
        return missing
    titles = numbers.listing(tuple(block.title for block in figures))
    return (Folded(title="Over training", summary=titles, blocks=figures), *missing)


def _import_notes(series: SeriesSource) -> Iterator[Missing]:
    """Yield notes on imported series: doubtful grades, and records that the import skipped."""
    doubts = series.provenance.get("doubts")
    if isinstance(doubts, Sequence) and doubts:
        yield Missing(title=f"Doubtful grades of {series.name}", why=tuple(map(str, doubts)), label="")
    if series.unusable:
        counts = tuple(f"{numbers.plural(n, 'record')}: {why}" for why, n in series.unusable.items())
        yield Missing(title=f"Records skipped by the import of {series.name}", why=counts, label="")


def _is_zero_throughout(context: Context, measure: str) -> bool:
    findings = context.source.findings_of(measure)
    rows = findings[findings["scope"] == "all"]
    return not rows.empty and bool((rows["value"] == 0.0).all())


def _lead(context: Context, series: SeriesSource, never: tuple[str, ...]) -> str:
    parts, changed = [], []
    for measure, name in _RATES.items():
        if measure in never:
            continue
        if (ends := context.ends(series, measure)) is None:
            continue
        before, after = ends
        parts.append(f"{name} {numbers.percent(before)} to {numbers.percent(after)}")
        if abs(after - before) > NOTABLE_RISE:
            changed.append(name)
    if not parts:
        return "no rate has a value at base and last checkpoint; see the reasons below."
    text = f"responses from base to last checkpoint: {numbers.listing(tuple(parts))}."
    least = numbers.plural(round(100 * NOTABLE_RISE), "point")
    if changed:
        return (
            f"{text} The share of responses {numbers.listing(tuple(changed))} changed by more than {least}, which can "
            "change pass@k."
        )
    return f"{text} {'It did not change' if len(parts) == 1 else 'None of these changed'} by more than {least}."


def disagreement_tables(source: Source) -> tuple[Table, ...]:
    """Return a table for each regraded series, with responses that the two verifiers grade differently."""
    by_series = source.disagreements.groupby("series", sort=False)
    return tuple(_disagreement_table(str(name), rows) for name, rows in by_series)


def _disagreement_table(series: str, rows: pd.DataFrame) -> Table:
    first = rows.iloc[0]
    n_all = int(first["n_all"])
    shown = "all shown" if len(rows) == n_all else f"the latest {len(rows)} are shown, at most two per problem"
    return Table(
        title=f"Responses on which two verifiers disagree, {series}",
        columns=(
            Column(name="step"),
            Column(name="problem", numeric=False),
            Column(name="samples"),
            Column(name="accepted by", numeric=False),
            Column(name=f"answer by {grader_name(str(first['own_verifier']))}", numeric=False),
            Column(name=f"answer by {first['verifier']}", numeric=False),
            Column(name="end of the response", numeric=False),
        ),
        rows=tuple(
            (
                Cell.count(row["step"]),
                Cell(text=str(row["source_id"] or row["problem_id"]), code=True),
                Cell.count(row["n"]),
                Cell(text=str(row["verifier"]) if row["correct"] else grader_name(str(row["own_verifier"]))),
                Cell(text=_answer_text(row["own_answer"], str(row["own_state"]))),
                Cell(text=_answer_text(row["answer"], str(row["state"]))),
                Cell(text=_last_line(str(row["ending"]))),
            )
            for row in rows.to_dict("records")
        ),
        note=f"{numbers.plural(n_all, 'distinct response')}, {shown}. The view grade_disagreements has all.",
        folded=True,
    )


def _answer_text(answer: object, state: str) -> str:
    """Return the shortened answer that a grader extracted, with the grading state unless it is ok.

    >>> _answer_text(None, "ok"), _answer_text("7", "parse_fail")
    ('not recorded', '7 (parse fail)')
    """
    text = answer if isinstance(answer, str) else "not recorded"
    shown = text if len(text) <= _ANSWER_CHARACTERS else f"{text[: _ANSWER_CHARACTERS - 1]}…"
    return shown if state == "ok" else f"{shown} ({state.replace('_', ' ')})"


def _last_line(text: str) -> str:
    """Return the last characters of a text, on one line.

    >>> _last_line("So it is\\n7.")
    'So it is 7.'
    """
    line = " ".join(text.split())
    return line if len(line) <= _END_CHARACTERS else f"…{line[1 - _END_CHARACTERS :]}"
