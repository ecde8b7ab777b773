"""Export findings and verdicts as CSV and Parquet (all columns), Markdown, or LaTeX (for a paper)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import pandas as pd
import pyarrow as pa
from pyarrow import parquet

from oversharp.diagnostics.export.contract import TableFormat, TableWhat
from oversharp.diagnostics.measures import all_measures
from oversharp.diagnostics.records.cells import without_formulas
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.verdict.headings import HEADINGS, TITLES

#: File suffix of each format.
ENDINGS: dict[TableFormat, str] = {"csv": ".csv", "parquet": ".parquet", "markdown": ".md", "latex": ".tex"}

_Reader = Callable[[Store, Sequence[str]], pd.DataFrame]
_Writer = Callable[[pd.DataFrame], str]
_BELOW, _ABOVE = r"$^{\downarrow}$", r"$^{\uparrow}$"
_UNTESTED = r"$^{\dagger}$"
_BOOKTABS = r"% needs \usepackage{booktabs}"
_DIGITS = 4  # digits of a number in Markdown; CSV and Parquet are exact
_FINDINGS = """
SELECT series, checkpoint, step, measure, scope, k, value, low, high, n, unit, why, interval_over,
       why_no_interval
FROM findings
WHERE list_contains($series::VARCHAR[], series)
ORDER BY list_position($series::VARCHAR[], series), measure, scope, k NULLS FIRST, step
"""
_VERDICTS = """
SELECT series, label, sentence, p_exact, p_population, p_minority, k_most, document::VARCHAR AS document
FROM verdicts
WHERE list_contains($series::VARCHAR[], series)
ORDER BY list_position($series::VARCHAR[], series)
"""


def findings(store: Store, series: Sequence[str]) -> pd.DataFrame:
    """Return the findings of ``series``, in order, with the columns of the view."""
    return store.frame(_FINDINGS, series=list(series)).astype({"k": "Int64", "n": "Int64"})


def verdicts(store: Store, series: Sequence[str]) -> pd.DataFrame:
    """Return the verdicts of ``series``, in order.

    The column ``document`` is the whole verdict as JSON text.
    """
    return store.frame(_VERDICTS, series=list(series)).astype({"k_most": "Int64"})


def write_table(frame: pd.DataFrame, path: Path, form: Literal["csv", "parquet"]) -> None:
    """Write all rows and columns. NULL is an empty cell in CSV.

    In CSV, text that a spreadsheet would run as a formula gets a leading apostrophe (``records.cells``).
    """
    if form == "csv":
        without_formulas(frame).to_csv(path, index=False, lineterminator="\n", encoding="utf-8")
    else:
        parquet.write_table(pa.Table.from_pandas(frame, preserve_index=False), path, compression="zstd")


def findings_markdown(frame: pd.DataFrame) -> str:
    """Return a section per measure with a table per series: a row per step and scope, a column per k.

    Intervals are in brackets. An unknown value is a dash; its reason is below the table.
    """
    titles = {measure.name: measure.title for measure in all_measures().values()}
    paragraphs = ["# Findings", "95 % intervals in brackets; – is unknown."]
    for measure, rows in frame.groupby("measure", sort=True):
        paragraphs.append(f"## {_cell(titles.get(str(measure), str(measure)))}")
        paragraphs.append(f"`{measure}`, unit: {_cell(str(rows['unit'].iloc[0]))}.")
        for series, own in rows.groupby("series", sort=False):
            paragraphs += [f"### {_cell(str(series))}", _findings_table(own), *_notes(own)]
    return "\n\n".join(paragraphs) + "\n"


def verdicts_markdown(frame: pd.DataFrame) -> str:
    """Return the verdict sentence of every series, followed by a table of the numbers."""
    sentences = [f"- **{_cell(row.series)}**: {_cell(row.sentence)}" for row in frame.itertuples()]
    columns = ("series", "label", "p_exact", "p_population", "p_minority", "k_most")
    body = [[_number(value) for value in row] for row in _add_titles(frame)[list(columns)].itertuples(index=False)]
    return "\n\n".join(["# Verdicts", "\n".join(sentences), _table(columns, body)]) + "\n"


def findings_latex(frame: pd.DataFrame) -> str:
    """Return pass@k in percent as LaTeX (booktabs): a table per series, a row per step, a column per k.

    An arrow marks values whose simultaneous confidence band is entirely below or above the base. A dagger marks values
    of k without a test.
    """
    whole = frame[frame["scope"] == "all"]
    values, bands = (whole[whole["measure"] == name] for name in ("pass_at_k", "pass_at_k_band"))
    parts = [
        f"{_BOOKTABS}; arrows: significantly below or above the base, over all steps and k; dagger: no test at this k"
    ]
    for series, own in values.groupby("series", sort=False):
        banded = bands[bands["series"] == series]
        below = {(row.step, row.k): row.high < 0 for row in banded.itertuples()}
        above = {(row.step, row.k): row.low > 0 for row in banded.itertuples()}
        cells = {
            (row.step, row.k): _latex_cell(row.value, below.get((row.step, row.k)), above.get((row.step, row.k)))
            for row in own.itertuples()
        }
        ks, steps = sorted(own["k"].unique()), sorted(own["step"].unique())
        tested = set(banded.loc[banded["low"].notna() | banded["high"].notna(), "k"])
        table = pd.DataFrame(
            [[str(step), *(cells.get((step, k), "--") for k in ks)] for step in steps],
            columns=["step", *(f"pass@{k}{'' if k in tested else _UNTESTED}" for k in ks)],
        )
        parts.append(
            f"% {' '.join(str(series).split())}\n{table.to_latex(index=False, column_format='r' * (len(ks) + 1))}"
        )
    return "\n".join(parts)


def n_rows(frame: pd.DataFrame, what: TableWhat, form: TableFormat) -> int:
    """Return the number of rows of a table in a format.

    LaTeX findings have one row per series and step.
    """
    if what == "findings" and form == "latex":
        shown = frame[(frame["measure"] == "pass_at_k") & (frame["scope"] == "all")]
        return len(shown[["series", "step"]].drop_duplicates())
    return len(frame)


def _latex_cell(value: float, below: bool | None, above: bool | None) -> str:
    if pd.isna(value):
        return "--"
    return f"{100 * value:.1f}" + (_BELOW if below else _ABOVE if above else "")


def verdicts_latex(frame: pd.DataFrame) -> str:
    """Return a LaTeX table (booktabs): a row per series with the name of the label and the p values."""
    shown = _add_titles(frame)[["series", "label", "p_exact", "p_population"]]
    columns = ["series", "label", "p, these problems", "p, population"]
    body = [[_number(value) for value in row] for row in shown.itertuples(index=False)]
    return f"{_BOOKTABS}\n{pd.DataFrame(body, columns=columns).to_latex(index=False, escape=True)}"


def _add_titles(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the verdicts with the headings used in the report."""
    return frame.assign(label=frame["label"].map({label: TITLES[heading] for label, heading in HEADINGS.items()}))


def _findings_table(rows: pd.DataFrame) -> str:
    """Return a table with one row per step and scope and one column per k, without empty columns."""
    ks = sorted(rows["k"].dropna().unique())
    has_scopes = set(rows["scope"]) != {"all"}
    cells = {
        (row.step, row.scope, None if pd.isna(row.k) else row.k): _estimate(row.value, row.low, row.high)
        for row in rows.itertuples()
    }
    places = rows[["step", "scope"]].drop_duplicates().sort_values(["step", "scope"])
    head = ["step", *(["scope"] if has_scopes else []), *([f"k = {k}" for k in ks] or ["value"])]
    body = [
        [str(step), *([_cell(scope)] if has_scopes else []), *(cells.get((step, scope, k), "") for k in ks or [None])]
        for step, scope in places.itertuples(index=False)
    ]
    return _table(head, body)


def _notes(rows: pd.DataFrame) -> Iterator[str]:
    """Yield the distinct reasons for unknown values and missing intervals."""
    unknown = rows[rows["value"].isna()]
    for why, own in unknown.groupby("why", sort=True):
        steps = ", ".join(str(step) for step in sorted(own["step"].unique()))
        yield f"– at step {steps}: {_cell(str(why))}."
    if (rows["interval_over"] == "clusters").any():
        yield "Intervals are over clusters of related problems."
    for why in sorted(rows["why_no_interval"].dropna().unique()):
        yield f"No interval: {_cell(str(why))}."


def _estimate(value: float, low: float, high: float) -> str:
    interval = "" if pd.isna(low) or pd.isna(high) else f" [{_number(low)}, {_number(high)}]"
    return f"{_number(value)}{interval}"


def _number(value: object) -> str:
    if pd.isna(value):  # type: ignore[call-overload]
        return "–"
    return f"{value:.{_DIGITS}g}" if isinstance(value, float) else _cell(str(value))


def _table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(text: str) -> str:
    r"""Escape text so that it cannot end its cell or its line.

    >>> _cell("a|b\nc")
    'a\\|b c'
    """
    return " ".join(text.split()).replace("|", "\\|")


#: For each table, the function that reads it and the functions that write it as text.
READ_TABLES: dict[TableWhat, tuple[_Reader, dict[TableFormat, _Writer]]] = {
    "findings": (findings, {"markdown": findings_markdown, "latex": findings_latex}),
    "verdicts": (verdicts, {"markdown": verdicts_markdown, "latex": verdicts_latex}),
}
