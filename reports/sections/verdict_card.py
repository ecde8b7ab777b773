"""Verdict of one series at the top of its card: label, sentence, scope, and tables with the evidence."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from oversharp.diagnostics.verdict.headings import VerdictLabel
from oversharp.diagnostics.verdict.record import Verdict
from oversharp.diagnostics.verdict.results import Remedy
from oversharp.diagnostics.verdict.rule import MARGIN
from oversharp.diagnostics.verdict.shipping.words import alternatives_text
from oversharp.diagnostics.verdict.words.sentence import share_text
from oversharp.diagnostics.verdict.words.sharpening import sharpening_text
from oversharp.diagnostics.verifiers.names import correct_means
from oversharp.reports import numbers
from oversharp.reports.evidence.source import SeriesSource
from oversharp.reports.records import VerdictText
from oversharp.reports.sections.verdict_tables import tables

NO_VERDICT = "No verdict: this audit predates verdicts. Run the same audit again; it keeps the existing samples."
#: Label → mark and tone. The mark repeats the meaning of the tone's colour.
LOOKS: Mapping[VerdictLabel, tuple[str, Literal["loss", "held", "open"]]] = {
    "over_sharpened": ("▼", "loss"),
    "over_sharpened_here": ("▼", "loss"),
    "degraded": ("▼", "loss"),
    "mode_collapse": ("◆", "loss"),
    "lost_at_steps": ("▽", "loss"),
    "format": ("≈", "open"),
    "guessing": ("≈", "open"),
    "no_loss": ("✓", "held"),
    "inconclusive": ("?", "open"),
    "no_verdict": ("–", "open"),
}


def verdict_text(series: SeriesSource, first: Mapping[int, float] = MappingProxyType({})) -> VerdictText:
    """Return the texts and tables of the verdict on ``series``, or why there is none.

    ``first`` is step → pass@1, including the base.
    """
    verdict = series.verdict
    if verdict is None:
        return VerdictText(title="No verdict", mark="–", tone="open", sentence=NO_VERDICT, scope=())
    mark, tone = LOOKS[verdict.label]
    return VerdictText(
        title=verdict.title,
        mark=mark,
        tone=tone,
        sentence=_without_title(verdict),
        sharpening=sharpening_text(verdict),
        scope=_scope(verdict),
        caveats=verdict.caveats,
        overturn=_overturn(verdict, series),
        ship=_ship(verdict),
        tables=tables(verdict, first),
    )


def _without_title(verdict: Verdict) -> str:
    """Return the sentences without the title, which is the card's heading."""
    text = verdict.sentence
    if verdict.heading != "no_verdict":
        text = text.removeprefix(f"{verdict.title}: ")
    return f"{text[:1].upper()}{text[1:]}" if not text.startswith("pass@") else text


def _scope(verdict: Verdict) -> tuple[str, ...]:
    if verdict.k_most is None:
        return ()
    lines = [f"Range: k = 1 to {verdict.k_most}." if verdict.k_most > 1 else "Range: k = 1."]
    lines[0] += " Larger k are not tested."
    lines.append(
        f"Scope: one training seed; {correct_means(verdict.graders)}; {numbers.plural(verdict.n_problems, 'problem')}"
        + (" and the population they were sampled from." if verdict.attributes.scope == "population" else ".")
    )
    return tuple(lines)


def _overturn(verdict: Verdict, series: SeriesSource) -> str:
    """Return which results would change the verdict, and how to get them; empty for verdicts without such results."""
    how = "oversharp confirm takes them for the problems that seem lost"
    if series.is_recorded:
        how = "import more samples, or audit the checkpoints with oversharp audit"
    elif series.verifier is not None:
        how = "run oversharp confirm on the original series"
    fresh = f"fresh samples of the base and the late checkpoints that do not show the loss ({how})"
    seed = "a second training seed without the loss"
    match verdict.label:
        case "over_sharpened":
            return f"{fresh}, or {seed}."
        case "over_sharpened_here":
            more = "To test the population too, audit more problems"
            return f"{fresh}, or {seed}. {more}."
        case "degraded":
            return f"{fresh}, or {seed}."
        case "format":
            return (
                "samples that are not truncated and that the grader can parse: audit again with a larger --max-tokens, "
                "or grade again with oversharp regrade. If a loss remains, the format did not cause it."
            )
        case "guessing":
            return _guessing(verdict)
        case "lost_at_steps":
            more = "import more samples" if series.is_recorded else "run the same audit with a larger --n"
            return f"more samples of the base and of these checkpoints that do not show the loss ({more}), or {seed}."
        case "mode_collapse":
            beyond = f"This audit does not test pass@k above k = {verdict.k_most}"
            return f"{fresh}, or {seed}. {beyond}: plan a larger one with oversharp plan."
        case "no_loss":
            return (
                f"a fall at k above {verdict.k_most}, which this audit does not test: plan a larger one with oversharp "
                f"plan. This audit does not exclude a fall of less than {numbers.decimal(100 * MARGIN, 0)} points."
            )
        case "inconclusive":
            return _settling(verdict)
        case _:
            return ""


def _guessing(verdict: Verdict) -> str:
    """Return which results would show that the fall is a loss, not an effect of false accepts."""
    rate = None if verdict.explanation is None else verdict.explanation.guess_rate
    below = "" if rate is None else f" below {share_text(rate)}"
    return (
        "a loss with a grader that has fewer false accepts (oversharp regrade), or a measured false-accept rate of "
        f"this grader{below} (pass it with --guess-rate): then the verdict is a loss."
    )


def _ship(verdict: Verdict) -> str:
    """Return which checkpoint of all compared series to ship; empty without a recommendation."""
    advice = verdict.shipping
    if advice is None or advice.recommended is None:
        return ""
    others = alternatives_text(advice)
    of = f"For {numbers.listing(advice.series)} together: " if len(advice.series) > 1 else ""
    return f"{of}{advice.sentence}" + (f" {others[0].upper()}{others[1:]}." if others else "")


def _settling(verdict: Verdict) -> str:
    remedy = verdict.remedy
    if remedy is None:
        return "more problems or more samples: plan the audit with oversharp plan."
    if remedy.n_problems <= verdict.n_problems and remedy.n * len(verdict.window) <= verdict.n_late:
        return (
            f"a larger audit: this size detects a fall of {numbers.points(remedy.drop, signed=False)} points with "
            "80\N{NO-BREAK SPACE}% power. Plan one for smaller falls with oversharp plan."
        )
    return f"a larger audit: {remedy_text(remedy)}."


def remedy_text(remedy: Remedy) -> str:
    """Return the size, power and cost of the audit that would settle the question.

    >>> remedy_text(Remedy(drop=0.05, n_problems=500, n=256, n_base=1024, tokens=3.2e7))
    '500 problems with 256 samples each (base: 1\\u202f024) detect a fall of 5.0 points with 80\\xa0% power; about 32
    million tokens'
    >>> remedy_text(Remedy(drop=0.05, n_problems=500, n=256, n_base=256, tokens=None, first=16, enough=4, samples=9000))
    '500 problems, each sampled until 4 of at most 256 samples are correct, detect a fall of 5.0 points with 80\\xa0%
    power; about 9\\u202f000 samples'
    """
    base = "" if remedy.n_base == remedy.n else f" (base: {numbers.decimal(remedy.n_base, 0)})"
    problems, samples = numbers.plural(remedy.n_problems, "problem"), numbers.plural(remedy.n, "sample")
    drawn, cost = f" with {samples} each{base}", ""
    if remedy.enough is not None:
        drawn = f", each sampled until {remedy.enough} of at most {samples} are correct{base},"
    if remedy.tokens is not None:
        cost = f"; about {_tokens(remedy.tokens)}"
    elif remedy.enough is not None and remedy.samples is not None:
        cost = f"; about {numbers.plural(remedy.samples, 'sample')}"
    fall = f"a fall of {numbers.points(remedy.drop, signed=False)} points"
    return f"{problems}{drawn} detect {fall} with 80\N{NO-BREAK SPACE}% power{cost}"


def _tokens(count: float) -> str:
    for size, name in ((1e9, "billion"), (1e6, "million"), (1e3, "thousand")):
        if count >= size:
            return f"{count / size:.3g} {name} tokens"
    return f"{count:.0f} tokens"
