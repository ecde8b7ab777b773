"""Sentences of the verdict: one template per heading. Changes of pass@k are in percentage points."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.verdict.causes.explanations import NOTABLE_UNREAD_SHARE, Cause
from oversharp.diagnostics.verdict.claims import A_CHECKPOINT, FELL, FELL_HERE, MODES_LOST
from oversharp.diagnostics.verdict.headings import Heading
from oversharp.diagnostics.verdict.record import Verdict
from oversharp.diagnostics.verdict.results import ChangeAtK, Explanation, StepClaim
from oversharp.diagnostics.verdict.rule import MARGIN
from oversharp.diagnostics.verdict.steps import Accuracy
from oversharp.diagnostics.verdict.words.numbers import bounds_text, points_text, signed_text

_MARGIN_TEXT = f"{100 * MARGIN:.0f} points"
_UNPARSED = "truncated, unparsed, or timed out in grading"
_MODES_FEWER = "correct answers outside each problem's dominant mode became fewer"


def sentence_of(verdict: Verdict) -> str:
    """Return the verdict in short sentences, from its other fields.

    The interval of a fall is the paired 95 % interval over problems at that k. It is not corrected for the choice of
    the k with the largest fall.

    >>> fall = ChangeAtK(k=64, base=0.8, late=0.7, change=-0.1, low=-0.125, high=-0.075)
    >>> late = {"n_problems": 90, "n_base": 128, "n_late": 256, "window": (40, 60), "k_most": 64}
    >>> sentence_of(Verdict(series="run", label="over_sharpened", sentence="", changes=(fall,), **late))
    'Coverage lost: pass@64 is 10.0 points below the base [7.5, 12.5] on average over steps 40–60. Scope: the population
    of these 90 problems, k = 1 to 64, one training seed.'
    """
    return f"{verdict.title}: {' '.join(f'{part}.' for part in _PARTS[verdict.heading](verdict))}"


def _coverage_lost(verdict: Verdict) -> Iterator[str]:
    match verdict.label:
        case "mode_collapse":
            yield f"{_MODES_FEWER} {_when(verdict)}{_points_of_modes(verdict)}"
            yield _pass_at_k_of_modes(verdict)
        case "lost_at_steps":
            yield _fall_at_steps(verdict)
        case _:
            yield _fall(verdict)
    yield from _pass_at_1(verdict)
    if verdict.modes_collapsed and verdict.label != "mode_collapse":
        yield f"Also, {_MODES_FEWER}"
    if verdict.label == "degraded" and verdict.explanation and verdict.explanation.even_loss is not None:
        share = f"{100 * verdict.explanation.even_loss:.0f} %"
        yield f"An equal loss of correct samples on every problem explains {share} of the fall"
    yield from _unparsed_part(verdict)
    yield from _remaining_part(verdict)
    yield from _not_excluded(verdict)
    yield from _other_steps(verdict)
    yield from _left_out(verdict)
    yield _scope(verdict)


def _no_loss(verdict: Verdict) -> Iterator[str]:
    yield f"no pass@k is more than {_MARGIN_TEXT} below the base {_on_average(verdict)} (95 % confidence)"
    yield from _pass_at_1(verdict)
    yield from _other_steps(verdict)
    yield from _left_out(verdict)
    yield _scope(verdict)


def _not_shown(verdict: Verdict) -> Iterator[str]:
    if verdict.label in ("format", "guessing"):
        yield _explained_fall(verdict)
        yield from _format(verdict) if verdict.label == "format" else _false_accepts(verdict)
    elif verdict.is_end_unknown:
        yield f"no pass@k is more than {_MARGIN_TEXT} below the base {_on_average(verdict)} (95 % confidence)"
    else:
        rule_out = f"nor rule out one of more than {_MARGIN_TEXT} {_on_average(verdict)}"
        yield f"the data neither show a drop of pass@k {rule_out}"
        yield from _unparsed_fall(verdict)
    yield from _pass_at_1(verdict)
    yield from _other_steps(verdict)
    yield from _left_out(verdict)
    yield from _remedy(verdict)
    yield _scope(verdict)


def _no_verdict(verdict: Verdict) -> Iterator[str]:
    yield str(verdict.why)
    yield from (f"{line[0].upper()}{line[1:]}" for line in accuracy_lines(verdict)[-1:])


_PARTS: Mapping[Heading, Callable[[Verdict], Iterator[str]]] = {
    "coverage_lost": _coverage_lost,
    "no_loss": _no_loss,
    "not_shown": _not_shown,
    "no_verdict": _no_verdict,
}


def _fall(verdict: Verdict) -> str:
    """Return the largest fall of the window, with its interval unless the fall is shown for these problems only."""
    fall = largest_fall(verdict.changes)
    if fall is None:
        return f"pass@k of the pooled samples is below the base {_when(verdict)}"
    interval = ""
    here_only = verdict.label == "over_sharpened_here"
    here_only |= any(claim.name == FELL and not claim.holds for claim in verdict.claims)
    # the tests cover all k together, so the interval at one k may contain 0 although they reject
    if not here_only and fall.low is not None and fall.high is not None and fall.high < 0:
        interval = bounds_text(-fall.high, -fall.low)
    return f"pass@{fall.k} is {points_text(-fall.change)} points below the base{interval} {_on_average(verdict)}"


def _fall_at_steps(verdict: Verdict) -> str:
    steps = verdict.steps_of_label()
    worst = min(steps, key=lambda step: step.change)
    points = f"{points_text(-worst.change)} points below the base{_bounds_of_fall(worst)}"
    fall = f"pass@{worst.k} is {points} at {verdict.steps_text([worst])}"
    if len(steps) > 1:
        fall += f", the largest loss of {verdict.steps_text(steps)}"
    if len(verdict.window) == 1:
        return fall
    together = f"the last third of the checkpoints together ({_steps(verdict)})"
    if _is_fall_of_window_explained(verdict):
        return f"{fall}. The fall of {together} may have another explanation"
    return f"{fall}. The fall of {together} is not significant"


def _bounds_of_fall(step: StepClaim) -> str:
    """Return the interval of a checkpoint's fall; empty if it contains 0, as if only these problems show the fall."""
    return bounds_text(-step.high, -step.low) if step.high < 0 else ""


def _explained_fall(verdict: Verdict) -> str:
    if is_of_modes(verdict):
        return f"{_MODES_FEWER} {_when(verdict)}"
    return _fall_at_steps(verdict) if verdict.is_of_steps else _fall(verdict)


def _format(verdict: Verdict) -> Iterator[str]:
    lenient = verdict.lenient
    if lenient is not None and lenient.explains:
        yield f"The share of answers in a format that the grader does not parse rose by {100 * lenient.rise:.0f} points"
        yield f"A lenient reader of the same samples finds {remaining_text(verdict)} points"
    else:
        yield f"More samples than the base's were {_UNPARSED}{_explained_part(verdict)}"


def remaining_text(verdict: Verdict) -> str:
    """Return the changes of pass@1, and of the pass@k that fell most, by another reading; empty without one."""
    if verdict.remaining is None:
        return ""
    worst = verdict.remaining_fall or largest_fall(verdict.changes)
    ks = [1] if worst is None else [1, worst.k]
    return " and ".join(
        f"pass@{one.k} {signed_text(one.change)}{bounds_text(one.low, one.high, signed=True)}"
        for one in verdict.remaining.changes
        if one.k in ks
    )


def _remaining_part(verdict: Verdict) -> Iterator[str]:
    """Yield what remains of a loss by another reading of the samples."""
    if verdict.remaining is None:
        return
    changes = f"{remaining_text(verdict)} points"
    match verdict.remaining.name:
        case "lenient reader":
            yield f"The answer style changed. A lenient reader of the same samples finds {changes}"
        case "parsed samples":
            yield f"In the parsed samples alone, the changes are {changes}"
        case _:
            yield f"If all late unparsed samples in excess of the base's were correct, the changes would be {changes}"


def _not_excluded(verdict: Verdict) -> Iterator[str]:
    """Yield the other explanations of a loss that the data do not exclude."""
    name = {"mode_collapse": MODES_LOST, "lost_at_steps": A_CHECKPOINT}.get(verdict.label, FELL_HERE)
    others = [other for claim in verdict.claims if claim.name == name for other in claim.otherwise]
    if others:
        yield f"Not excluded: {'; '.join(others)}"


def _explained_part(verdict: Verdict) -> str:
    """Return the share of a fall that unparsed samples explain, and whether the parsed ones show a fall."""
    part = verdict.explanation.format if verdict.explanation else None
    if part is None:
        return ". Too few were parsed to show a fall"
    shown = "no fall" if part >= 1 else "no significant fall"
    return f", which explains {100 * part:.0f} % of the fall. The parsed samples show {shown}"


def _unparsed_part(verdict: Verdict) -> Iterator[str]:
    """Yield the share of a loss that unparsed samples could explain, if it is large."""
    other = verdict.explanation
    if other is None or other.format is None or other.format_most is None or other.format_most < NOTABLE_UNREAD_SHARE:
        return
    part, most = (f"{100 * share:.0f} %" for share in (other.format, other.format_most))
    explains = f"{most} of the fall" if part == most else f"{part} of the fall, {most} if all of them were correct"
    yield f"More samples than the base's were {_UNPARSED}, which explains {explains}"


def _unparsed_fall(verdict: Verdict) -> Iterator[str]:
    """Yield a fall that unparsed samples do not explain and parsed samples do not show."""
    if verdict.explanation is None:
        return
    fall = _MODES_FEWER if is_of_modes(verdict) else _fall(verdict)
    yield f"In all samples, {fall}. More samples than the base's were {_UNPARSED}{_explained_part(verdict)}"


def _false_accepts(verdict: Verdict) -> Iterator[str]:
    other = verdict.explanation
    share = "a share" if other is None or other.guess_rate is None else share_text(other.guess_rate)
    if_accepted = f"If the grader accepted {share} of the base's wrong answers and none later"
    yield f"{if_accepted}, the fall would not be significant"
    if other is not None:
        yield _allowed_rate(other)


def _allowed_rate(other: Explanation) -> str:
    """Return the share of false accepts that the verdict allows for, and its source."""
    share = share_text(other.guess_rate_allowed)
    match other.guess_source:
        case "assumed":
            return f"Up to {share} is assumed, because this grader was not measured (--guess-rate)"
        case "given":
            return f"Up to {share} was given with --guess-rate"
        case "measured":
            return f"Up to {share} was measured for this grader"
        case _:
            return f"This grader accepts up to {share}"


def _remedy(verdict: Verdict) -> Iterator[str]:
    """Yield the size of an audit that would settle the question."""
    remedy = verdict.remedy
    fall = largest_fall(verdict.changes)
    if remedy is None or verdict.is_end_unknown or (fall and fall.low is not None and fall.low > -remedy.drop):
        return  # the interval already excludes such a drop
    shows = f"would show a drop of {100 * remedy.drop:.3g} points with 80 % power"
    if remedy.n_problems <= verdict.n_problems and remedy.n * len(verdict.window) <= verdict.n_late:
        yield f"An audit of this size {shows}"
        return
    of_base = "" if remedy.n_base == remedy.n else f" ({remedy.n_base} of the base)"
    if remedy.enough is None:
        yield f"About {remedy.n_problems} problems with {plural(remedy.n, 'sample')} each{of_base} {shows}"
    else:
        stop = f"each sampled until {remedy.enough} of at most {plural(remedy.n, 'sample')} are correct{of_base}"
        yield f"About {remedy.n_problems} problems, {stop}, {shows}"


def fall_of_modes(verdict: Verdict) -> float | None:
    """Return the largest fall of pass@k if only correct answers outside the dominant modes count (probability)."""
    sizes = [claim.size.value for claim in verdict.claims if claim.name == MODES_LOST and claim.size is not None]
    return -sizes[0] if sizes and sizes[0] is not None else None


def _points_of_modes(verdict: Verdict) -> str:
    fall = fall_of_modes(verdict)
    return "" if fall is None else f"; their pass@k fell by up to {points_text(fall)} points"


def _pass_at_k_of_modes(verdict: Verdict) -> str:
    if _is_fall_of_window_explained(verdict):
        return "A fall of pass@k may have another explanation"
    if verdict.least_change is not None and verdict.least_change > -MARGIN:
        return f"No pass@k is more than {_MARGIN_TEXT} below the base"
    return "No fall of pass@k is shown"


def _pass_at_1(verdict: Verdict) -> Iterator[str]:
    """Yield the change of pass@1, unless it is the largest fall itself."""
    first = next((change for change in verdict.changes if change.k == 1), None)
    if first is None or (verdict.heading == "coverage_lost" and first is largest_fall(verdict.changes)):
        return
    points = points_text(abs(first.change))
    if float(points) == 0:
        yield "pass@1 equals the base's"
    elif first.low is not None and first.high is not None and first.low <= 0 <= first.high:
        interval = bounds_text(first.low, first.high, signed=True)
        yield f"pass@1 is not significantly different ({signed_text(first.change)} points{interval})"
    else:
        yield f"pass@1 is {points} points {'above' if first.change > 0 else 'below'} the base"


#: Other explanations of the loss of a single checkpoint.
_CAUSES: Mapping[Cause, str] = {
    "format": "unparsed or misread samples explain it",
    "unread": "too few samples were parsed for a conclusion",
    "guessing": "false accepts at the base may explain it",
    "selection": "the selection of the problems by these base samples may explain it",
}


def _other_steps(verdict: Verdict) -> Iterator[str]:
    """Yield the losses of single checkpoints that neither the window nor the label covers."""
    others = _uncovered_steps(verdict)
    if not others:
        return
    worst = min(others, key=lambda step: step.change)
    points = f"{points_text(-worst.change)} points{_bounds_of_fall(worst)}"
    where = verdict.steps_text(others)
    most = f" at {verdict.steps_text([worst])}" if len(others) > 1 else ""
    earlier = others[-1].step < verdict.window[0] and not verdict.repaired
    lost = "had lost" if earlier else "lost"
    where = where if verdict.repaired else f"{where[0].upper()}{where[1:]}"  # λ stays small
    scope = "" if all(step.is_of_population for step in others) else " on these problems"
    text = f"{where} {lost} up to {points} of pass@{worst.k}{most}{scope}"
    # the loss was regained only if the window shows no loss
    yield f"{text}, regained later" if verdict.label == "no_loss" and earlier else text
    for cause, reason in _CAUSES.items():
        steps = [step for step in others if step.cause == cause]
        if steps:
            yield f"At {verdict.steps_text(steps)}, {reason}"


def _uncovered_steps(verdict: Verdict) -> list[StepClaim]:
    lost = [step for step in verdict.steps if step.lost]
    match verdict.label:
        case "no_loss" | "inconclusive" | "mode_collapse":
            return lost
        case "lost_at_steps" | "format" | "guessing" if verdict.is_of_steps:
            return [step for step in lost if step not in verdict.steps_of_label()]
        case "format" | "guessing":
            return [step for step in lost if step.step < verdict.window[0]]
        case _:
            return []


def _left_out(verdict: Verdict) -> Iterator[str]:
    """Yield the checkpoints that are not part of the verdict."""
    if verdict.left_out:
        names = [one.checkpoint for one in verdict.left_out]
        listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        yield f"Left out: {listed} ({verdict.left_out[0].why})"


def _scope(verdict: Verdict) -> str:
    problems = "this one problem" if verdict.n_problems == 1 else f"these {verdict.n_problems} problems"
    if verdict.attributes.scope == "population":
        problems = f"the population of {problems}"
    elif verdict.label == "mode_collapse" and verdict.n_minority_problems < verdict.n_problems:
        problems = f"the {verdict.n_minority_problems} of {problems} that show their modes"
    elif verdict.n_problems > 1 and verdict.heading == "coverage_lost":
        problems = f"{problems} only"
    runs = "one repaired series, where λ = 1 is the checkpoint" if verdict.repaired else "one training seed"
    return f"Scope: {problems}, {_ks(verdict)}, {runs}"


def _ks(verdict: Verdict) -> str:
    return "k = 1" if verdict.k_most == 1 else f"k = 1 to {verdict.k_most}"


def _on_average(verdict: Verdict) -> str:
    """Return the steps of the window; changes of pass@k are means over its checkpoints."""
    return f"on average over {_steps(verdict)}" if len(verdict.window) > 1 else _when(verdict)


def _when(verdict: Verdict) -> str:
    return f"at {_steps(verdict)}"


def _steps(verdict: Verdict) -> str:
    return verdict.places_text([(verdict.window[0], verdict.window[-1])])


def is_of_modes(verdict: Verdict) -> bool:
    """Return whether modes were lost and no fall of pass@k of these problems is shown."""
    return verdict.modes_collapsed and not claim_holds(verdict, FELL_HERE)


def _is_fall_of_window_explained(verdict: Verdict) -> bool:
    """Return whether the window's exact test is significant. If the label is another, the fall is explained."""
    return any(claim.name == FELL_HERE and claim.p is not None and claim.p <= claim.level for claim in verdict.claims)


def largest_fall(changes: tuple[ChangeAtK, ...]) -> ChangeAtK | None:
    """Return the change at the k where pass@k fell most; None if it fell at no k."""
    least = min(changes, key=lambda change: change.change, default=None)
    return None if least is None or least.change >= 0 else least


def claim_holds(verdict: Verdict, name: str) -> bool:
    """Return whether the claim of that name was tested and holds."""
    return any(claim.holds for claim in verdict.claims if claim.name == name)


def share_text(share: float) -> str:
    """Return a small share in percent.

    >>> share_text(0.0004), share_text(0.031)
    ('0.04 %', '3.1 %')
    """
    return f"{100 * share:.2g} %"


def accuracy_lines(verdict: Verdict) -> tuple[str, ...]:
    """Return a line per checkpoint with one response per problem: accuracy, and the change since the base.

    >>> late = Accuracy(step=20, checkpoint="step 20", n_problems=40, n_correct=24, greedy=True, n_lost=1, n_gained=5,
    ...     low=-0.03, high=0.23, p=0.21875)
    >>> print(*accuracy_lines(Verdict(series="run", label="no_verdict", sentence="", accuracies=(late,))))
    step 20: greedy accuracy 60.0 % (24 of 40 problems), +10.0 points [−3.0, +23.0]; 1 lost, 5 gained, McNemar p = 0.22
    """
    return tuple(map(_accuracy_line, verdict.accuracies))


def _accuracy_line(accuracy: Accuracy) -> str:
    name = "greedy accuracy" if accuracy.greedy else "accuracy"
    share = f"{points_text(accuracy.share)} % ({accuracy.n_correct:,} of {plural(accuracy.n_problems, 'problem')})"
    line = f"{accuracy.checkpoint}: {name} {share}"
    if accuracy.change is None:
        return line
    p = "" if accuracy.p is None else f", McNemar p = {accuracy.p:.2g}"
    points = f"{signed_text(accuracy.change)} points{bounds_text(accuracy.low, accuracy.high, signed=True)}"
    return f"{line}, {points}; {accuracy.n_lost} lost, {accuracy.n_gained} gained{p}"


def checkpoints_text(verdict: Verdict) -> str:
    """Return which checkpoints kept and which lost pass@k; empty if single checkpoints were not tested.

    >>> from oversharp.diagnostics.verdict.results import StepClaim
    >>> seen = {"checkpoint": "c", "p": 0.5, "k": 8, "change": 0.0, "low": -0.01, "high": 0.01}
    >>> steps = [StepClaim(step=20 * t, lost=t > 2, kept=t < 3, **seen) for t in (1, 2, 3)]
    >>> checkpoints_text(Verdict(series="run", label="inconclusive", sentence="", steps=tuple(steps)))
    'pass@k kept to within 2 points at steps 20–40, lost at some k at step 60'
    """
    if not verdict.steps:
        return ""
    kept = f"at {verdict.places_text(verdict.kept_ranges)}" if verdict.kept_ranges else "at no checkpoint"
    lost = f", lost at some k at {verdict.places_text(verdict.lost_ranges)}" if verdict.lost_ranges else ""
    return f"pass@k kept to within {_MARGIN_TEXT} {kept}{lost}"
