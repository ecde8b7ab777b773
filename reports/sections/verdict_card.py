"""The verdict of one series as the top of its card: label, sentence, how far it reaches, and what it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from diagnostics.verdict.record import Estimate, Rates, Remedy, Verdict, VerdictLabel
from diagnostics.verdict.rule import KEY_LEVEL, MARGIN, MINORITY_LEVEL
from diagnostics.verifiers.names import correct_means
from reports import numbers
from reports.evidence.source import SeriesSource
from reports.records import Cell, Table, VerdictText, columns

NO_VERDICT = (
    "No verdict: this audit was made before verdicts were written. Run the same audit again; what was sampled is kept."
)
#: A sign and a tone for every label, so that neither colour nor word stands alone.
_LOOKS: Mapping[VerdictLabel, tuple[str, Literal["loss", "held", "open"]]] = {
    "over_sharpened": ("▼", "loss"),
    "over_sharpened_here": ("▼", "loss"),
    "mode_collapse": ("◆", "loss"),
    "no_loss": ("✓", "held"),
    "inconclusive": ("?", "open"),
    "no_verdict": ("–", "open"),
}


def verdict_text(series: SeriesSource) -> VerdictText:
    """The verdict of ``series`` in words, or why there is none."""
    verdict = series.verdict
    if verdict is None:
        return VerdictText(title="No verdict", mark="–", tone="open", sentence=NO_VERDICT, scope=())
    mark, tone = _LOOKS[verdict.label]
    tables = (
        *((_facts(verdict), _changes(verdict)) if verdict.changes else ()),
        *((_rates(verdict.rates),) if verdict.rates else ()),
    )
    return VerdictText(
        title=verdict.title,
        mark=mark,
        tone=tone,
        sentence=verdict.sentence,
        scope=_scope(verdict),
        caveats=verdict.caveats,
        overturn=_overturn(verdict, series),
        tables=tables,
    )


def lost_coverage(verdict: Verdict) -> bool:
    """Whether pass@k fell: only then do k* and onset mean more than where a noisy curve crosses a line."""
    return verdict.label in ("over_sharpened", "over_sharpened_here")


def window_text(steps: tuple[int, ...]) -> str:
    """The steps of the late window in words.

    >>> window_text((40,)), window_text((40, 60, 80))
    ('step 40', 'steps 40 to 80')
    """
    return f"step {steps[0]}" if len(steps) == 1 else f"steps {min(steps)} to {max(steps)}"


def k_star_text(k_star: Estimate | None, k_most: int | None) -> str:
    """Where pass@k of the window falls below the base for good, with its interval; "beyond" is a legal answer.

    >>> k_star_text(Estimate(value=5.21, low=3.0, high=None), 64)
    'k* = 5.2, 95\\xa0% interval from 3.0 to beyond 64'
    >>> k_star_text(Estimate(value=None, low=48.0, high=None), 64)
    'k* lies beyond 64, 95\\xa0% interval from 48.0 upwards'
    """
    if k_star is None:
        return "k* is unknown"
    if k_star.value is None:
        start = "" if k_star.low is None else f", {numbers.NINETY_FIVE} interval from {_k(k_star.low)} upwards"
        return f"k* lies beyond {k_most}{start}"
    if k_star.low is None:
        return f"k* = {_k(k_star.value)}"
    high = f"beyond {k_most}" if k_star.high is None else _k(k_star.high)
    return f"k* = {_k(k_star.value)}, {numbers.NINETY_FIVE} interval from {_k(k_star.low)} to {high}"


def decline_text(began: Estimate) -> str:
    """When the decline began, with its interval.

    >>> decline_text(Estimate(value=120.0, low=60.0, high=180.0))
    'step 120, 95\\xa0% interval 60 to 180'
    """
    if began.value is None:
        return "unknown"
    text = f"step {numbers.fixed(began.value, 0)}"
    if began.low is None or began.high is None:
        return f"{text}, no upper bound" if began.low is not None else f"{text}, no interval"
    if began.low == began.high:
        return f"{text}, in every resample of the problems; a fall that flattens is put at its very start"
    return f"{text}, {numbers.NINETY_FIVE} interval {numbers.fixed(began.low, 0)} to {numbers.fixed(began.high, 0)}"


def _k(value: float) -> str:
    return numbers.fixed(value, 0 if value >= 100 else 1)


def _scope(verdict: Verdict) -> tuple[str, ...]:
    if verdict.k_most is None:
        return ()
    lines = [f"Range: k = 1 to {verdict.k_most}." if verdict.k_most > 1 else "Range: k = 1."]
    lines[0] += " Nothing is said about larger k."
    lines.append(
        f"Scope: one training seed; {correct_means(verdict.graders)}; {numbers.plural(verdict.n_problems, 'problem')}"
        + (" and problems like them." if verdict.label == "over_sharpened" else ".")
    )
    return tuple(lines)


def _facts(verdict: Verdict) -> Table:
    """Both keys, the minority channel, and what was compared with what."""
    rows = [
        ("key 1: a loss on these problems", _p(verdict.p_exact, KEY_LEVEL)),
        ("key 2: a loss on problems like these", _p(verdict.p_population, KEY_LEVEL)),
        ("minority channel: a loss outside the dominant modes", _minority(verdict)),
        ("base", f"{numbers.plural(verdict.n_base, 'sample')} per problem"),
        (
            "late window",
            f"{window_text(verdict.window)}, {numbers.plural(verdict.n_late, 'sample')} per problem in all",
        ),
    ]
    if verdict.least_change is not None:
        least = f"{numbers.points(verdict.least_change)} points; above {numbers.points(-MARGIN)} is no loss"
        rows.append(("lowest one-sided 95\N{NO-BREAK SPACE}% bound over k", least))
    rows.append(("crossing", k_star_text(verdict.k_star, verdict.k_most)))
    if lost_coverage(verdict):
        alarm = "at no single checkpoint" if verdict.detected_by is None else f"step {verdict.detected_by}"
        rows.append(("detected by", alarm))
        if verdict.decline_began is not None:
            rows.append(("decline began", decline_text(verdict.decline_began)))
    return Table(
        title="What the verdict rests on",
        columns=columns("what", "value"),
        rows=tuple((Cell(text=name), Cell(text=value)) for name, value in rows),
        note="A small p says that the loss is more than the luck of the draw. Key 1 resamples the counts of these very "
        f"problems, key 2 the problems; each looks at all k at once.{_averaged(verdict)}",
        folded=True,
    )


def _averaged(verdict: Verdict) -> str:
    """What is summed over the window and what is averaged, where it has several checkpoints."""
    if len(verdict.window) < 2:
        return ""
    return (
        " The tests take the samples of the window's checkpoints together; how far pass@k fell, the bound and k* are "
        "means over its checkpoints, one by one."
    )


def _overturn(verdict: Verdict, series: SeriesSource) -> str:
    """What would change the verdict, from its own data; empty where there is nothing to overturn."""
    how = "oversharp confirm draws them for the problems that seem lost"
    if series.recorded:
        how = "import more of them, or audit the checkpoints with oversharp audit"
    elif series.verifier is not None:
        how = "oversharp confirm draws them for the series that was graded first"
    fresh = f"fresh samples of the base and the late checkpoints that do not show the loss ({how})"
    seed = "a second training seed that does not lose it"
    match verdict.label:
        case "over_sharpened":
            return f"{fresh}, or {seed}."
        case "over_sharpened_here":
            more = f"{numbers.plural(verdict.n_problems, 'problem')} leave open whether others like them lost it too"
            return f"{fresh}, or {seed}. {more}: an audit of more problems tells."
        case "mode_collapse":
            held = f"A fall of pass@k beyond k = {verdict.k_most} cannot be seen"
            return f"{fresh}, or {seed}. {held}: plan a larger audit with oversharp plan."
        case "no_loss":
            return (
                f"a fall at k above {verdict.k_most}, which this audit cannot see: plan a larger one with oversharp "
                f"plan. A fall of less than {numbers.fixed(100 * MARGIN, 0)} points would not have been called a loss."
            )
        case "inconclusive":
            return _settling(verdict)
        case _:
            return ""


def _settling(verdict: Verdict) -> str:
    remedy = verdict.remedy
    if remedy is None:
        return "more problems or more samples: plan the audit with oversharp plan."
    if remedy.n_problems <= verdict.n_problems and remedy.n * len(verdict.window) <= verdict.n_late:
        return (
            f"a larger audit: one of this size finds a fall of {numbers.points(remedy.drop, signed=False)} points in "
            "80\N{NO-BREAK SPACE}% of cases; plan one for smaller falls with oversharp plan."
        )
    return f"a larger audit: {remedy_text(remedy)}."


def remedy_text(remedy: Remedy) -> str:
    """The audit that would settle it, and its cost.

    >>> remedy_text(Remedy(drop=0.05, n_problems=500, n=256, n_base=1024, tokens=3.2e7))
    '500 problems, 256 samples each and 1\\u202f024 of the base, find a fall of 5.0 points in 80\\xa0% of cases; about
    32 million tokens'
    """
    base = "" if remedy.n_base == remedy.n else f" and {numbers.fixed(remedy.n_base, 0)} of the base"
    return (
        f"{numbers.plural(remedy.n_problems, 'problem')}, {numbers.plural(remedy.n, 'sample')} each{base}, find a fall "
        f"of {numbers.points(remedy.drop, signed=False)} points in 80\N{NO-BREAK SPACE}% of cases"
        f"{'' if remedy.tokens is None else f'; about {_tokens(remedy.tokens)}'}"
    )


def _tokens(count: float) -> str:
    for size, name in ((1e9, "billion"), (1e6, "million"), (1e3, "thousand")):
        if count >= size:
            return f"{count / size:.3g} {name} tokens"
    return f"{count:.0f} tokens"


def _p(p: float | None, level: float) -> str:
    if p is None:
        return "not tested"
    return f"{numbers.p_text(p)}, {'at most' if p <= level else 'above'} {level:g}"


def _minority(verdict: Verdict) -> str:
    if verdict.p_minority is None:
        return "not tested: no problem shows its modes"
    over = numbers.plural(verdict.n_minority_problems, "problem")
    return f"{_p(verdict.p_minority, MINORITY_LEVEL)}, over {over}"


def _changes(verdict: Verdict) -> Table:
    rows = tuple(
        (
            Cell.count(change.k),
            Cell(text=numbers.fixed(change.base, 3), sort=change.base),
            Cell(text=numbers.fixed(change.late, 3), sort=change.late),
            Cell(text=_points(change.change, change.low, change.high), sort=change.change),
        )
        for change in verdict.changes
    )
    late = "Late: the mean over these checkpoints. " if len(verdict.window) > 1 else ""
    return Table(
        title=f"pass@k of the base and of {window_text(verdict.window)}",
        columns=columns(numbers=("k", "base", "late", "change (points)")),
        rows=rows,
        note=f"{late}Brackets: {numbers.NINETY_FIVE} interval over problems, paired, each k by itself.",
        folded=True,
    )


def _points(change: float, low: float | None, high: float | None) -> str:
    text = numbers.points(change)
    return text if low is None or high is None else f"{text} [{numbers.points(low)}, {numbers.points(high)}]"


def _rates(rates: tuple[Rates, ...]) -> Table:
    """What looks like lost modes and is none, per checkpoint; the title says the worst of it."""
    shares = [share for rate in rates for share in (rate.truncated, rate.not_parsed, rate.timed_out)]
    worst = max(share for share in shares if share is not None)
    told = "none" if not worst else f"at most {numbers.percent(worst)}"
    if None in shares:
        told = f"{told} where known"
    rows = tuple(
        (
            Cell.count(rate.step),
            *(
                Cell(text=numbers.UNKNOWN if share is None else numbers.percent(share), sort=share)
                for share in (rate.truncated, rate.not_parsed, rate.timed_out)
            ),
        )
        for rate in rates
    )
    return Table(
        title=f"Samples cut off, not parsed or out of time: {told}",
        columns=columns(numbers=("step", "cut off", "not parsed", "out of time")),
        rows=rows,
        note="Such samples count as not correct, so a rise of these rates looks like a loss.",
        folded=True,
    )
