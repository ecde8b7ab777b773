"""Prints the results of ``ship``, ``plan`` and ``confirm`` as tables on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from oversharp.diagnostics.records.amounts import plural, short_count, two_digits
from oversharp.diagnostics.records.cells import visible

if TYPE_CHECKING:
    from oversharp.diagnostics.audit.confirm import ConfirmResult
    from oversharp.diagnostics.audit.plan import Plan, PlantedLoss
    from oversharp.diagnostics.verdict.audit_sizes import PlannedAudit
    from oversharp.diagnostics.verdict.recommendation import BandedChange, OutBy, Recommendation, ShippingStep

#: How much of a problem is shown beside its id.
_PROMPT_CHARACTERS = 40
#: Columns of numbers and the widest text in each; the least that is left to the problem.
_NUMBERS = (("seemed", 6), ("base", 11), ("late", 11), ("p", 8), ("adjusted p", 10), ("confirmed", 9))
_LEAST_TEXT = 16
_ANY_WIDTH = 10_000
#: Of a checkpoint that there is no choosing; the reason stands below the table.
_UNJUDGED = "not to choose"


def print_shipping(result: Sequence[Recommendation], console: Console | None = None) -> None:
    """Which checkpoint to ship, and a row for every checkpoint with what it would trade."""
    from oversharp.diagnostics.verdict.shipping.words import alternatives_text, choice_text, step_text

    out = console or Console(highlight=False)
    if len(result) > 1:
        _say(
            out,
            f"{len(result)} recommendations, each sure by itself: base, problems, sampling or grader differ, "
            "and pass@k cannot be compared across those",
            "",
        )
    for place, said in enumerate(result):
        if place:
            _say(out, "")
        if len(result) > 1:
            _say(out, f"of {', '.join(said.series)}:")
        _say(out, said.sentence)
        if said.recommended is None:
            continue
        told = (_place(said.recommended), choice_text(said), alternatives_text(said))
        _say(out, *(line for line in told if line is not None), "")
        table = _shipping_table(said)
        # a terminal that is too narrow breaks lines of itself: rich would break every cell of the last column
        table.width = table.__rich_measure__(out, out.options.update(max_width=_ANY_WIDTH)).maximum
        out.print(table, crop=False)
        shown = {one.out_by for one in said.steps}
        _say(out, "", *(f"out, {name}: {what}" for by, (name, what) in _OUT.items() if by in shown))
        unjudged = [one for one in said.steps if one.role is None and one.why]
        _say(out, *(f"{_UNJUDGED}: {step_text(one, said.series)}, {one.why}" for one in unjudged))


#: In a few words, and in full below the table, why something is out.
_OUT: Mapping[OutBy | None, tuple[str, str]] = {
    "band": ("surely", "some pass@k fell, with all of its band below what is allowed"),
    "verdict": ("verdict", "its own test in the verdict shows a fall, which the band over all of these does not"),
    "estimate": ("estimate", "some pass@k fell by more than is allowed in the estimate, not surely"),
    "reach": ("unseen", "too few samples at that temperature to know pass@k at the largest k (--control-n)"),
    "veto": ("veto", "pass@k surely fell on the problems that had no part in the choice"),
}


def _place(one: ShippingStep) -> str | None:
    """Where the weights were when they were audited, and how to draw from them; None where nobody has seen them."""
    if one.path is None:
        return None
    drawn = "" if one.temperature is None else f"  (draw it at temperature {one.temperature:g})"
    gone = "" if Path(one.path).exists() else "  (its place when it was audited; nothing is there now)"
    return f"{one.path}{drawn}{gone}"


def _shipping_table(said: Recommendation) -> Table:
    several = len(said.series) > 1
    hotter = any(one.temperature is not None for one in said.steps)
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    if several:
        table.add_column("series", no_wrap=True)
    for heading in ("step", *(["T"] if hotter else []), "pass@1, points", "worst pass@k, points", "k"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for one in said.steps:
        mark = " ◀" if one.role == "recommended" else "  "
        drawn = [] if not hotter else ["" if one.temperature is None else f"{one.temperature:g}"]
        name = [] if not several else ["base" if one.is_base else escape(visible(one.series))]
        k = "" if one.worst is None else str(one.worst.k)
        cells = [f"{one.step}{mark}", *drawn, _traded(one.first), _traded(one.worst), k, escape(visible(_said_of(one)))]
        table.add_row(*name, *cells)
    return table


def _traded(change: BandedChange | None) -> str:
    from oversharp.diagnostics.verdict.record import bounds_text, signed_text

    if change is None:
        return ""
    return escape(f"{signed_text(change.change)}{bounds_text(change.low, change.high)}")


def _said_of(one: ShippingStep) -> str:
    """Why a checkpoint is out, in a word, or whether it may be the best."""
    if one.role == "out" and one.out_by is not None:
        return f"out, {_OUT[one.out_by][0]}"
    if one.role is None:
        return _UNJUDGED if one.why else ""
    return "" if one.may_be_best or one.role == "recommended" else "lower pass@1"


def print_plan(plan: Plan, console: Console | None = None) -> None:
    """Power and cost of every size that was considered, a row per number of problems, the cheapest marked."""
    out = console or Console(highlight=False)
    numbers_of_samples = sorted({audit.n for audit in plan.audits})
    by_size = {(audit.n_problems, audit.n): audit for audit in plan.audits}
    table = Table("problems", box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for n in numbers_of_samples:
        table.add_column(f"n = {n}", justify="right")
    for n_problems in sorted({audit.n_problems for audit in plan.audits}):
        cells = [_size(by_size[n_problems, n], plan.cheapest) for n in numbers_of_samples]
        table.add_row(f"{n_problems:,}", *cells)
    _say(
        out,
        f"series {plan.series}: power to find a fall of pass@{plan.k} by {_points(plan.drop)}, "
        f"from {100 * plan.base_pass_at_k:.1f} %",
        f"audits of {plural(plan.n_checkpoints, 'checkpoint')} after the base, the last {plan.window} pooled; "
        f"n samples per problem and checkpoint, 2n of the base; {_length(plan)}",
        "",
    )
    out.print(table)
    _say(
        out,
        f"each size: its power for {_laws(plan)}, known to 10 points or better, and below it all {_cost(plan)} drawn",
        *(_planted(one) for one in plan.planted),
        *_out_of_sight(plan),
        *_related(plan),
        "real losses scatter more and checkpoint-to-checkpoint churn is not simulated: the power is an upper estimate",
        "",
        _cheapest(plan),
        *_guessed(plan),
    )
    if plan.present is not None:
        present = plan.present
        _say(
            out,
            f"the audit in the store ({plural(present.n_problems, 'problem')}, n = {present.n}, "
            f"{present.n_base} of the base): power {_power(present)} for {_laws(plan)}",
        )


def print_confirmations(result: ConfirmResult, console: Console | None = None) -> None:
    """A row per problem that was drawn afresh, and how many of them are confirmed."""
    out = console or Console(highlight=False)
    if not result.tested:
        _say(out, f"series {result.series}: no problem seems lost or gained; there is nothing to draw again")
        return
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    # a number that is cut is another number: on a narrow terminal, or in a pipe, the problem's text gives way
    numbers_width = sum(width + 2 for _, width in _NUMBERS)
    text_width = max(_LEAST_TEXT, out.width - numbers_width - 2)
    table.add_column("problem", no_wrap=True)
    for name, width in _NUMBERS:
        table.add_column(name, justify="left" if name == "seemed" else "right", no_wrap=True, min_width=width)
    for problem, one in zip(result.problems, result.tested, strict=True):
        said = " ".join(problem.prompt.split())
        shown = said if len(said) <= _PROMPT_CHARACTERS else said[: _PROMPT_CHARACTERS - 1] + "…"
        table.add_row(
            escape(visible(f"{problem.source_id or problem.problem_id}  {shown}")[:text_width].rstrip()),
            one.change,
            f"{one.correct_base}/{one.n_base}",
            f"{one.correct_late}/{one.n_late}",
            f"{one.p:.2g}",
            f"{one.p_adjusted:.2g}",
            "yes" if one.confirmed else "no",
        )
    _say(
        out,
        f"series {result.series}, {result.checkpoint} against the base: {plural(result.fresh, 'fresh sample')} each",
        "",
    )
    out.print(table, width=text_width + 2 + numbers_width, crop=False)
    counted = [
        f"{sum(one.confirmed for one in result.tested if one.change == change)} of "
        f"{sum(one.change == change for one in result.tested)} {change}"
        for change in ("lost", "gained")
    ]
    gone = [one for one in result.tested if one.confirmed and one.change == "lost" and not one.correct_late]
    _say(
        out,
        "",
        f"confirmed: {', '.join(counted)} (Fisher's exact test, Holm over all, 5 %); "
        f"without any correct fresh sample at {result.checkpoint}: {len(gone)}",
    )
    if result.n_earlier:
        _say(out, f"{plural(result.n_earlier, 'problem')} not on this shortlist, tested before and so tested again")


def _size(audit: PlannedAudit, cheapest: PlannedAudit | None) -> str:
    mark = " ◀" if audit is cheapest else "  "
    return f"{_power(audit)}{mark}\n{_drawn(audit)}  "


def _drawn(audit: PlannedAudit) -> str:
    return short_count(audit.samples if audit.tokens is None else audit.tokens)


def _cost(plan: Plan) -> str:
    return "samples" if plan.tokens_per_sample is None else "tokens"


def _length(plan: Plan) -> str:
    if plan.tokens_per_sample is None:
        return "how many tokens a sample has is not known"
    return f"{plural(round(plan.tokens_per_sample), 'token')} per sample"


def _power(audit: PlannedAudit) -> str:
    return " / ".join(f"{_percent(one.power):>5}" for one in audit.by_law).strip()


def _laws(plan: Plan) -> str:
    laws = [one.law for one in plan.planted]
    if len(laws) == 1:
        other = "concentrated" if laws == ["diffuse"] else "diffuse"
        return f"a {laws[0]} loss (no {other} one takes that much)"
    return f"a {laws[0]} / a {laws[1]} loss"


def _cheapest(plan: Plan) -> str:
    cheapest = plan.cheapest
    both = " for both" if len(plan.planted) > 1 else ""
    if cheapest is None:
        return f"none of these reaches a power of {100 * plan.wanted:g} %{both}: name a larger --drop, or add problems"
    return (
        f"◀ cheapest with a power of {100 * plan.wanted:g} % or more{both}: {plural(cheapest.n_problems, 'problem')}, "
        f"n = {cheapest.n} ({cheapest.n_base} of the base), {_drawn(cheapest)} {_cost(plan)}"
    )


def _planted(loss: PlantedLoss) -> str:
    """What a loss does, in one line."""
    changes = ", ".join(f"{100 * one.change:+.1f} at k = {one.k}".replace("-", "\u2212") for one in loss.changes)
    what = "rarely solved problems become rarer, the others more frequent"
    if loss.share_lost is not None:
        what = f"{100 * loss.share_lost:.3g} % of the problems are never solved again, the others rise"
    return f"{loss.law}: {what}; pass@k in points: {changes}; the largest fall at k = {loss.k_largest}"


def _out_of_sight(plan: Plan) -> Iterator[str]:
    """The sizes that do not look at the named k."""
    for n, k_most in sorted({(one.n, one.k_most) for one in plan.audits if 2 * one.k_most <= plan.k}):
        yield f"n = {n} looks at k up to {k_most} alone: at pass@{plan.k} it sees nothing, only what is lost below"


def _related(plan: Plan) -> Iterator[str]:
    if plan.related is not None:
        yield (
            f"the problems of the store make up {plural(plan.related.n_clusters, 'cluster')}, and are planned as if "
            f"each lost on its own: up to {two_digits(plan.related.most_times)} times as many are needed, in more "
            "clusters, where those of a cluster rise and fall together"
        )


def _guessed(plan: Plan) -> Iterator[str]:
    """What becomes of the falls that the cheapest audit finds, else the one of the greatest power."""
    told = [f"{_percent(one.guessed)} of the {one.law} falls" for one in plan.planted if one.guessed]
    if told:
        yield (
            f"accepted guesses ({100 * plan.guess_rate:g} % of wrong answers, {plan.guess_source}) would explain "
            f"{' and '.join(told)} that {'it' if plan.cheapest else 'the best of them'} finds: their label is guessing "
            "unless the grader is known to accept fewer (--guess-rate)"
        )


def _percent(power: float) -> str:
    """Simulated powers are never certain.

    >>> _percent(1.0), _percent(0.804), _percent(0.0)
    ('>99 %', '80 %', '<1 %')
    """
    if power > 0.99:
        return ">99 %"
    return "<1 %" if power < 0.01 else f"{100 * power:.0f} %"


def _points(probability: float) -> str:
    points = f"{100 * probability:g}"
    return f"{points} point" if points == "1" else f"{points} points"


def _say(out: Console, *lines: str) -> None:
    for line in lines:
        out.print(visible(line), markup=False, soft_wrap=True)
