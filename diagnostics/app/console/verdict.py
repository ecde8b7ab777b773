"""Print a verdict: label, pass@1, pass@k, frontier, cause, checkpoint to ship, next command."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oversharp.diagnostics.app.console.layout import LABEL_WIDTH, OutputRow, print_rows, shortened_cell, unbroken
from oversharp.diagnostics.records.amounts import plural

if TYPE_CHECKING:
    from rich.console import Console

    from oversharp.diagnostics.verdict.causes.explanations import Cause
    from oversharp.diagnostics.verdict.headings import Heading, Kind, VerdictLabel
    from oversharp.diagnostics.verdict.recommendation import Guarantee, Recommendation, ShippingStep, TossUp
    from oversharp.diagnostics.verdict.record import Verdict
    from oversharp.diagnostics.verdict.results import Claim, ReadingName, Sharpening, SharpeningLabel
    from oversharp.diagnostics.verdict.steps import Accuracy

#: Label → its meaning, printed after the title on the same line.
MEANINGS: Mapping[VerdictLabel, str] = {
    "over_sharpened": "pass@k fell below the base",
    "over_sharpened_here": "pass@k of these problems fell below the base",
    "degraded": "pass@k and pass@1 fell below the base",
    "format": "unparsed or misread samples explain it",
    "guessing": "false accepts by the grader may explain it",
    "mode_collapse": "less frequent correct answers became fewer",
    "lost_at_steps": "no significant, unexplained fall of the pooled late ones",
    "no_loss": "no pass@k fell by 2 points or more",
    "inconclusive": "the data neither show a fall nor rule one out",
}
#: Kind of a loss → where it is concentrated.
KINDS: Mapping[Kind, str] = {
    "whole problems": "most of the fall is on problems that each fell significantly",
    "modes": "within problems that are still solved",
    "diffuse": "no more than half of the fall is on problems that each fell significantly",
}
#: Titles of the comparison with the base at lower temperatures.
FRONTIER_TITLES: Mapping[SharpeningLabel, str] = {
    "better": "better than sharpening",
    "sharpening_only": "sharpening only",
    "worse": "worse than sharpening",
    "not_shown": "whether better or only sharper is not shown",
}
_CAUSES: Mapping[Cause, str] = {
    "format": "unread or misread samples",
    "unread": "too few samples with a readable answer to decide",
    "guessing": "false accepts at the base",
    "selection": "the selection of problems by these base samples",
}
#: Name of a claim → its null hypothesis, in short.
_NULLS: Mapping[str, str] = {
    "pass@k fell here": "no fall at any k",
    "minority modes lost": "no mode became rarer",
    "a checkpoint lost": "no fall at any step and k",
    "no fall that matters": "a fall of 2 points or more at some k",
}
#: Another reading of the samples → label of its rows. At best, all late unparsed samples in excess are correct.
READINGS: Mapping[ReadingName, str] = {
    "lenient reader": "lenient",
    "parsed samples": "parsed",
    "unparsed taken for correct": "at best",
}
_STYLES: Mapping[Heading, str] = {"coverage_lost": "red", "no_loss": "green"}
#: Smallest gain of pass@1 (as a probability) from newly parsed answers that is printed.
_NOTABLE_PARSED = 0.01


def print_verdict(
    verdict: Verdict, store_path: Path, *, made_of: str | None = None, explain: bool = False, out: Console | None = None
) -> None:
    """Print one verdict.

    With ``explain``, also prints its sentences, ``made_of`` and its caveats.
    """
    print_rows(verdict_rows(verdict), out)
    print_rows(_explaining_rows(verdict, made_of) if explain else _caveat_rows(verdict), out)
    print_rows(_next_rows(verdict, store_path), out)


def verdict_summary(verdict: Verdict) -> Any:
    """Return all fields of a verdict, for JSON."""
    return json.loads(verdict.to_json())


def load_made_of(store_path: Path, series: str) -> str | None:
    """Return one sentence with the causes of the change of pass@k, or None."""
    from oversharp.diagnostics.store import Store
    from oversharp.diagnostics.store.load import made_of

    with Store.open(store_path, read_only=True) as store:
        return made_of(store, series)


def verdict_rows(verdict: Verdict) -> Iterator[OutputRow]:
    """Yield the output rows of a verdict, without the warnings."""
    yield OutputRow(label="series", value=_series_text(verdict))
    meaning = verdict.why or "" if verdict.label == "no_verdict" else MEANINGS[verdict.label]
    if verdict.is_end_unknown:
        meaning = "no pass@k fell by 2 points or more, but a later checkpoint is left out"
    style = _STYLES.get(verdict.heading, "yellow")
    # a title with lost steps covers steps and window; the meaning is about the window alone
    is_of_both = verdict.label in ("no_loss", "inconclusive") and verdict.title.startswith("Coverage lost")
    yield OutputRow(label="verdict", value=verdict.title if is_of_both else f"{verdict.title}: {meaning}", style=style)
    yield from (
        OutputRow(label="" if number else "left out", value=f"{one.checkpoint}: {one.why}")
        for number, one in enumerate(verdict.left_out)
    )
    if verdict.heading == "coverage_lost":
        yield OutputRow(label="scope", value=_scope_text(verdict))
    yield from _test_rows(verdict)
    yield from _number_rows(verdict)
    yield from _accuracy_rows(verdict)
    yield from _step_rows(verdict)
    if verdict.modes_collapsed:
        yield OutputRow(label="modes", value=_modes_text(verdict))
    if verdict.label != "no_verdict":
        yield from _frontier_rows(verdict.sharpening)
    for number, cause in enumerate(_causes(verdict)):
        yield OutputRow(label="" if number else "cause", value=cause)
    if verdict.shipping is not None:
        untested = "; modes of single steps are not tested" if verdict.modes_collapsed else ""
        yield OutputRow(label="ship", value=f"{shipping_text(verdict.shipping)}{untested}")
    yield from (OutputRow(label="warning", value=warning) for warning in verdict.warnings)


def change_text(change: float, low: float | None, high: float | None) -> str:
    """Return a change of a probability in percentage points, with its interval if it has one.

    >>> change_text(-0.1, -0.125, -0.075), change_text(-0.006, -0.06, None)
    ('−10.0 [−12.5, −7.5]', '−0.6, at least −6.0')
    """
    from oversharp.diagnostics.verdict.words.numbers import at_least_text, at_most_text, bounds_text, signed_text

    one_sided = ""
    if low is not None and high is None:
        one_sided = f", at least {at_least_text(low)}"
    elif low is None and high is not None:
        one_sided = f", at most {at_most_text(high)}"
    return f"{signed_text(change)}{one_sided}{bounds_text(low, high, signed=True)}"


def number_row(label: str, before: float | None, after: float | None, change: str, place: str = "") -> OutputRow:
    """Return a row with pass@k before and after (probabilities), the change, and its place."""
    levels = "" if before is None or after is None else f"{100 * before:5.1f} → {100 * after:5.1f}"
    return OutputRow(label=label, value=f"{levels:13}   {change:24}{place}".rstrip(), is_whole=True)


def number_head(after: str, interval: str = "95 % interval") -> OutputRow:
    """Return the heading of rows with numbers in percentage points."""
    return OutputRow(
        label="points", value=f"{f' base → {after}':13}   change [{interval}]", is_whole=True, style="bold"
    )


def guarantee_text(sure: Guarantee) -> str:
    """Return the guarantee as text: gain of pass@1, loss of pass@k, and confidence."""
    from oversharp.diagnostics.verdict.rule import MARGIN
    from oversharp.diagnostics.verdict.words.numbers import at_least_text, at_most_text

    gain = f"up by at least {at_least_text(sure.gain)}"
    if sure.gain <= 0:
        gain = f"down by at most {at_most_text(-sure.gain)}"
    loss = "no pass@k down"
    if sure.loss > MARGIN:
        loss = f"a fall of pass@k by up to {at_most_text(sure.loss)} not excluded"
    elif sure.loss > 0:
        loss = f"no pass@k down by more than {at_most_text(sure.loss)}"
    confidence = f"({100 * sure.confidence:g} %)"
    return f"{unbroken(f'pass@1 {gain},')} {unbroken(loss)} {unbroken(confidence)}"


def place_text(step: ShippingStep | TossUp, recommendation: Recommendation) -> str:
    """Return the label of a checkpoint.

    It includes the series if there are several, and the temperature of a control.
    """
    name = step.checkpoint if len(recommendation.series) == 1 else f"{step.checkpoint} of {step.series}"
    if step.is_base:
        name = "the base" if step.temperature is not None else f"the base, {step.checkpoint}"
    return name if step.temperature is None else unbroken(f"{name} sampled at T = {step.temperature:g}")


def shipping_text(recommendation: Recommendation) -> str:
    """Return the recommended checkpoint with its guarantee, or why there is none."""
    chosen = recommendation.recommended
    if chosen is None:
        return f"no recommendation: {recommendation.why}"
    place = place_text(chosen, recommendation)
    toss_up = recommendation.toss_up
    if toss_up is not None:
        numbers = f"(pass@1 {change_text(toss_up.gain, None, None)} points, probability {toss_up.better:.2f})"
        is_toss_up = "is a toss-up with the base" if toss_up.better >= 0.5 else "is hardly better"
        return f"{place}: {place_text(toss_up, recommendation)} {is_toss_up} {unbroken(numbers)}"
    if recommendation.guarantee is not None:
        return f"{place}: {guarantee_text(recommendation.guarantee)}"
    return f"{place}: {recommendation.why or f'no guarantee, {recommendation.why_no_guarantee}'}"


def _scope_text(verdict: Verdict) -> str:
    """Return the problems for which a loss is shown, and where it is concentrated."""
    attributes = verdict.attributes
    problems = plural(verdict.n_problems, "problem")
    if verdict.label == "mode_collapse" and verdict.n_minority_problems < verdict.n_problems:
        problems = f"{verdict.n_minority_problems} of {problems}"
    scope = f"population of these {problems}" if attributes.scope == "population" else f"these {problems} only"
    return f"{scope}; {KINDS[attributes.kind]}" if attributes.kind else scope


def _test_rows(verdict: Verdict) -> Iterator[OutputRow]:
    """Yield the null hypotheses that decide the title, with p values and level."""
    from oversharp.diagnostics.verdict.claims import A_CHECKPOINT, FELL, FELL_HERE, MODES_LOST, NO_FALL

    if verdict.label == "no_verdict":
        return
    names = {"mode_collapse": (MODES_LOST,), "no_loss": (NO_FALL,), "lost_at_steps": (A_CHECKPOINT,)}
    decides = (A_CHECKPOINT,) if verdict.is_of_steps else (FELL_HERE, FELL)
    tests = [(NO_FALL,) if verdict.is_end_unknown else names.get(verdict.label, decides)]
    if A_CHECKPOINT not in tests[0] and verdict.label in ("no_loss", "inconclusive") and verdict.lost_ranges:
        tests.append((A_CHECKPOINT,))
    for test in tests:
        claims = [claim for claim in verdict.claims if claim.name in test and claim.p is not None]
        if claims:
            yield OutputRow(label="test", value=_test_text(claims))


def _test_text(claims: Sequence[Claim]) -> str:
    """Return the null hypothesis of claims, whether it is rejected, and the p values that allow a conclusion."""
    from oversharp.diagnostics.records.amounts import p_value_text

    first = claims[0]
    if first.why is not None:  # the p value allows no conclusion
        return f'"{_NULLS[first.name]}" not tested: {first.why}'
    is_rejected = first.p is not None and first.p <= first.level
    valid = [claim for claim in claims if claim.why is None]
    p_values = [f"p = {p_value_text(claim.p)} ({claim.scope})".replace("= <", "< ") for claim in valid]
    rejected = f"{'rejected' if is_rejected else 'not rejected'} at level {first.level:.2g}"
    return f'"{_NULLS[first.name]}" {unbroken(rejected)}: {", ".join(map(unbroken, p_values))}'


def _modes_text(verdict: Verdict) -> str:
    """Return that modes were lost, with the fall of their pass@k."""
    from oversharp.diagnostics.verdict.words.numbers import points_text
    from oversharp.diagnostics.verdict.words.sentence import fall_of_modes

    fall = fall_of_modes(verdict)
    size = " became fewer" if fall is None else f": their pass@k fell by up to {points_text(fall)} points"
    return f"correct answers other than each problem's most frequent one{size}"


def _series_text(verdict: Verdict) -> str:
    if not verdict.window:
        return verdict.series
    late = verdict.places_text([(verdict.window[0], verdict.window[-1])])
    return (
        f"{verdict.series}: {unbroken(plural(verdict.n_problems, 'problem'))}, {unbroken(f'late = {late}')}, "
        f"{', '.join(map(unbroken, verdict.sample_numbers))}"
    )


def _number_rows(verdict: Verdict) -> Iterator[OutputRow]:
    if not verdict.changes:
        return
    yield number_head("late")
    first = next((change for change in verdict.changes if change.k == 1), None)
    if first is not None:
        yield number_row("pass@1", first.base, first.late, change_text(first.change, first.low, first.high))
    worst = min(verdict.changes, key=lambda change: change.change)
    if worst is not first or len(verdict.changes) > 1:
        text = change_text(worst.change, worst.low, worst.high)
        yield number_row("worst pass@k", worst.base, worst.late, text, f"k = {worst.k}")
    yield from _remaining_rows(verdict)
    lost = [step for step in verdict.steps if step.lost and step.cause is None]
    if lost:
        least = min(lost, key=lambda step: step.change)
        where = f"k = {least.k}, {verdict.places_text([(least.step, least.step)])}"
        yield number_row("lost step", None, None, change_text(least.change, least.low, least.high), where)


def _remaining_rows(verdict: Verdict) -> Iterator[OutputRow]:
    """Yield pass@1 and the worst pass@k by another reading of the same samples."""
    if verdict.remaining is None:
        return
    from oversharp.diagnostics.records.amounts import p_value_text

    name = READINGS[verdict.remaining.name]
    worst = min(verdict.remaining.changes, key=lambda change: change.change)
    for label, change in (("@1", verdict.remaining.changes[0]), ("@k", worst)):
        text = change_text(change.change, change.low, change.high)
        p = f"p = {p_value_text(verdict.remaining.p)}".replace("= <", "< ")
        place = "" if label == "@1" else f"k = {change.k}, {p}"
        yield number_row(f"{name} {label}", change.base, change.late, text, place)


def _accuracy_rows(verdict: Verdict) -> Iterator[OutputRow]:
    if not verdict.accuracies:
        return
    greedy = "greedy accuracy" if verdict.accuracies[0].greedy else "accuracy"
    yield OutputRow(label="points", value=f"{greedy}, change [95 % interval], lost, gained, McNemar p", style="bold")
    for accuracy in verdict.accuracies:
        label = shortened_cell(accuracy.checkpoint, LABEL_WIDTH - 1)
        yield OutputRow(label=label, value=_accuracy_text(accuracy), is_whole=True)


def _accuracy_text(accuracy: Accuracy) -> str:
    share = f"{100 * accuracy.share:5.1f}"
    if accuracy.change is None:
        return f"{share} of {plural(accuracy.n_problems, 'problem')}"
    counts = ""
    if accuracy.p is not None:
        counts = f"{accuracy.n_lost:>4} lost {accuracy.n_gained:>4} gained   p = {accuracy.p:.2g}"
    return f"{share}   {change_text(accuracy.change, accuracy.low, accuracy.high):22}{counts}".rstrip()


def _step_rows(verdict: Verdict) -> Iterator[OutputRow]:
    if not verdict.steps:
        return
    lost = [step for step in verdict.steps if step.lost and step.cause is None]
    explained = [step for step in verdict.steps if step.lost and step.cause is not None]
    kept = [step for step in verdict.steps if step.kept and not step.lost]
    undecided = [step for step in verdict.steps if not step.lost and not step.kept]
    places = (
        ("lost at", lost),
        ("fell, with another possible explanation, at", explained),
        ("kept within 2 points at", kept),
        ("open at", undecided),
    )
    parts = [f"{word} {verdict.steps_text(steps)}" for word, steps in places if steps]
    if verdict.modes_collapsed:
        parts.insert(0, f"modes lost at {verdict.places_text([(verdict.window[0], verdict.window[-1])])}")
    yield OutputRow(label="steps", value="; ".join(parts))


def _frontier_rows(sharpening: Sharpening | None) -> Iterator[OutputRow]:
    if sharpening is None:
        unknown = "not measured: the base at a lower temperature may do the same"
        yield OutputRow(label="frontier", value=unknown)
        return
    share = sharpening.share
    given = ""
    if share.value is not None and share.low is not None and share.high is not None:
        bounds = f"[{100 * share.low:.0f}, {100 * share.high:.0f}]".replace("-", "−")
        given = f"; a lower temperature gives {unbroken(f'{100 * share.value:.0f} % {bounds}')} of the gain of pass@1"
    yield OutputRow(label="frontier", value=f"{FRONTIER_TITLES[sharpening.label]}{given}")
    yield number_row("", None, None, *_beyond(sharpening))
    if sharpening.read is not None and sharpening.read >= _NOTABLE_PARSED:
        yield number_row(
            "",
            None,
            None,
            f"{100 * sharpening.read:+.1f}",
            "from answers that are parsed now, but were unparsed at the base",
        )


def _beyond(sharpening: Sharpening) -> tuple[str, str]:
    """Return the change of pass@1 at equal pass@k, or the reverse, and a text that says which."""
    from oversharp.diagnostics.verdict.rule import MARGIN

    gain, loss = sharpening.gain, sharpening.loss
    is_loss = loss.value is not None and gain.value is None
    if sharpening.label == "sharpening_only":
        is_loss |= loss.value is not None and (gain.high is None or gain.high > MARGIN)
    if is_loss and loss.value is not None:
        return change_text(loss.value, loss.low, loss.high), f"pass@{sharpening.k} at equal pass@1"
    if gain.value is not None:
        return change_text(gain.value, gain.low, gain.high), f"pass@1 at equal pass@{sharpening.k}"
    return "out of reach", f"of every lower temperature: pass@1, pass@{sharpening.k}"


def _causes(verdict: Verdict) -> Iterator[str]:
    """Yield the cause that explains a loss, and other explanations that are not excluded."""
    from oversharp.diagnostics.verdict.claims import A_CHECKPOINT
    from oversharp.diagnostics.verdict.words.sentence import remaining_text

    explanation, lenient = verdict.explanation, verdict.lenient
    if lenient is not None and lenient.explains:
        yield f"answer style: a lenient reader of the same samples finds {remaining_text(verdict)}"
    if (lenient is None or not lenient.explains) and explanation is not None and explanation.format_most:
        most = f" to {100 * explanation.format_most:.0f}" if explanation.format != explanation.format_most else ""
        yield f"unparsed samples explain {100 * (explanation.format or 0.0):.0f}{most} % of the fall"
    if explanation is not None and explanation.even_loss is not None:
        yield f"an equal loss on every problem explains {100 * explanation.even_loss:.0f} % of the fall"
    at_steps = {step.cause for step in verdict.steps if step.lost and step.cause is not None}
    if verdict.label == "guessing":
        rate = "a share" if explanation is None or explanation.guess_rate is None else _percent(explanation.guess_rate)
        yield f"false accepts: {rate} of the base's wrong answers would explain such a fall"
    elif verdict.positive and explanation is not None and explanation.guess_rate is not None:
        sources = ("assumed", "given", "measured")
        source = explanation.guess_source if explanation.guess_source in sources else "this grader"
        most = f"at most {_percent(explanation.guess_rate_allowed)}" if explanation.guess_rate_allowed else "0 %"
        allowed = unbroken(f"({source}: {most})")
        rate = unbroken(f"{_percent(explanation.guess_rate)} false accepts")
        yield f"the fall is significant up to {rate} at the base {allowed}"
    else:
        yield from (f"at single steps, {_CAUSES[cause]}" for cause in sorted(at_steps))
    printed: set[str] = set()
    for claim in verdict.claims:
        where = "at single steps, not excluded" if claim.name == A_CHECKPOINT else "not excluded"
        yield from (f"{where}: {other}" for other in claim.otherwise if other not in printed)
        printed.update(claim.otherwise)


def _percent(share: float) -> str:
    """Return a small share in percent.

    >>> _percent(0.0004), _percent(0.031)
    ('0.04 %', '3.1 %')
    """
    return f"{100 * share:.2g} %"


def _caveat_rows(verdict: Verdict) -> Iterator[OutputRow]:
    n_caveats = len(_caveats(verdict))
    if n_caveats:
        yield OutputRow(label="caveats", value=f"{plural(n_caveats, 'caveat')}: add --explain")


def _caveats(verdict: Verdict) -> tuple[str, ...]:
    """Return the caveats that are not printed as warnings."""
    return tuple(caveat for caveat in verdict.caveats if caveat not in verdict.warnings)


def _explaining_rows(verdict: Verdict, made_of: str | None) -> Iterator[OutputRow]:
    from oversharp.diagnostics.verdict.words.beyond import beyond_text

    ship = None if verdict.shipping is None else verdict.shipping.sentence
    beyond = None if verdict.beyond is None else beyond_text(verdict.beyond)
    rows = {"in words": verdict.sentence, "made of": made_of, "beyond": beyond, "ship": ship}
    yield from (OutputRow(label=label, value=text) for label, text in rows.items() if text)
    yield from (OutputRow(label="caveat", value=caveat) for caveat in _caveats(verdict))


def _next_rows(verdict: Verdict, store_path: Path) -> Iterator[OutputRow]:
    """Yield the command that is useful after this verdict."""
    store, series = shlex.quote(str(store_path)), shlex.quote(verdict.series)
    command = {
        "no_loss": f"ship {store}",
        "inconclusive": f"plan {store} --series {series} --drop 2",
        "format": f"lost {store} --series {series} --answers",
        "guessing": f"lost {store} --series {series} --answers",
        "no_verdict": None,
    }.get("no_verdict" if verdict.is_end_unknown else verdict.label, f"lost {store} --series {series}")
    if command is not None:
        yield OutputRow(label="next", value=f"oversharp {command}", is_whole=True)
