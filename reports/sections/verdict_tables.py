"""The tables of a verdict: what was tested, every checkpoint, what else would explain it, and what was compared."""

from __future__ import annotations

from collections.abc import Mapping

from oversharp.diagnostics.verdict.claims import A_CHECKPOINT, NO_FALL, SOME_LOST
from oversharp.diagnostics.verdict.explanations import CAUSES
from oversharp.diagnostics.verdict.record import Claim, Estimate, Explanation, Rates, StepClaim, Verdict
from oversharp.diagnostics.verdict.rule import MARGIN
from oversharp.diagnostics.verdict.steps import Accuracy
from oversharp.diagnostics.verdict.words.sentence import share_text
from oversharp.reports import numbers
from oversharp.reports.records import Cell, Column, Table, columns


def lost_coverage(verdict: Verdict) -> bool:
    """Whether pass@k fell: only then do k* and onset mean more than where a noisy curve crosses a line."""
    return verdict.label in ("over_sharpened", "over_sharpened_here", "degraded")


def window_text(verdict: Verdict) -> str:
    """The steps of the late window in words, of a repaired series as λ.

    >>> from dataclasses import replace
    >>> said = Verdict(series="run", label="inconclusive", sentence="", window=(50, 75, 100))
    >>> window_text(said), window_text(replace(said, repaired=True))
    ('steps 50 to 100', 'λ = 0.5–1')
    """
    first, last = verdict.window[0], verdict.window[-1]
    if verdict.repaired or first == last:
        return verdict.places_text([(first, last)])
    return f"steps {first} to {last}"


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
    text = f"step {numbers.decimal(began.value, 0)}"
    if began.low is None or began.high is None:
        return f"{text}, no upper bound" if began.low is not None else f"{text}, no interval"
    if began.low == began.high:
        return f"{text}, in every resample of the problems; a fall that flattens is put at its very start"
    return f"{text}, {numbers.NINETY_FIVE} interval {numbers.decimal(began.low, 0)} to {numbers.decimal(began.high, 0)}"


#: What else may explain that a checkpoint lost something.
def _k(value: float) -> str:
    return numbers.decimal(value, 0 if value >= 100 else 1)


def tables(verdict: Verdict, first: Mapping[int, float]) -> tuple[Table, ...]:
    """All that there is to show of ``verdict``, folded; ``first`` is pass@1 by step, as far as it is known."""
    return (
        *((_accuracies(verdict),) if verdict.accuracies else ()),
        *((_steps(verdict, first),) if verdict.steps or verdict.left_out else ()),
        *((_claims(verdict),) if verdict.claims else ()),
        *((_explanations(verdict, verdict.explanation),) if verdict.explanation is not None else ()),
        *((_facts(verdict), _changes(verdict)) if verdict.changes else ()),
        *((_rates(verdict.rates),) if verdict.rates else ()),
    )


def _accuracies(verdict: Verdict) -> Table:
    """Accuracy of one response per problem, and the exact test of each checkpoint against the base."""
    greedy = "Greedy accuracy" if verdict.accuracies[0].greedy else "Accuracy of one response per problem"
    rows = tuple((Cell.count(one.step), *_accuracy_cells(one)) for one in verdict.accuracies)
    return Table(
        title=f"{greedy} at {numbers.plural(len(rows), 'checkpoint')}",
        columns=columns(numbers=("step", "accuracy", "change (points)", "lost", "gained", "p")),
        rows=rows,
        note="Change against the base, with its 95\N{NO-BREAK SPACE}% interval over problems. p: McNemar's exact test, "
        "two-sided, for each checkpoint alone; not corrected for their number.",
    )


def _accuracy_cells(one: Accuracy) -> tuple[Cell, ...]:
    share = Cell(text=numbers.percent(one.share), sort=one.share)
    if one.change is None or one.n_lost is None or one.n_gained is None:
        return (share, *(Cell(text="–"),) * 4)
    change = Cell(text=_points(one.change, one.low, one.high), sort=one.change)
    p = Cell(text=numbers.number(one.p, "p-value"), sort=one.p)
    return (share, change, Cell.count(one.n_lost), Cell.count(one.n_gained), p)


def _steps(verdict: Verdict, first: Mapping[int, float]) -> Table:
    """Which checkpoints lost something, and which may be shipped; the title counts them."""
    words = {"lost": "lost something", "kept": "kept it", "open": "open"}
    counts = {state: sum(_state(one) == state for one in verdict.steps) for state in words}
    counts["left out"], words["left out"] = len(verdict.left_out), "left out"
    told = ", ".join(f"{n} {words[state]}" for state, n in counts.items() if n)
    gone = tuple(
        (Cell(text=one.checkpoint if one.step is None else str(one.step), sort=one.step), Cell(text="left out"))
        + (Cell(text="–"),) * 3
        for one in verdict.left_out
    )
    rows = tuple(
        (
            Cell.count(one.step),
            Cell(text=f"lost, or {one.cause}" if one.lost and one.cause else _state(one)),
            Cell(text=numbers.number(first.get(one.step), "probability"), sort=first.get(one.step)),
            Cell(text=_points(one.change, one.low, one.high), sort=one.change),
            Cell.count(one.k),
        )
        for one in verdict.steps
    )
    causes = sorted({one.cause for one in verdict.steps if one.lost and one.cause})
    otherwise = f", though {' and '.join(map(CAUSES.__getitem__, causes))} may be why" if causes else ""
    return Table(
        title=f"Every checkpoint: {told}",
        columns=columns(numbers=("step", "pass@k", "pass@1", "lowest change (points)", "at k")),
        rows=rows + gone,
        note=f"Lost: pass@k surely fell at some k{otherwise}. Kept: at no k did it fall by more than "
        f"{numbers.decimal(100 * MARGIN, 0)} points, {numbers.NINETY_FIVE} confidence. Open: neither is shown. "
        "The change stands at the k where it is lowest against its error. Intervals and tests are for all checkpoints "
        f"and k together.{_clear_but_open(verdict)}{_why_left_out(verdict)}",
        folded=True,
    )


def _clear_but_open(verdict: Verdict) -> str:
    """Why a checkpoint is open whose interval lies below 0."""
    below = [(one.step, one.step) for one in verdict.steps if _state(one) == "open" and one.high < 0]
    level = next((claim.level for claim in verdict.claims if claim.name == A_CHECKPOINT), None)
    if not below or level is None:
        return ""
    return (
        f" At {verdict.places_text(below)} the {numbers.NINETY_FIVE} interval lies below 0 and yet no loss is called: "
        f"that takes a test at level {level:.2g} over problems like these, for its share of all false alarms, and one "
        "on them alone."
    )


def _why_left_out(verdict: Verdict) -> str:
    return "".join(f" Left out {one.checkpoint}: {one.why}." for one in verdict.left_out)


def _state(one: StepClaim) -> str:
    return "lost" if one.lost else "kept" if one.kept else "open"


def _claims(verdict: Verdict) -> Table:
    """Every claim that was asked for, with what speaks against it; the title counts those that hold."""
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
        title=f"What was tested: {held} of {len(rows)} claims hold",
        columns=(
            Column(name="claim", numeric=False),
            *columns(numbers=("holds", "p", "level", "size (points)")),
            *columns("null hypothesis", "of", "what else, or why not"),
        ),
        rows=rows,
        note="A claim holds where p, how likely such data are under the null hypothesis, is at most its level; each "
        "test looks at all its k at once. The label rests on the first four and the last; the others are to be read.",
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


#: Who says how many wrong answers a grader accepts, in words.
_SOURCES = {"assumed": "assumed, nobody measured it", "given": "given with --guess-rate"}


def _explanations(verdict: Verdict, found: Explanation) -> Table:
    """What else would leave such data behind, and how much of the fall it would account for."""
    source = _SOURCES.get(found.guess_source, found.guess_source)
    least = "more than half" if found.guess_rate is None else share_text(found.guess_rate)
    rows = [
        ("wrong answers of the base that were accepted, none later: the least share that explains it", least),
        ("the share that is reckoned with", f"{share_text(found.guess_rate_allowed)} ({source})"),
    ]
    if found.format is not None:
        most = found.format_most
        beside = "" if most is None else f", up to {_of_fall(most)} if all of them were right"
        rows.append(("samples cut off, not parsed or out of time", f"{_of_fall(found.format)} of the fall{beside}"))
    if found.even_loss is not None:
        rows.append(("the same share lost on every problem", f"{_of_fall(found.even_loss)} of the fall"))
    if verdict.size_given_label is not None:
        size = f"{numbers.points(verdict.size_given_label)} points"
        rows.append(("the fall, with what only clear falls being called one adds taken away", size))
    return Table(
        title="What else would explain it",
        columns=columns("what", "how much"),
        rows=tuple((Cell(text=what), Cell(text=how)) for what, how in rows),
        folded=True,
    )


def _of_fall(share: float) -> str:
    return f"{numbers.decimal(100 * share, 0)}\N{NO-BREAK SPACE}%"


def _facts(verdict: Verdict) -> Table:
    """What was compared with what, and where it fell."""
    rows = [
        ("base", f"{numbers.plural(verdict.n_base, 'sample')} per problem"),
        (
            "late window",
            f"{window_text(verdict)}, {numbers.plural(verdict.n_late, 'sample')} per problem in all",
        ),
    ]
    if verdict.least_change is not None:
        least = f"{numbers.points(verdict.least_change)} points; above {numbers.points(-MARGIN)} is no loss"
        rows.append(("lowest one-sided 95\N{NO-BREAK SPACE}% bound over k", least))
    if verdict.n_minority_problems:
        rows.append(("problems that show their modes", numbers.decimal(verdict.n_minority_problems, 0)))
    rows.append(("crossing", k_star_text(verdict.k_star, verdict.k_most)))
    if lost_coverage(verdict):
        alarm = "at no single checkpoint" if verdict.detected_by is None else f"step {verdict.detected_by}"
        rows.append(("detected by", alarm))
        if verdict.decline_began is not None:
            rows.append(("decline began", decline_text(verdict.decline_began)))
    return Table(
        title="What was compared",
        columns=columns("what", "value"),
        rows=tuple((Cell(text=name), Cell(text=value)) for name, value in rows),
        note=_averaged(verdict),
        folded=True,
    )


def _averaged(verdict: Verdict) -> str:
    """What is summed over the window and what is averaged, where it has several checkpoints."""
    if len(verdict.window) < 2:
        return ""
    return (
        "The tests take the samples of the window's checkpoints together; how far pass@k fell, the bound and k* are "
        "means over its checkpoints, one by one."
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
        note=f"{late}Brackets: {numbers.NINETY_FIVE} interval over problems, paired, each k by itself.",
        folded=True,
    )


def _points(change: float, low: float | None, high: float | None) -> str:
    text = numbers.points(change)
    return text if low is None or high is None else f"{text} [{numbers.points(low)}, {numbers.points(high)}]"


def _rates(rates: tuple[Rates, ...]) -> Table:
    """What looks like lost modes and is none, per checkpoint; the title says the worst of it."""
    shares = [share for rate in rates for share in _shares(rate)]
    worst = max(share for share in shares if share is not None)
    told = "none" if not worst else f"at most {numbers.percent(worst)}"
    if None in shares:
        told = f"{told} where known"
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
        title=f"Samples cut off, not parsed, ambiguous or out of time: {told}",
        columns=columns(numbers=("step", "cut off", "not parsed", "ambiguous", "out of time")),
        rows=rows,
        note="Such samples count as not correct, so a rise of these rates looks like a loss. One that was cut off "
        "behind a boxed answer is none of them: it has answered, whether or not it would have taken that back.",
        folded=True,
    )


def _shares(rate: Rates) -> tuple[float | None, ...]:
    return rate.truncated, rate.not_parsed, rate.ambiguous, rate.timed_out
