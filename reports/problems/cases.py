"""Blocks on single problems: success over the checkpoints, answers, and responses of base and last checkpoint."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import pandas as pd

from oversharp.diagnostics.records.cells import HEAD_CHARACTERS, TAIL_CHARACTERS
from oversharp.reports import numbers
from oversharp.reports.context import Context
from oversharp.reports.evidence.problem_changes import intermediate_success, success_interval
from oversharp.reports.evidence.problem_details import TEXT_CAP
from oversharp.reports.evidence.source import SeriesSource
from oversharp.reports.findings.figures import series_colour
from oversharp.reports.findings.tables import spread_evenly
from oversharp.reports.problems.table import CROWD, Names, case_id, truncate_text
from oversharp.reports.records import (
    DASH,
    Block,
    Cases,
    Cell,
    Column,
    Folded,
    ProblemCase,
    Response,
    Side,
    Table,
    Trajectory,
)

GOLD_CAP = 200
#: Number of unfolded problems, for few series and for many.
FIRST_CASES, FIRST_CASES_OF_CROWD = 6, 3
SHOWN_STEPS = 12
SHOWN_MODES = 6
#: From MANY_SERIES series on, the tables of a problem have one column per series and at most SHOWN_STEPS_OF_MANY steps.
MANY_SERIES, SHOWN_STEPS_OF_MANY = 3, 6


def problem_cases(
    context: Context, trained: tuple[SeriesSource, ...], changes: Mapping[str, pd.DataFrame]
) -> tuple[Block, ...]:
    """Return the blocks of the picked problems. Most are folded. ``changes`` is series name → ``problem_changes``."""
    if not context.details.picked:
        return ()
    texts = context.source.problems.set_index("problem_id")
    rows = {name: {str(row["problem_id"]): row for row in frame.to_dict("records")} for name, frame in changes.items()}
    counts = dict(tuple(context.source.problem_counts.groupby("problem_id", sort=False)))
    names = Names(context)
    intermediate = {series.name: intermediate_success(context.source, series) for series in trained}
    cases = []
    for problem_id in context.details.picked:
        own = tuple(series for series in trained if problem_id in rows[series.name])
        cases.append(
            ProblemCase(
                case_id=case_id(problem_id),
                problem_id=problem_id,
                name=names.name(problem_id),
                title=names.prompt(problem_id).text,
                prompt=truncate_text(str(texts.loc[problem_id, "prompt"]), TEXT_CAP),
                gold=truncate_text(str(texts.loc[problem_id, "gold"]), GOLD_CAP),
                summary=_summaries(
                    context, [(member, rows[member.name][problem_id], intermediate[member.name]) for member in own]
                ),
                trajectories=tuple(_trajectory(context, series, counts[problem_id]) for series in own),
                tables=(_counts(context, own, counts[problem_id]), _modes(context, own, problem_id)),
                sides=_sides(context, own, problem_id, counts[problem_id]),
            )
        )
    shown = numbers.plural(len(cases), "problem")
    note = (
        f"{shown}: confirmed changes first, then the largest falls, then gains. Responses of the base: correct ones "
        f"first, then the most frequent. Only the first {HEAD_CHARACTERS} and the last {TAIL_CHARACTERS} characters of "
        "long responses are shown. The small line is the success rate over the checkpoints, from 0 to its maximum."
    )
    first = FIRST_CASES if len(context.series) < CROWD else FIRST_CASES_OF_CROWD
    blocks: list[Block] = [Cases(title="Single problems", note=note, cases=tuple(cases[:first]))]
    if rest := tuple(cases[first:]):
        summary = "the next largest falls, then gains"
        more = Cases(title="More single problems", note="In the same order.", cases=rest)
        blocks.append(Folded(title=f"{numbers.plural(len(rest), 'more problem')}", summary=summary, blocks=(more,)))
    return tuple(blocks)


def _summaries(context: Context, own: Sequence[tuple[SeriesSource, Mapping[str, Any], pd.DataFrame]]) -> str:
    """Return a summary per series. With many series, only those that lost or gained the problem are included."""
    shown = [parts for parts in own if len(own) < CROWD or parts[1]["state"] in ("lost", "gained")]
    rest = len(own) - len(shown)
    noun = ("other",) if shown else ("series", "series")
    others = [f"neither lost nor gained in {numbers.plural(rest, *noun)}"] if rest else []
    return "; ".join([*(_summary(context, *parts) for parts in shown), *others])


def _summary(context: Context, series: SeriesSource, row: Mapping[str, Any], intermediate: pd.DataFrame) -> str:
    """Return correct samples at base and last checkpoint; for a lost problem also at its best checkpoint, and p."""
    fresh = context.details.fresh
    fresh = fresh[(fresh["series"] == series.name) & (fresh["problem_id"] == row["problem_id"])]
    confirmed = len(fresh) > 0 and bool(fresh["confirmed"].iloc[0])
    state = row["state"] + (", confirmed" if confirmed else "")
    parts = [f"base {int(row['c_base'])} of {int(row['n_base'])} correct"]
    if row["state"] == "lost":
        best = intermediate.loc[row["problem_id"]]
        if not pd.isna(best["step"]) and best["n_correct"]:
            parts.append(f"{int(best['n_correct'])} of {int(best['n'])} at step {int(best['step'])}")
        state += "" if confirmed or pd.isna(row["p_adjusted"]) else f", {numbers.p_text(float(row['p_adjusted']))}"
    parts.append(f"last {int(row['c_late'])} of {int(row['n_late'])}")
    return context.with_series_name(series, f"{', '.join(parts)} ({state})")


def _trajectory(context: Context, series: SeriesSource, counts: pd.DataFrame) -> Trajectory:
    own = counts[counts["series"] == series.name].sort_values("step")
    place = [other.name for other in context.series].index(series.name)
    return Trajectory(colour=series_colour(place), shares=tuple(float(v) for v in own["n_correct"] / own["n"]))


def _counts(context: Context, own: tuple[SeriesSource, ...], counts: pd.DataFrame) -> Table:
    """Return a table with the correct samples of each checkpoint and the CI of their share."""
    several, many = len(context.series) > 1, len(own) >= MANY_SERIES
    bounded = _with_intervals(own, counts)
    at = {(row["series"], row["step"]): row for row in bounded.to_dict("records")}
    steps = sorted({int(step) for step in counts["step"]})
    shown = spread_evenly(steps, SHOWN_STEPS_OF_MANY if many else SHOWN_STEPS)
    body = []
    for step in shown:
        cells = [Cell.count(step)]
        for series in own:
            cells += _success_cells(at.get((series.name, step)))[: 1 if many else 2]
        body.append(tuple(cells))
    names = [f"{series.name}: " if several else "" for series in own]
    left = f" {len(shown)} of {len(steps)} checkpoints shown." if len(shown) < len(steps) else ""
    return Table(
        title="Correct samples per checkpoint",
        columns=(
            Column(name="step"),
            *(Column(name=series.name) for series in own if many),
            *(Column(name=f"{name}{what}") for name in names if not many for what in ("correct", "success")),
        ),
        rows=tuple(body),
        note=left.strip()
        if many
        else f"Brackets: exact {numbers.NINETY_FIVE} CI of this problem's success rate.{left}",
    )


def _with_intervals(own: tuple[SeriesSource, ...], counts: pd.DataFrame) -> pd.DataFrame:
    """Return the counts with the CIs of the success rates, ``low`` and ``high``."""
    parts = []
    for series in own:
        for is_base, rows in counts[counts["series"] == series.name].groupby("is_base"):
            rule = series.rule(is_base=bool(is_base))
            low, high = success_interval(rows["n_correct"].to_numpy(), rows["n"].to_numpy(), rule)
            parts.append(rows.assign(low=low, high=high))
    return pd.concat(parts)


def _success_cells(row: Mapping[Hashable, Any] | None) -> list[Cell]:
    """Return two cells: the number of correct samples, and their share with its CI."""
    if row is None:
        return [DASH, DASH]
    share = row["n_correct"] / row["n"]
    text = f"{share:.2f} [{row['low']:.2f}, {row['high']:.2f}]"
    return [Cell(text=f"{int(row['n_correct'])} / {int(row['n'])}", sort=share), Cell(text=text, sort=share)]


def _modes(context: Context, own: tuple[SeriesSource, ...], problem_id: str) -> Table:
    """Return a table of the most frequent answers at base and last checkpoint."""
    several, many = len(context.series) > 1, len(own) >= MANY_SERIES
    modes = context.details.modes[context.details.modes["problem_id"] == problem_id]
    keys = _shown_modes(modes)
    at = {(row["series"], row["mode"], row["correct"]): row for row in modes.to_dict("records")}
    body = []
    for mode, correct in keys:
        cells = [Cell(text=str(mode), code=True), Cell(text="yes" if correct else "no")]
        for series in own:
            row = at.get((series.name, mode, correct))
            ends = [DASH if row is None else Cell.count(row[name]) for name in ("n_base", "n_late")]
            cells += [Cell(text=" → ".join(end.text for end in ends), sort=ends[1].sort)] if many else ends
        body.append(tuple(cells))
    names = [f"{series.name}: " if several else "" for series in own]
    totals = modes.groupby("series", sort=False)["n_modes"].max()
    parts = tuple(
        context.with_series_name(series, f"{int(totals[series.name])} distinct")
        for series in own
        if series.name in totals.index
    )
    is_mode = bool(modes["is_mode"].astype(bool).any())
    of = " in the first round" if any(series.is_stopped for series in own) else ""
    return Table(
        title="Ways to answer, base and last checkpoint" if is_mode else "Answers, base and last checkpoint",
        columns=(
            Column(name="mode" if is_mode else "answer", numeric=False),
            Column(name="correct", numeric=False),
            *(Column(name=series.name) for series in own if many),
            *(Column(name=f"{name}{side}") for name in names if not many for side in ("base", "last")),
        ),
        rows=tuple(body),
        note=f"Number of samples{of} with each of the most frequent answers{', base → last' if many else ''} "
        f"({numbers.listing(parts)}). –: not among the most frequent."
        if parts
        else "",
    )


def _shown_modes(modes: pd.DataFrame) -> list[tuple[str, bool]]:
    """Return the most frequent modes at base or last checkpoint, including correct modes in any case."""
    ranked = modes.assign(most=modes[["n_base", "n_late"]].max(axis=1)).sort_values(
        "most", ascending=False, kind="stable"
    )
    every = list(
        dict.fromkeys((str(mode), bool(right)) for mode, right in zip(ranked["mode"], ranked["correct"], strict=True))
    )
    correct = [key for key in every if key[1]][: SHOWN_MODES // 2]
    rest = [key for key in every if key not in correct][: SHOWN_MODES - len(correct)]
    return sorted([*correct, *rest], key=every.index)


def _sides(context: Context, own: tuple[SeriesSource, ...], problem_id: str, counts: pd.DataFrame) -> tuple[Side, ...]:
    """Return the responses of each base (which series may share) and of each last checkpoint, side by side."""
    n_of = {(row["series"], bool(row["is_base"]), row["step"]): int(row["n"]) for row in counts.to_dict("records")}
    responses = context.details.responses
    responses = responses[responses["problem_id"] == problem_id]
    bases: dict[tuple[Hashable, str], list[SeriesSource]] = {}
    for series in own:
        bases.setdefault((series.base_id, series.settings_id), []).append(series)
    sides = []
    for sharing in bases.values():
        of = f" of {numbers.listing(tuple(s.name for s in sharing))}" if len(bases) > 1 else ""
        at_base = (responses["series"] == sharing[0].name) & responses["is_base"].astype(bool)
        sides.append(
            Side(
                title=f"Base{of}, {numbers.plural(n_of[sharing[0].name, True, sharing[0].base_step], 'sample')}",
                responses=_responses(responses[at_base]),
            )
        )
    for series in own:
        late = (responses["series"] == series.name) & ~responses["is_base"].astype(bool)
        n = numbers.plural(n_of[series.name, False, series.last_step], "sample")
        title = context.with_series_name(series, f"last checkpoint (step {series.last_step}), {n}")
        sides.append(Side(title=title, responses=_responses(responses[late])))
    return tuple(sides)


def _responses(rows: pd.DataFrame) -> tuple[Response, ...]:
    return tuple(
        Response(
            text=str(row["text"]),
            n_characters=int(row["n_characters"]),
            correct=bool(row["correct"]),
            count=int(row["n"]),
            note=_note(row["state"], row["reason"]),
            tail=str(row["tail"]),
            answer=row["answer"] if isinstance(row["answer"], str) else None,
        )
        for row in rows.to_dict("records")
    )


def _note(state: object, reason: object) -> str:
    """Return the grading state and its reason as text, or "" if the state is unknown or ok.

    >>> _note("parse_fail", "no box"), _note("ok", None), _note(None, None)
    ('parse fail: no box', '', '')
    """
    if not isinstance(state, str) or state == "ok":
        return ""
    return state.replace("_", " ") + (f": {reason}" if isinstance(reason, str) and reason else "")
