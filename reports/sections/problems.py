"""Problems: which were lost and gained, what they looked like before and after."""

from __future__ import annotations

import pandas as pd

from reports import numbers
from reports.context import Context
from reports.plots import series_colour
from reports.records import (
    Block,
    Cases,
    Cell,
    Column,
    Figure,
    Line,
    Missing,
    Panel,
    ProblemCase,
    Response,
    Section,
    Table,
)
from reports.source import SeriesSource, Source

MEASURES = (
    "queries_lost",
    "queries_gained",
    "queries_kept",
    "queries_lost_exact",
)
SHOWN_ROWS = 24
SHOWN_CASES = 3
TEXT_CAP = 1200
PROMPT_CAP = 90


def problem_changes(source: Source, series: SeriesSource) -> pd.DataFrame:
    """One row per problem: ``n_base, c_base, n_late, c_late, base, late, change``; largest fall first."""
    counts = source.problem_counts[source.problem_counts["series"] == series.name]
    base = counts[counts["step"] == series.base_step].set_index("problem_id")
    late = counts[counts["step"] == series.last_step].set_index("problem_id")
    both = pd.DataFrame(
        {"n_base": base["n"], "c_base": base["n_correct"], "n_late": late["n"], "c_late": late["n_correct"]}
    ).dropna()
    both["base"] = both["c_base"] / both["n_base"]
    both["late"] = both["c_late"] / both["n_late"]
    both["change"] = both["late"] - both["base"]
    return both.reset_index().sort_values(["change", "problem_id"], kind="stable").reset_index(drop=True)


def shortlist(source: Source, series: SeriesSource) -> tuple[str, ...]:
    """Problems worth reading: no correct sample late, most correct samples at base."""
    changes = problem_changes(source, series)
    lost = changes[(changes["c_base"] > 0) & (changes["c_late"] == 0)]
    return tuple(str(problem_id) for problem_id in lost["problem_id"][:SHOWN_CASES])


def problems(context: Context) -> Section:
    """Success per problem, problems lost and gained, and a few lost ones to read."""
    trained = tuple(series for series in context.series if series.base_step != series.last_step)
    changes = {series.name: problem_changes(context.source, series) for series in trained}
    blocks: list[Block] = []
    if any(not frame.empty for frame in changes.values()):
        blocks.append(_scatter(context, trained, changes))
    else:
        blocks.append(Missing(title="Success per problem", why=("no checkpoint after the base has samples",)))
    blocks += context.blocks((*MEASURES, *context.others("problems", MEASURES)))
    blocks += [_table(context, series, changes[series.name]) for series in trained if len(changes[series.name])]
    if cases := _cases(context, trained, changes):
        blocks.append(cases)
    return Section(
        section_id="problems",
        title="Problems",
        lead=tuple(context.named(series, _lead(series, changes[series.name])) for series in trained),
        blocks=tuple(blocks),
    )


def _state(row: pd.Series) -> str:
    if row["c_base"] > 0 and row["c_late"] == 0:
        return "lost"
    return "gained" if row["c_base"] == 0 and row["c_late"] > 0 else ""


def _lead(series: SeriesSource, changes: pd.DataFrame) -> str:
    lost = int(((changes["c_base"] > 0) & (changes["c_late"] == 0)).sum())
    gained = int(((changes["c_base"] == 0) & (changes["c_late"] > 0)).sum())
    return (
        f"of {numbers.plural(len(changes), 'problem')} {lost} lost every correct sample and {gained} won a first one. "
        f"With {numbers.plural(series.n, 'sample')} each, rarely solved problems cross that line by chance in both "
        "directions: a shortlist, not a finding."
    )


def _scatter(context: Context, trained: tuple[SeriesSource, ...], changes: dict[str, pd.DataFrame]) -> Figure:
    panels, body = [], []
    for i, series in enumerate(context.series):
        if series not in trained or changes[series.name].empty:
            continue
        frame = changes[series.name]
        bins = frame.assign(x=(frame["base"] * 40).round() / 40, y=(frame["late"] * 40).round() / 40)
        sizes = bins.groupby(["x", "y"], sort=True).size().reset_index(name="problems")
        line = Line(
            label=series.name,
            x=tuple(float(v) for v in sizes["x"]),
            y=tuple(float(v) for v in sizes["y"]),
            sizes=tuple(float(min(v, 16)) for v in sizes["problems"]),
            colour=series_colour(i),
            style=0,
        )
        above, below = int((frame["change"] > 0).sum()), int((frame["change"] < 0).sum())
        title = series.name if len(trained) > 1 else ""
        text = f"Success per problem, {series.name}: {above} problems above the diagonal, {below} below."
        panels.append(Panel(title=title, lines=(line,), description=text))
        deciles = frame.assign(decile=(frame["base"] * 10).clip(upper=9.999).astype(int))
        for decile, group in deciles.groupby("decile", sort=True):
            body.append(
                (
                    Cell(text=series.name),
                    Cell(text=f"{int(decile) / 10:.1f} to {(int(decile) + 1) / 10:.1f}", sort=float(decile)),  # type: ignore[arg-type]
                    Cell(text=str(len(group)), sort=float(len(group))),
                    Cell(text=numbers.points(group["change"].mean()), sort=float(group["change"].mean())),
                )
            )
    return Figure(
        figure_id="problem-success",
        kind="scatter",
        title="Success per problem, base against last checkpoint",
        caption="One bubble per pair of success rates (rounded to 1/40); its area counts problems, up to 16. "
        "Below the dashed line a problem is solved less often than by the base.",
        x_label="success rate of the base (probability)",
        y_label="success rate, last (probability)",
        panels=tuple(panels),
        y_range=(0.0, 1.0),
        diagonal=True,
        x_ticks=(0.0, 0.25, 0.5, 0.75, 1.0),
        table=Table(
            title="Mean change by success of the base: data",
            columns=(
                Column(name="series", numeric=False),
                Column(name="success of the base"),
                Column(name="problems"),
                Column(name="mean change (points)"),
            ),
            rows=tuple(body),
            note="Problems are sorted by a noisy success rate: the lowest decile gains and the highest falls a little "
            "even without any change.",
            folded=True,
        ),
    )


def _table(context: Context, series: SeriesSource, changes: pd.DataFrame) -> Table:
    texts = context.source.problems.set_index("problem_id")
    states = changes.apply(_state, axis=1)
    lost, gained = changes[states == "lost"], changes[states == "gained"].iloc[::-1]
    half = SHOWN_ROWS // 2
    rows = pd.concat([lost[:half], gained[:half]])
    kind = "lost and gained"
    if rows.empty:
        rows, kind = pd.concat([changes[:5], changes[5:].iloc[::-1][:5]]), "largest changes"
    body = []
    for row in rows.to_dict("records"):
        problem = texts.loc[row["problem_id"]]
        name = problem["source_id"] if isinstance(problem["source_id"], str) else row["problem_id"]
        body.append(
            (
                Cell(text=_state(pd.Series(row)) or ("fell" if row["change"] < 0 else "rose")),
                Cell(text=_cut(str(problem["prompt"]), PROMPT_CAP)),
                Cell(text=f"{int(row['c_base'])} / {int(row['n_base'])}", sort=float(row["base"])),
                Cell(text=f"{int(row['c_late'])} / {int(row['n_late'])}", sort=float(row["late"])),
                Cell(text=_cut(str(name), 24), code=True),
            )
        )
    left = len(lost) + len(gained) - len(body)
    more = f" {left} more are in the store (view problem_counts)." if kind == "lost and gained" and left > 0 else ""
    title = f"Problems {kind}" if kind == "lost and gained" else f"No problem lost or gained; {kind}"
    return Table(
        title=title + (f": {series.name}" if len(context.series) > 1 else ""),
        columns=(
            Column(name="change", numeric=False),
            Column(name="problem", numeric=False),
            Column(name="correct, base"),
            Column(name="correct, last"),
            Column(name="id", numeric=False),
        ),
        rows=tuple(body),
        note=f"Unconfirmed: counts of one draw.{more}",
    )


def _cases(context: Context, trained: tuple[SeriesSource, ...], changes: dict[str, pd.DataFrame]) -> Cases | None:
    """Two base-correct beside two late responses for the shortlist of lost problems."""
    texts = context.source.problems.set_index("problem_id")
    cases = []
    for series in trained:
        responses = context.responses.get(series.name)
        if responses is None or responses.empty:
            continue
        counts = {row["problem_id"]: row for row in changes[series.name].to_dict("records")}
        for problem_id in shortlist(context.source, series):
            own = responses[responses["problem_id"] == problem_id]
            row, problem = counts[problem_id], texts.loc[problem_id]
            cases.append(
                ProblemCase(
                    series=series.name,
                    problem_id=problem_id,
                    prompt=_cut(str(problem["prompt"]), TEXT_CAP),
                    gold=_cut(str(problem["gold"]), 200),
                    summary=f"base {int(row['c_base'])} of {int(row['n_base'])} correct, "
                    f"last {int(row['c_late'])} of {int(row['n_late'])}",
                    base=_responses(own[own["is_base"]]),
                    late=_responses(own[~own["is_base"]]),
                )
            )
    if not cases:
        return None
    note = f"The most frequent responses; anything beyond {TEXT_CAP} characters is cut."
    return Cases(title="Lost problems, read side by side", note=note, cases=tuple(cases))


def _responses(rows: pd.DataFrame) -> tuple[Response, ...]:
    return tuple(
        Response(
            text=str(row["text"]),
            n_characters=int(row["n_characters"]),
            correct=bool(row["correct"]),
            count=int(row["n"]),
            note="" if row["state"] == "ok" else f"{row['state']}: {row['reason']}".rstrip(": "),
        )
        for row in rows.to_dict("records")
    )


def _cut(text: str, cap: int) -> str:
    """
    >>> _cut("abcdef", 4)
    'abc…'
    """
    return text if len(text) <= cap else text[: cap - 1] + "…"
