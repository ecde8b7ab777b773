"""The verdict of one series as the top of its card: label, sentence, how far it reaches, and what it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from oversharp.diagnostics.verdict.headings import VerdictLabel
from oversharp.diagnostics.verdict.record import Remedy, Verdict
from oversharp.diagnostics.verdict.rule import MARGIN
from oversharp.diagnostics.verdict.shipping.words import alternatives_text
from oversharp.diagnostics.verdict.words.sentence import share_text, sharpening_text
from oversharp.diagnostics.verifiers.names import correct_means
from oversharp.reports import numbers
from oversharp.reports.evidence.source import SeriesSource
from oversharp.reports.records import VerdictText
from oversharp.reports.sections.verdict_tables import tables

NO_VERDICT = (
    "No verdict: this audit was made before verdicts were written. Run the same audit again; what was sampled is kept."
)
#: A sign and a tone for every label, so that neither colour nor word stands alone.
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
    """The verdict of ``series`` in words, or why there is none; ``first`` is pass@1 by step, the base's too."""
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
    lines[0] += " Nothing is said about larger k."
    lines.append(
        f"Scope: one training seed; {correct_means(verdict.graders)}; {numbers.plural(verdict.n_problems, 'problem')}"
        + (" and the population they were sampled from." if verdict.attributes.scope == "population" else ".")
    )
    return tuple(lines)


def _overturn(verdict: Verdict, series: SeriesSource) -> str:
    """What would change the verdict, from its own data; empty where there is nothing to overturn."""
    how = "oversharp confirm draws them for the problems that seem lost"
    if series.is_recorded:
        how = "import more of them, or audit the checkpoints with oversharp audit"
    elif series.verifier is not None:
        how = "oversharp confirm draws them for the series that was graded first"
    fresh = f"fresh samples of the base and the late checkpoints that do not show the loss ({how})"
    seed = "a second training seed that does not lose it"
    match verdict.label:
        case "over_sharpened":
            return f"{fresh}, or {seed}."
        case "over_sharpened_here":
            more = "Whether the population lost it too takes an audit of more problems"
            return f"{fresh}, or {seed}. {more}."
        case "degraded":
            return f"{fresh}, or {seed}."
        case "format":
            return (
                "samples that end and that the grader can parse: audit again with a larger --max-tokens, or grade "
                "again with oversharp regrade. A loss that remains was not caused by the format."
            )
        case "guessing":
            return _guessing(verdict)
        case "lost_at_steps":
            more = "import more of them" if series.is_recorded else "the same audit with a larger --n draws them"
            return f"more samples of the base and of these checkpoints that do not show the loss ({more}), or {seed}."
        case "mode_collapse":
            beyond = f"Falls of pass@k beyond k = {verdict.k_most} are not tested"
            return f"{fresh}, or {seed}. {beyond}: plan a larger audit with oversharp plan."
        case "no_loss":
            return (
                f"a fall at k above {verdict.k_most}, which this audit does not test: plan a larger one with oversharp "
                f"plan. A fall of less than {numbers.decimal(100 * MARGIN, 0)} points is not excluded."
            )
        case "inconclusive":
            return _settling(verdict)
        case _:
            return ""


def _guessing(verdict: Verdict) -> str:
    """Return how to tell a loss from false accepts."""
    found = verdict.explanation
    below = "" if found is None or found.guess_rate is None else f" below {share_text(found.guess_rate)}"
    return (
        "a grader with fewer false accepts (oversharp regrade), or a measured rate of false accepts of this grader"
        f"{below}, given with --guess-rate: then it is a loss."
    )


def _ship(verdict: Verdict) -> str:
    """Which checkpoint to ship, of all series that were compared; empty without one, and in verdicts of before."""
    said = verdict.shipping
    if said is None or said.recommended is None:
        return ""
    others = alternatives_text(said)
    of = f"Of {numbers.listing(said.series)} together: " if len(said.series) > 1 else ""
    return f"{of}{said.sentence}" + (f" {others[0].upper()}{others[1:]}." if others else "")


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
    base = "" if remedy.n_base == remedy.n else f" and {numbers.decimal(remedy.n_base, 0)} of the base"
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
