"""The claims as text: the Markdown table and the plain record of the JSON file."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from benchmarks.papers.claim import FAILS_AS_PRINTED, Check, Claim, Estimate, Family, Kind, Outcome
from benchmarks.papers.verdicts import RULE, agreement, named, verdict
from oversharp.reports.citations import references
from oversharp.reports.numbers import MINUS, decimal, listing

COLUMNS = ("claim", "where", "setting", "numbers (95 %)", "verdict", "independent", "agreement")
#: Every kind of verdict as a verb and as a heading, best first. Together they cover all claims.
KINDS: dict[Kind, tuple[str, str]] = {
    "holds": ("hold", "holds"),
    "holds when": ("hold in part", "holds in part"),
    FAILS_AS_PRINTED: ("fail as printed but hold corrected", FAILS_AS_PRINTED),
    "fails": ("fail", "fails"),
    "undecided": ("are undecided", "undecided"),
}
_MANY = 12  # number of settings with one outcome from which on a cell does not list them


def number(value: float) -> str:
    """Format a number: three decimals below 10, one below 1000.

    >>> number(0.12345), number(-1234.5), number(1.0), number(27.91), number(2e-5)
    ('0.123', '−1234', '1.000', '27.9', '2.0e−5')
    """
    size = abs(value)
    if size >= 1000:
        text = f"{value:.0f}"
    elif size and size < 1e-3:
        mantissa, exponent = f"{value:.1e}".split("e")
        text = f"{mantissa}e{int(exponent)}"
    else:
        text = f"{value:.{1 if size >= 10 else 3}f}"
    return text.replace("-", MINUS)


def together(*values: float) -> tuple[str, ...]:
    """Format numbers alike, with enough decimals to distinguish them.

    >>> together(-0.00046, -0.00064, -0.00027), together(11.0, 7.433, 14.5), together(0.0, 0.0, 0.0)
    (('−0.0005', '−0.0006', '−0.0003'), ('11.0', '7.4', '14.5'), ('0.000', '0.000', '0.000'))
    """
    size, width = max(abs(value) for value in values), max(values) - min(values)
    decimals = 0 if size >= 1000 else 1 if size >= 10 else 3
    if size < 10 and width:
        decimals = min(6, max(decimals, math.ceil(-math.log10(width / 2))))
    return tuple(decimal(value, decimals) for value in values)


def estimate_text(estimate: Estimate) -> str:
    """Format an estimate: ``0.985 [0.957, 0.997]``, an exact number alone, an unknown one as a dash."""
    if estimate.value is None:
        return "–"
    if estimate.low is None or estimate.high is None:
        return number(estimate.value)
    value, low, high = together(estimate.value, estimate.low, estimate.high)
    return f"{value} [{low}, {high}]"


def check_text(check: Check, setting: tuple[tuple[str, str], ...]) -> str:
    """Format one setting's number with its outcome.

    ``setting`` is the part of the setting that is not in the row's label.
    """
    where = ", ".join(named(factor, level) for factor, level in setting)
    told = told_text(check)
    beside = f" (independent {told})" if told else ""
    return f"{where}{': ' if where else ''}{estimate_text(check.estimate)}{beside} {_MARKS[check.outcome]}"


def told_text(check: Check) -> str:
    """Return the independent number or range; empty if there is none."""
    if check.independent is not None:
        return number(check.independent)
    if check.independent_range is None:
        return ""
    return " to ".join(dict.fromkeys(together(*check.independent_range)))


def range_text(checks: Sequence[Check]) -> str:
    """Summarise many settings: the range of their numbers, and counts of outcomes.

    Unknown numbers are not in the range.
    """
    values = [check.estimate.value for check in checks if check.estimate.value is not None]
    span = " to ".join(dict.fromkeys(together(min(values), max(values)))) if values else "–"
    counts = Counter(check.outcome for check in checks)
    found = [f"{counts[outcome]} of {len(checks)} {mark}" for outcome, mark in _MARKS.items() if counts[outcome]]
    return f"{span} over {len(checks)} settings, {', '.join(found)}"


_MARKS: dict[Outcome, str] = {"holds": "✓", "fails": "✗", "undecided": "?"}


def numbers_text(claim: Claim, *, between: str) -> str:
    """Return the quantity, its n, and the numbers, one line per level of the first factors."""
    spread = _counted(claim)
    quantities = list(dict.fromkeys(check.quantity for check in claim.checks))
    lines = []
    for quantity in quantities:
        own = [check for check in claim.checks if check.quantity == quantity]
        head = quantity if quantity != quantities[0] or not spread else f"{quantity}, {spread}"
        if len(own) == 1:
            lines.append(f"{head}: {check_text(own[0], own[0].setting)}")
            continue
        if len(own) >= _MANY and len({check.outcome for check in own}) == 1:
            lines.append(f"{head}: {range_text(own)}")
            continue
        lines.append(f"{head}:")
        for outer, checks in itertools.groupby(own, key=lambda check: check.setting[:-1]):
            known = ", ".join(named(factor, level) for factor, level in outer)
            numbers = "; ".join(check_text(check, check.setting[-1:]) for check in checks)
            lines.append(f"{known}: {numbers}" if known else numbers)
    return between.join(lines).replace(f":{between}", f": {between.strip('; ')}")


def _counted(claim: Claim) -> str:
    counts: dict[str, list[int]] = {}
    for check in claim.checks:
        if check.estimate.low is not None or check.estimate.of != "value":
            counts.setdefault(check.estimate.of, []).append(check.estimate.n)
    return ", ".join(
        f"{decimal(min(own), 0)} {of}"
        if min(own) == max(own)
        else f"{decimal(min(own), 0)} to {decimal(max(own), 0)} {of}"
        for of, own in counts.items()
    )


def rules_text(claim: Claim) -> str:
    """Return the rules of a claim's settings, each once."""
    return "; ".join(dict.fromkeys(check.rule.text for check in claim.checks))


def row(claim: Claim, *, between: str = "<br>") -> tuple[str, ...]:
    """Return the claim's cells, in the order of :data:`COLUMNS`."""
    setting = " ".join(part for part in (claim.setting, f"Rule: {rules_text(claim)}.", claim.note) if part)
    return (
        claim.statement,
        f"[{claim.paper}] {claim.place}",
        setting,
        numbers_text(claim, between=between),
        verdict(claim.checks).text,
        claim.independent.text if claim.independent else "",
        agreement(claim),
    )


def counts_text(claims: Sequence[Claim]) -> str:
    """Return the numbers of claims by verdict, in one phrase."""
    counted = kind_counts(claims)
    return ", ".join(f"{counted[kind]} {verb}" for kind, (verb, _) in KINDS.items() if counted[kind])


def kind_counts(claims: Sequence[Claim]) -> dict[Kind, int]:
    """Count the claims of each kind of verdict, zeros included."""
    counted = Counter(verdict(claim.checks).kind for claim in claims)
    return {kind: counted[kind] for kind in KINDS}


def scope_text(claims: Sequence[Claim]) -> str:
    """Return one sentence with the numbers of claims by kind of test."""
    drawn: dict[str, list[int]] = {"random instances": [], "seeds": [], "exactly": []}
    for claim in claims:
        estimates = [check.estimate for check in claim.checks]
        kinds = {"random instances" if e.of == "instances" else "seeds" for e in estimates if e.low is not None}
        for kind in kinds or {"exactly"}:
            drawn[kind].append(max(estimate.n for estimate in estimates))
    parts = []
    if seeds := drawn["seeds"]:
        parts.append(f"{len(seeds)} over {max(seeds)} seeds or random worlds")
    if instances := drawn["random instances"]:
        few, many = (decimal(n, 0) for n in (min(instances), max(instances)))
        parts.append(f"{len(instances)} on {few if few == many else f'{few} to {many}'} random instances")
    if exactly := drawn["exactly"]:
        parts.append(f"{len(exactly)} exactly (every case enumerated, or single numbers)")
    return f"Tested: {listing(tuple(parts))}."


def markdown(families: Sequence[Family]) -> str:
    """Return all claims, a table per family.

    Equal numbers give equal text.
    """
    claims = [claim for family in families for claim in family.claims]
    lines = [
        "# The papers' claims, run again",
        "",
        f"{len(claims)} claims: {counts_text(claims)}. ✓ holds, ✗ fails, ? undecided, per setting.",
        "",
        scope_text(claims) + " `papers.json` holds every number.",
        "",
        RULE,
        "",
        "*Independent* is what another implementation, written before this one, found for the same claim. *Agreement* "
        "compares the kind of verdict, and the numbers where that implementation gave some; not the conditions in "
        "words.",
        "",
        *(f"{line}  " for line in references()),
    ]
    for family in families:
        lines += ["", f"## {family.title}", "", family.setting, "", _line(COLUMNS), _line(["---"] * len(COLUMNS))]
        lines += [
            _line([_bold(cell) if name == "verdict" else cell for name, cell in zip(COLUMNS, row(claim), strict=True)])
            for claim in family.claims
        ]
    return "\n".join(lines) + "\n"


def records(families: Sequence[Family]) -> list[dict[str, Any]]:
    """Return all claims with full numbers, for ``papers.json``."""
    return [
        {
            "claim_id": claim.claim_id,
            "paper": claim.paper,
            "place": claim.place,
            "family": family.title,
            "statement": claim.statement,
            "setting": f"{family.setting} {claim.setting}".strip(),
            "verdict": verdict(claim.checks).kind,
            "verdict_text": verdict(claim.checks).text,
            "independent": claim.independent.text if claim.independent else None,
            "independent_verdict": claim.independent.kind if claim.independent else None,
            "agreement": agreement(claim) or None,
            "note": claim.note or None,
            "checks": [_check_record(check) for check in claim.checks],
        }
        for family in families
        for claim in family.claims
    ]


def _check_record(check: Check) -> dict[str, Any]:
    estimate = check.estimate
    return {
        "setting": dict(check.setting),
        "quantity": check.quantity,
        "value": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "n": estimate.n,
        "of": estimate.of,
        "unit": estimate.unit,
        "rule": check.rule.text,
        "outcome": check.outcome,
        "independent": check.independent,
        "independent_range": check.independent_range,
        "form": check.form,
    }


def _bold(text: str) -> str:
    """Return the verdict in bold, without its conditions."""
    first = FAILS_AS_PRINTED if text.startswith(FAILS_AS_PRINTED) else text.partition(" ")[0]
    return f"**{first}**{text[len(first) :]}"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
