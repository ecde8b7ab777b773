"""Tables of a verdict: tested claims, checkpoints, other explanations, and the compared samples."""

from __future__ import annotations

from collections.abc import Mapping

from oversharp.diagnostics.verdict.causes.explanations import CAUSES
from oversharp.diagnostics.verdict.claims import A_CHECKPOINT, NO_FALL, SOME_LOST
from oversharp.diagnostics.verdict.record import Verdict
from oversharp.diagnostics.verdict.results import Claim, Estimate, Explanation, Rates, StepClaim
from oversharp.diagnostics.verdict.rule import MARGIN
from oversharp.diagnostics.verdict.steps import Accuracy
from oversharp.diagnostics.verdict.words.beyond import beyond_text
from oversharp.diagnostics.verdict.words.sentence import share_text
from oversharp.reports import numbers
from oversharp.reports.records import Cell, Column, Table, columns


def lost_coverage(verdict: Verdict) -> bool:
    """Return whether pass@k fell. Otherwise k* and the onset are only places where a noisy curve crosses 0."""
    return verdict.label in ("over_sharpened", "over_sharpened_here", "degraded")


def window_text(verdict: Verdict) -> str:
    """Return the steps of the late window as text; for a repaired series, its λ.

    >>> from dataclasses import replace
    >>> verdict = Verdict(series="run", label="inconclusive", sentence="", window=(50, 75, 100))
    >>> window_text(verdict), window_text(replace(verdict, repaired=True))
    ('steps 50 to 100', 'λ = 0.5–1')
    """
    first, last = verdict.window[0], verdict.window[-1]
    if verdict.repaired or first == last:
        return verdict.places_text([(first, last)])
    return f"steps {first} to {last}"


def k_star_text(k_star: Estimate | None, k_most: int | None) -> str:
    """Return k*, above which pass@k of the window is below the base, with its CI.

    >>> k_star_text(Estimate(value=5.21, low=3.0, high=None), 64)
    'k* = 5.2, 95\\xa0% CI from 3.0 to above 64'
    >>> k_star_text(Estimate(value=None, low=48.0, high=None), 64)
    'k* is above 64, 95\\xa0% CI from 48.0 upwards'
    """
    if k_star is None:
        return "k* is unknown"
    if k_star.value is None:
        start = "" if k_star.low is None else f", {numbers.NINETY_FIVE} CI from {_k(k_star.low)} upwards"
        return f"k* is above {k_most}{start}"
    if k_star.low is None:
        return f"k* = {_k(k_star.value)}"
    high = f"above {k_most}" if k_star.high is None else _k(k_star.high)
    return f"k* = {_k(k_star.value)}, {numbers.NINETY_FIVE} CI from {_k(k_star.low)} to {high}"


def decline_text(began: Estimate) -> str:
    """Return the step at which the decline began, with its CI.

    >>> decline_text(Estimate(value=120.0, low=60.0, high=180.0))
    'step 120, 95\\xa0% CI 60 to 180'
    """
    if began.value is None:
        return "unknown"
    text = f"step {numbers.decimal(began.value, 0)}"
    if began.low is None or began.high is None:
        return f"{text}, no upper bound" if began.low is not None else f"{text}, no CI"
    if began.low == began.high:
        return f"{text}, the same in every resample of the problems (the fit puts a fall that levels off at its start)"
    return f"{text}, {numbers.NINETY_FIVE} CI {numbers.decimal(began.low, 0)} to {numbers.decimal(began.high, 0)}"


def _k(value: float) -> str:
    return numbers.decimal(value, 0 if value >= 100 else 1)


def tables(verdict: Verdict, first: Mapping[int, float]) -> tuple[Table, ...]:
    """Return all tables of ``verdict``, folded. ``first`` is step → pass@1, for the steps with a known value."""
    return (
        *((_accuracies(verdict),) if verdict.accuracies else ()),
        *((_steps(verdict, first),) if verdict.steps or verdict.left_out else ()),
        *((_claims(verdict),) if verdict.claims else ()),
        *((_explanations(verdict, verdict.explanation),) if verdict.explanation is not None else ()),
        *((_facts(verdict), _changes(verdict)) if verdict.changes else ()),
        *((_rates(verdict.rates),) if verdict.rates else ()),
    )


def _accuracies(verdict: Verdict) -> Table:
    """Return a table of the accuracy with one response per problem, and each checkpoint's exact test."""
    greedy = "Greedy accuracy" if verdict.accuracies[0].greedy else "Accuracy of one response per problem"
    rows = tuple((Cell.count(accuracy.step), *_accuracy_cells(accuracy)) for accuracy in verdict.accuracies)
    return Table(
        title=f"{greedy} at {numbers.plural(len(rows), 'checkpoint')}",
        columns=columns(numbers=("step", "accuracy", "change (points)", "lost", "gained", "p")),
        rows=rows,
        note="Change against the base, with its 95\N{NO-BREAK SPACE}% CI over problems. p: McNemar's exact test, "
        "two-sided, not corrected for the number of checkpoints.",
    )


def _accuracy_cells(accuracy: Accuracy) -> tuple[Cell, ...]:
    share = Cell(text=numbers.percent(accuracy.share), sort=accuracy.share)
    if accuracy.change is None or accuracy.n_lost is None or accuracy.n_gained is None:
        return (share, *(Cell(text="–"),) * 4)
    change = Cell(text=_points(accuracy.change, accuracy.low, accuracy.high), sort=accuracy.change)
    p = Cell(text=numbers.number(accuracy.p, "p-value"), sort=accuracy.p)
    return (share, change, Cell.count(accuracy.n_lost), Cell.count(accuracy.n_gained), p)


def _steps(verdict: Verdict, first: Mapping[int, float]) -> Table:
    """Return a table of the checkpoints as lost, kept, open or omitted; the title has their counts."""
    counts = {state: sum(_state(claim) == state for claim in verdict.steps) for state in ("lost", "kept", "open")}
    counts["omitted"] = len(verdict.left_out)
    counts_text = ", ".join(f"{n} {state}" for state, n in counts.items() if n)
    omitted = tuple(
        (Cell(text=gap.checkpoint if gap.step is None else str(gap.step), sort=gap.step), Cell(text="omitted"))
        + (Cell(text="–"),) * 3
        for gap in verdict.left_out
    )
    rows = tuple(
        (
            Cell.count(claim.step),
            Cell(text=f"lost, or {claim.cause}" if claim.lost and claim.cause else _state(claim)),
            Cell(text=numbers.number(first.get(claim.step), "probability"), sort=first.get(claim.step)),
            Cell(text=_points(claim.change, claim.low, claim.high), sort=claim.change),
            Cell.count(claim.k),
        )
        for claim in verdict.steps
    )
    causes = sorted({claim.cause for claim in verdict.steps if claim.lost and claim.cause})
    otherwise = f", perhaps because of {' and '.join(map(CAUSES.__getitem__, causes))}" if causes else ""
    return Table(
        title=f"Checkpoints: {counts_text}",
        columns=columns(numbers=("step", "pass@k", "pass@1", "lowest change (points)", "at k")),
        rows=rows + omitted,
        note=f"Lost: pass@k fell significantly at some k{otherwise}. Kept: pass@k fell by more than "
        f"{numbers.decimal(100 * MARGIN, 0)} points at no k ({numbers.NINETY_FIVE} confidence). Open: neither is "
        "shown. The change is at the k where it is lowest relative to its standard error. CIs and tests are "
        f"simultaneous over all checkpoints and k.{_clear_but_open(verdict)}{_why_left_out(verdict)}",
        folded=True,
    )


def _clear_but_open(verdict: Verdict) -> str:
    """Return why checkpoints are open although their CI is below 0; empty if there are none."""
    below = [(claim.step, claim.step) for claim in verdict.steps if _state(claim) == "open" and claim.high < 0]
    level = next((claim.level for claim in verdict.claims if claim.name == A_CHECKPOINT), None)
    if not below or level is None:
        return ""
    return (
        f" At {verdict.places_text(below)} the {numbers.NINETY_FIVE} CI is below 0, but the checkpoint is open: a loss "
        f"requires a significant test of these problems at level {level:.2g} (its share of the false-alarm rate)."
    )


def _why_left_out(verdict: Verdict) -> str:
    return "".join(f" {gap.checkpoint} is omitted: {gap.why}." for gap in verdict.left_out)


def _state(claim: StepClaim) -> str:
    return "lost" if claim.lost else "kept" if claim.kept else "open"


def _claims(verdict: Verdict) -> Table:
    """Return a table of all claims with their tests and other explanations; the title counts those that hold."""
    held = sum(claim.holds for claim in verdict.claims)
    rows = tuple(
        (
            Cell(text=claim.name),
            Cell(text=_holding(claim)),
            Cell(text=numbers.number(claim.p, "p-value"), sort=claim.p),
            Cell(text=f"{claim.level:.2g}", sort=claim.level),
            Cell(text=_size(claim), sort=None if claim.size is None else claim.size.value),
            Cell(text=claim.null),
            Cell(text=claim.scope),
            Cell(text=claim.why or "; ".join(claim.otherwise)),
        )
        for claim in verdict.claims
    )
    return Table(
        title=f"Tested claims: {held} of {len(rows)} hold",
        columns=(
            Column(name="claim", numeric=False),
            *columns(numbers=("holds", "p", "level", "size (points)")),
            *columns("null hypothesis", "scope", "other explanation, or why not claimed"),
        ),
        rows=rows,
        note="A claim holds if p, the probability of such data under the null hypothesis, is at most its level. Each "
        "test covers all its k together. The label uses the first four claims and the last one; the others are "
        "informative only.",
        folded=True,
    )


def _holding(claim: Claim) -> str:
    if claim.p is None:
        return "not tested"
    if claim.why is not None:
        return "not claimed"
    return "yes" if claim.holds else "not shown"


def _size(claim: Claim) -> str:
    size = claim.size
    if size is None:
        return "–"
    if claim.name == SOME_LOST:
        return f"{numbers.percent(size.value or 0.0)} of problems"
    if claim.name == NO_FALL:
        return "–" if size.low is None else f"above {numbers.points(size.low)}"
    return "–" if size.value is None else _points(size.value, size.low, size.high)


#: Source of the false-accept rate → text.
_SOURCES = {"assumed": "assumed, not measured", "given": "from --guess-rate"}


def _explanations(verdict: Verdict, explanation: Explanation) -> Table:
    """Return a table of other explanations of the fall, and the part of it that each accounts for."""
    source = _SOURCES.get(explanation.guess_source, explanation.guess_source)
    least = "more than half" if explanation.guess_rate is None else share_text(explanation.guess_rate)
    rows = [
        ("false accepts at the base only: smallest rate that explains the fall", least),
        ("false-accept rate that the verdict allows for", f"{share_text(explanation.guess_rate_allowed)} ({source})"),
    ]
    if explanation.format is not None:
        most = explanation.format_most
        bound = "" if most is None else f", up to {_of_fall(most)} if all of them were correct"
        part = f"{_of_fall(explanation.format)} of the fall{bound}"
        rows.append(("samples truncated, unparsed or timed out in grading", part))
    if explanation.even_loss is not None:
        part = f"{_of_fall(explanation.even_loss)} of the fall"
        rows.append(("the same share of correct samples lost on every problem", part))
    if verdict.size_given_label is not None:
        size = f"{numbers.points(verdict.size_given_label)} points"
        rows.append(("size of the fall, corrected for selection (only significant falls are reported)", size))
    return Table(
        title="Other explanations of the fall",
        columns=columns("explanation", "amount"),
        rows=tuple((Cell(text=name), Cell(text=amount)) for name, amount in rows),
        folded=True,
    )


def _of_fall(share: float) -> str:
    return f"{numbers.decimal(100 * share, 0)}\N{NO-BREAK SPACE}%"


def _of_base(verdict: Verdict) -> str:
    drawn = verdict.until_solved
    if drawn is None:
        return f"{numbers.plural(verdict.n_base, 'sample')} per problem"
    return f"{drawn.first_round} to {verdict.n_base} samples per problem, {drawn.mean_base:.0f} on average"


def _of_window(verdict: Verdict) -> str:
    drawn = verdict.until_solved
    if drawn is None:
        return f"{numbers.plural(verdict.n_late, 'sample')} per problem in total"
    most = verdict.n_late // len(verdict.window)
    return f"{drawn.first_round} to {most} samples per problem and checkpoint, {drawn.mean_late:.0f} on average"


def _facts(verdict: Verdict) -> Table:
    """Return a table of the compared samples, the bounds, and the place of the fall."""
    rows = [
        ("base", _of_base(verdict)),
        ("late window", f"{window_text(verdict)}, {_of_window(verdict)}"),
    ]
    if verdict.until_solved is not None:
        rows.append(("sampling", f"in rounds, until {verdict.until_solved.enough} samples are correct"))
    if verdict.least_change is not None:
        least = f"{numbers.points(verdict.least_change)} points (no loss if above {numbers.points(-MARGIN)})"
        rows.append(("lowest one-sided 95\N{NO-BREAK SPACE}% bound over k", least))
    if verdict.n_minority_problems:
        rows.append(("problems with distinguishable modes", numbers.decimal(verdict.n_minority_problems, 0)))
    rows.append(("crossing", k_star_text(verdict.k_star, verdict.k_most)))
    if verdict.beyond is not None:
        rows.append(("beyond the sampled k", beyond_text(verdict.beyond)))
    if lost_coverage(verdict):
        first_step = "no single checkpoint" if verdict.detected_by is None else f"step {verdict.detected_by}"
        rows.append(("detected by", first_step))
        if verdict.decline_began is not None:
            rows.append(("decline began", decline_text(verdict.decline_began)))
    return Table(
        title="Compared samples and bounds",
        columns=columns("quantity", "value"),
        rows=tuple((Cell(text=name), Cell(text=value)) for name, value in rows),
        note=_averaged(verdict),
        folded=True,
    )


def _averaged(verdict: Verdict) -> str:
    """Return what is pooled over the window and what is averaged; empty for a single checkpoint."""
    if len(verdict.window) < 2:
        return ""
    return (
        "The tests pool the samples of all checkpoints of the window. The change of pass@k, the bound and k* are means "
        "over its checkpoints."
    )


def _changes(verdict: Verdict) -> Table:
    rows = tuple(
        (
            Cell.count(change.k),
            Cell(text=numbers.decimal(change.base, 3), sort=change.base),
            Cell(text=numbers.decimal(change.late, 3), sort=change.late),
            Cell(text=_points(change.change, change.low, change.high), sort=change.change),
        )
        for change in verdict.changes
    )
    late = "Late: the mean over these checkpoints. " if len(verdict.window) > 1 else ""
    return Table(
        title=f"pass@k of the base and of {window_text(verdict)}",
        columns=columns(numbers=("k", "base", "late", "change (points)")),
        rows=rows,
        note=f"{late}Brackets: pointwise {numbers.NINETY_FIVE} CI over problems, paired.",
        folded=True,
    )


def _points(change: float, low: float | None, high: float | None) -> str:
    text = numbers.points(change)
    return text if low is None or high is None else f"{text} [{numbers.points(low)}, {numbers.points(high)}]"


def _rates(rates: tuple[Rates, ...]) -> Table:
    """Return a table of the samples per checkpoint that may look like lost modes; the title has the largest rate."""
    shares = [share for rate in rates for share in _shares(rate)]
    largest = max(share for share in shares if share is not None)
    bound = "none" if not largest else f"at most {numbers.percent(largest)}"
    if None in shares:
        bound = f"{bound} where known"
    rows = tuple(
        (
            Cell.count(rate.step),
            *(
                Cell(text=numbers.UNKNOWN if share is None else numbers.percent(share), sort=share)
                for share in _shares(rate)
            ),
        )
        for rate in rates
    )
    return Table(
        title=f"Samples truncated, unparsed, ambiguous or timed out: {bound}",
        columns=columns(numbers=("step", "truncated", "unparsed", "ambiguous", "timed out")),
        rows=rows,
        note="These samples count as not correct, so a rise of these rates looks like a loss. A sample that was "
        "truncated after a boxed answer is not included, because it has an answer.",
        folded=True,
    )


def _shares(rate: Rates) -> tuple[float | None, ...]:
    return rate.truncated, rate.not_parsed, rate.ambiguous, rate.timed_out
