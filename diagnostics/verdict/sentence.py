"""The verdict in one sentence: what, how much, when, on which problems, up to which k."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.verdict.claims import FELL, FELL_HERE
from oversharp.diagnostics.verdict.explanations import Cause
from oversharp.diagnostics.verdict.record import (
    ChangeAtK,
    Estimate,
    Explanation,
    Sharpening,
    SharpeningLabel,
    StepClaim,
    Verdict,
    at_least_text,
    at_most_text,
    bounds_text,
    points_text,
    signed_text,
)
from oversharp.diagnostics.verdict.rule import MARGIN
from oversharp.diagnostics.verdict.steps import Accuracy


def sentence_of(verdict: Verdict) -> str:
    """The verdict in one sentence, from its other fields: what, how much, when, on which problems, up to which k.

    Falls and rises of pass@k are in points (hundredths of probability), with the paired 95 % interval over problems of
    a fall in brackets: that of its own k, not corrected for the choice of the largest.

    >>> fall = ChangeAtK(k=64, base=0.8, late=0.7, change=-0.1, low=-0.125, high=-0.075)
    >>> late = {"n_problems": 90, "n_base": 128, "n_late": 256, "window": (40, 60), "k_most": 64}
    >>> sentence_of(Verdict(series="run", label="over_sharpened", sentence="", changes=(fall,), **late))
    'Over-sharpened: up to k = 64, pass@k fell below the base, most at k = 64: by 10.0 points [7.5, 12.5] in the last
    third of this one training run (steps 40–60), on these 90 problems and on problems like them.'
    """
    if verdict.label == "no_verdict":
        last = "".join(f" {line[0].upper()}{line[1:]}." for line in accuracy_lines(verdict)[-1:])
        return f"{verdict.title}: {verdict.why}.{last}"
    said = _SAID[verdict.label](verdict)
    return f"{verdict.heading}: up to k = {verdict.k_most}, {said}{_single_checkpoints(verdict)}."


def accuracy_lines(verdict: Verdict) -> tuple[str, ...]:
    """A line per checkpoint with one response per problem: accuracy, and the change since the base.

    >>> late = Accuracy(step=20, checkpoint="step 20", n_problems=40, n_correct=24, greedy=True, n_lost=1, n_gained=5,
    ...     low=-0.03, high=0.23, p=0.21875)
    >>> print(*accuracy_lines(Verdict(series="run", label="no_verdict", sentence="", accuracies=(late,))))
    step 20: greedy accuracy 60.0 % (24 of 40 problems), +10.0 points [−3.0, +23.0]; 1 lost, 5 gained, McNemar p = 0.22
    """
    return tuple(map(_accuracy_line, verdict.accuracies))


def _accuracy_line(one: Accuracy) -> str:
    what = "greedy accuracy" if one.greedy else "accuracy"
    share = f"{points_text(one.share)} % ({one.n_correct:,} of {plural(one.n_problems, 'problem')})"
    line = f"{one.checkpoint}: {what} {share}"
    if one.change is None:
        return line
    p = "" if one.p is None else f", McNemar p = {one.p:.2g}"
    points = f"{signed_text(one.change)} points{bounds_text(one.low, one.high, signed=True)}"
    return f"{line}, {points}; {one.n_lost} lost, {one.n_gained} gained{p}"


def checkpoints_text(verdict: Verdict) -> str:
    """Which checkpoints surely kept pass@k and which lost something; empty where nothing is said of single ones.

    >>> from oversharp.diagnostics.verdict.record import StepClaim
    >>> seen = {"checkpoint": "c", "p": 0.5, "k": 8, "change": 0.0, "low": -0.01, "high": 0.01}
    >>> steps = [StepClaim(step=20 * t, lost=t > 2, kept=t < 3, **seen) for t in (1, 2, 3)]
    >>> checkpoints_text(Verdict(series="run", label="inconclusive", sentence="", steps=tuple(steps)))
    'pass@k surely kept to within 2 points at steps 20–40, lost at some k at step 60'
    """
    if not verdict.steps:
        return ""
    kept = f"at {verdict.places_text(verdict.kept_ranges)}" if verdict.kept_ranges else "at no checkpoint"
    lost = f", lost at some k at {verdict.places_text(verdict.lost_ranges)}" if verdict.lost_ranges else ""
    return f"pass@k surely kept to within {100 * MARGIN:.0f} points {kept}{lost}"


#: What the comparison with the colder base is called.
SHARPENING_TITLES: Mapping[SharpeningLabel, str] = {
    "better": "Better than sharpening",
    "sharpening_only": "Sharpening only",
    "worse": "Worse than sharpening",
    "not_shown": "Whether better or only sharper is not shown",
}


def sharpening_text(verdict: Verdict) -> str:
    """Whether the late checkpoints are better than their base drawn sharper; empty where it was not drawn.

    >>> from oversharp.diagnostics.verdict.record import Estimate, Sharpening
    >>> some = [Estimate(value=v, low=low, high=high) for v, low, high in (
    ...     (0.2, 0.15, 0.25), (0.05, 0.01, 0.09), (0.04, 0.01, 0.08), (0.75, 0.6, 0.95))]
    >>> found = Sharpening(label="better", k=64, rise=some[0], gain=some[1], loss=some[2], share=some[3])
    >>> sharpening_text(Verdict(series="run", label="inconclusive", sentence="", window=(40, 60), sharpening=found))
    'Better than sharpening: with the same pass@64, pass@1 is 5.0 points [1.0, 9.0] above that of the base drawn at a
    lower temperature, which gives 75 % [60, 95] of the rise of 20.0 points, in the last third of this one training run
    (steps 40–60).'
    """
    found = verdict.sharpening
    if found is None:
        return ""
    told = _above(found) if found.loss.value is None or found.gain.value is not None else _kept(found)
    if found.label == "sharpening_only" and (found.gain.high is None or found.gain.high > MARGIN):
        told = _kept(found)
    share = _share_of_rise(found)
    read = ""
    if found.read is not None and found.read >= 0.01:
        read = f"; {points_text(found.read)} points of the rise are answers that can be read now and could not before"
    return f"{SHARPENING_TITLES[found.label]}: {told}{share}, {_when(verdict)}{read}."


def _above(found: Sharpening) -> str:
    """pass@1 against the colder base with the same pass@k."""
    colder = "that of the base drawn at a lower temperature"
    value, low = found.gain.value, found.gain.low
    if value is None:
        reached = f"no lower temperature of the base has such pass@1 and pass@{found.k}"
        return reached if low is None or low <= 0 else f"{reached}, by at least {at_least_text(low)} points of pass@1"
    return f"with the same pass@{found.k}, pass@1 is {beside_text(found.gain)} {colder}"


def _kept(found: Sharpening) -> str:
    """pass@k against the colder base with the same pass@1."""
    value = found.loss.value
    if value is None:
        return f"pass@{found.k} lies below that of every temperature at which the base was drawn"
    beside = beside_text(found.loss)
    return f"with the same pass@1, pass@{found.k} is {beside} that of the base drawn at a lower temperature"


def beside_text(change: Estimate) -> str:
    """How far above or below something is, with its interval where it has both ends."""
    value, low, high = change.value or 0.0, change.low, change.high
    size, side = (value, "above") if value >= 0 else (-value, "below")
    if low is not None and high is not None:
        return f"{points_text(size)} points{bounds_text(low, high) if value >= 0 else bounds_text(-high, -low)} {side}"
    surely = (
        ""
        if low is None
        else f" (at worst {at_most_text(-low)} below)"
        if low < 0
        else f" (at least {at_least_text(low)})"
    )
    return f"{points_text(size)} points {side}{surely}"


def _share_of_rise(found: Sharpening) -> str:
    share, rise = found.share, found.rise.value
    if share.value is None or share.low is None or share.high is None or rise is None:
        return ""
    ends = f"[{100 * share.low:.0f}, {100 * share.high:.0f}]".replace("-", "−")
    return f", which gives {100 * share.value:.0f} % {ends} of the rise of {points_text(rise)} points"


def largest_fall(changes: tuple[ChangeAtK, ...]) -> ChangeAtK | None:
    """The change at the k where pass@k fell most; None where it fell at no k."""
    least = min(changes, key=lambda change: change.change, default=None)
    return None if least is None or least.change >= 0 else least


def holds(verdict: Verdict, name: str) -> bool:
    """Whether the claim of that name was tested and holds."""
    return any(claim.holds for claim in verdict.claims if claim.name == name)


def _over_sharpened(verdict: Verdict) -> str:
    where = f"on {_problems(verdict)} and on problems like them"
    if verdict.label == "over_sharpened_here":
        where = f"on {_problems(verdict)} (whether on others like them, the data cannot say)"
    also = "; correct answers outside each problem's dominant mode were lost too" if verdict.modes_collapsed else ""
    return f"{_fell(verdict)} {_when(verdict)}, {where}{_first_change(verdict)}{also}{_beside_unread(verdict)}"


def _fell(verdict: Verdict) -> str:
    fall = largest_fall(verdict.changes)
    if fall is None:
        return "pass@k fell below the base"
    # an interval over problems says nothing about these very problems
    interval = ""
    of_these = verdict.label == "over_sharpened_here"
    of_these |= any(claim.name == FELL and not claim.holds for claim in verdict.claims)
    # the keys look at all k at once, a single k may not show what they do
    if not of_these and fall.low is not None and fall.high is not None and fall.high < 0:
        interval = bounds_text(-fall.high, -fall.low)
    return f"pass@k fell below the base, most at k = {fall.k}: by {points_text(-fall.change)} points{interval}"


def _degraded(verdict: Verdict) -> str:
    even = verdict.explanation.even_loss if verdict.explanation else None
    explained = ""
    if even is not None:
        explained = f"; the same share of correct answers lost on every problem explains {100 * even:.0f} % of the fall"
    fell = f"{_fell(verdict)} {_when(verdict)}, on {_problems(verdict)}{_first_change(verdict)}"
    return f"{fell}{explained}{_beside_unread(verdict)}"


def _beside_unread(verdict: Verdict) -> str:
    """What unread samples explain of a loss that they do not explain away."""
    found = verdict.explanation
    if found is None or found.format is None or found.format_most is None or found.format_most < _WORTH_TELLING:
        return ""
    part, most = (f"{100 * share:.0f} %" for share in (found.format, found.format_most))
    explains = f"{most} of the fall" if part == most else f"{part} of the fall, up to {most} if all of them were right"
    return f"; more samples than of the base's were {_UNREAD}, which explains {explains}"


def _format(verdict: Verdict) -> str:
    fell = f"{_fell(verdict)} {_when(verdict)}, on {_problems(verdict)}"
    if _is_of_modes(verdict):
        fell = f"{_MODES_FEWER} {_when(verdict)}, on {_problems(verdict)}"
    elif _step_of(verdict) is not None:
        fell = _fell_at_steps(verdict)
    if (other := verdict.lenient) is not None and other.explains:
        style = f"the share of samples in a style that was not read rose by {100 * other.rise:.0f} points"
        reader = f"a lenient reader of the same samples finds pass@{other.k} {other.base:.3f} at the base and"
        return f"{fell}, but {style}: {reader} {other.late:.3f} late"
    return f"{fell}, but more samples than of the base's were {_UNREAD}{_read(verdict)}"


def _read(verdict: Verdict) -> str:
    """What the read samples say of a fall, and the part of it that the others explain."""
    part = verdict.explanation.format if verdict.explanation else None
    if part is None:
        return ": too few could be read to show a fall"
    surely = "no fall" if part >= 1 else "no sure fall"
    return f", which explains {100 * part:.0f} % of the fall: those that could be read show {surely}"


def _guessing(verdict: Verdict) -> str:
    found = verdict.explanation
    share = "a share" if found is None or found.guess_rate is None else share_text(found.guess_rate)
    # a fall of the mean is none that was shown: the label may rest on the minority modes, or a checkpoint, alone
    fell = f"{_MODES_FEWER if _is_of_modes(verdict) else _fell(verdict)} {_when(verdict)}, on {_problems(verdict)}"
    if _step_of(verdict) is not None:
        fell = _fell_at_steps(verdict)
    allowed = "" if found is None else f", and {_allowed(found)}"
    return (
        f"{fell}, but a grader that accepted {share} of the base's wrong answers and none later would leave the same "
        f"behind{allowed}"
    )


#: Unread samples are worth a clause where they may be the larger part of a fall; the report has the smaller ones.
_WORTH_TELLING = 0.5
_MODES_FEWER = "correct answers outside each problem's dominant mode became fewer"
_UNREAD = "cut off, not parsed or out of the grader's time"


def _is_of_modes(verdict: Verdict) -> bool:
    return verdict.modes_collapsed and not holds(verdict, FELL_HERE)


def _step_of(verdict: Verdict) -> int | None:
    """The single checkpoint that the label rests on; None where that is the window."""
    return verdict.explanation.step if verdict.explanation else None


def _allowed(found: Explanation) -> str:
    """The share of wrong answers that the verdict had to reckon with, and who says so."""
    share = share_text(found.guess_rate_allowed)
    match found.guess_source:
        case "assumed":
            return f"up to {share} is assumed of one that nobody measured"
        case "given":
            return f"up to {share} was given for this one"
        case _:
            return f"this one accepts up to {share}"


def _lost_at_steps(verdict: Verdict) -> str:
    return _fell_at_steps(verdict)


def told_steps(verdict: Verdict) -> list[StepClaim]:
    """The lost checkpoints of the window that a label of single ones speaks of: those of its cause, or of none."""
    cause = None if verdict.label == "lost_at_steps" else verdict.label
    return [one for one in verdict.steps if one.lost and one.cause == cause and one.step >= verdict.window[0]]


def _fell_at_steps(verdict: Verdict) -> str:
    told = told_steps(verdict)
    where = f"at {verdict.steps_text(told)}{_at_worst(verdict, told)}"
    fell = f"pass@k fell below the base {where}, on {_problems(verdict)}"
    if len(verdict.window) == 1:
        return f"{fell} and on problems like them"
    together = f"the last third of the checkpoints, taken together ({_steps(verdict)}),"
    beside = f"though {together} does not show it"
    if _explained_fall(verdict):
        beside = f"while what {together} shows may have other causes"
    return f"{fell} and on problems like them, {beside}"


def _explained_fall(verdict: Verdict) -> bool:
    """Whether the window fell, by the exact test, and something else may be why."""
    return any(claim.name == FELL_HERE and claim.p is not None and claim.p <= claim.level for claim in verdict.claims)


#: What is said of a checkpoint that lost something, for what else explains it.
_CAUSES: Mapping[Cause, str] = {
    "format": "samples that could not be read or were misread explain it",
    "unread": "too few could be read to tell",
    "guessing": "wrong answers that were accepted at the base would explain it",
}


def _at_worst(verdict: Verdict, steps: Iterable[StepClaim]) -> str:
    """Of the checkpoints that lost something the one that lost most, and how much."""
    lost = [one for one in steps if one.lost]
    worst = min(lost, key=lambda one: one.change)
    where = f"k = {worst.k}" if len(lost) == 1 else f"{_at(verdict, worst.step)} and k = {worst.k}"
    return f", most at {where}: by {points_text(-worst.change)} points{bounds_text(-worst.high, -worst.low)}"


def _single_checkpoints(verdict: Verdict) -> str:
    """What single checkpoints lost, where neither the window nor the label says so; what else explains it beside it."""
    lost = [one for one in verdict.steps if one.lost]
    match verdict.label:
        case "no_loss" | "inconclusive" | "mode_collapse":
            untold = lost
        case "lost_at_steps" | "format" | "guessing" if verdict.label == "lost_at_steps" or _step_of(verdict):
            said = told_steps(verdict)
            untold = [one for one in lost if one not in said]
        case "format" | "guessing":  # of the whole window: what was lost before it
            untold = [one for one in lost if one.step < verdict.window[0]]
        case _:
            return ""
    if not untold:
        return ""
    late = untold[-1].step >= verdict.window[0]
    # λ is no time: nothing came before or came back
    earlier = not late and not verdict.repaired
    fell = "had fallen" if earlier else "fell"
    told = f"; {'earlier, at' if earlier else 'at'} {verdict.steps_text(untold)}, pass@k {fell} below the base"
    told += _at_worst(verdict, untold)
    # only a window that surely holds the base's level shows that what was lost came back
    if verdict.label == "no_loss" and earlier:
        told += ", and came back later"
    return f"{told}{_other_causes(verdict, untold)}"


def _other_causes(verdict: Verdict, untold: Sequence[StepClaim]) -> str:
    """What else explains the losses of single checkpoints."""
    at = {cause: [one for one in untold if one.cause == cause] for cause in _CAUSES}
    return "".join(f"; at {verdict.steps_text(of)} {_CAUSES[cause]}" for cause, of in at.items() if of)


def share_text(share: float) -> str:
    """A small share in per cent.

    >>> share_text(0.0004), share_text(0.031)
    ('0.04 %', '3.1 %')
    """
    return f"{100 * share:.2g} %"


def _mode_collapse(verdict: Verdict) -> str:
    held = "what pass@k lost may have other causes" if _explained_fall(verdict) else "no fall of pass@k is shown"
    if verdict.least_change is not None and verdict.least_change > -MARGIN:
        held = f"pass@k fell by no more than {100 * MARGIN:.0f} points"
    seen = _problems(verdict)
    if verdict.n_minority_problems < verdict.n_problems:
        seen = f"the {verdict.n_minority_problems} of {seen} that show their modes"
    return (
        f"{held}, but correct answers outside each problem's dominant mode were lost {_when(verdict)}, on {seen}"
        f"{_first_change(verdict)}"
    )


def _no_loss(verdict: Verdict) -> str:
    return (
        f"pass@k fell by no more than {100 * MARGIN:.0f} points below the base {_when(verdict)}, "
        f"on {_problems(verdict)} and on problems like them (95 % confidence){_first_change(verdict)}"
    )


def _inconclusive(verdict: Verdict) -> str:
    said = (
        f"neither a fall of pass@k below the base nor its absence (to within {100 * MARGIN:.0f} points) is shown "
        f"{_when(verdict)}, on {_problems(verdict)}{_first_change(verdict)}{_not_read(verdict)}"
    )
    remedy = verdict.remedy
    if remedy is None:
        return said
    shown = f"would show a fall of {100 * remedy.drop:.3g} points with 80 % power"
    if remedy.n_problems <= verdict.n_problems and remedy.n * len(verdict.window) <= verdict.n_late:
        return f"{said}; an audit of this size {shown}"
    of_base = "" if remedy.n_base == remedy.n else f" ({remedy.n_base} of the base)"
    return f"{said}; about {remedy.n_problems} problems with {plural(remedy.n, 'sample')} each{of_base} {shown}"


def _not_read(verdict: Verdict) -> str:
    """A fall of the window that unread samples do not explain, but that the read ones do not show either."""
    if verdict.explanation is None:
        return ""
    fell = _MODES_FEWER if _is_of_modes(verdict) else _fell(verdict)
    return f"; as they are counted {fell}, but more samples than of the base's were {_UNREAD}{_read(verdict)}"


def _when(verdict: Verdict) -> str:
    first, last = verdict.window[0], verdict.window[-1]
    if verdict.repaired:
        return f"at the far end of this repaired series ({_steps(verdict)}, where 1 is the checkpoint itself)"
    if first == last:
        return f"at the end of this one training run (step {last})"
    return f"in the last third of this one training run (steps {first}–{last})"


def _problems(verdict: Verdict) -> str:
    return "this one problem" if verdict.n_problems == 1 else f"these {verdict.n_problems} problems"


def _first_change(verdict: Verdict) -> str:
    """What became of pass@1, unless it is what fell most."""
    first = next((change for change in verdict.changes if change.k == 1), None)
    told = verdict.label in ("over_sharpened", "over_sharpened_here", "degraded")
    if first is None or (told and first is largest_fall(verdict.changes)):
        return ""
    moved = points_text(abs(first.change))
    if float(moved) == 0:
        return "; pass@1 did not move"
    return f"; pass@1 {'rose' if first.change > 0 else 'fell'} by {moved}"


def _steps(verdict: Verdict) -> str:
    first, last = verdict.window[0], verdict.window[-1]
    return verdict.places_text([(first, last)])


def _at(verdict: Verdict, step: int) -> str:
    return verdict.places_text([(step, step)])


_SAID: Mapping[str, Callable[[Verdict], str]] = {
    "over_sharpened": _over_sharpened,
    "over_sharpened_here": _over_sharpened,
    "degraded": _degraded,
    "format": _format,
    "guessing": _guessing,
    "mode_collapse": _mode_collapse,
    "lost_at_steps": _lost_at_steps,
    "no_loss": _no_loss,
    "inconclusive": _inconclusive,
}
