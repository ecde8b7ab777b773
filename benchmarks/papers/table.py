"""The claims as text: the Markdown table and the plain record of the JSON file."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

from benchmarks.papers.claim import Check, Claim, Estimate, Family
from benchmarks.papers.verdicts import RULE, agreement, named, verdict
from reports.citations import key
from reports.numbers import MINUS

COLUMNS = ("claim", "where", "setting", "numbers (95 %)", "verdict", "independent", "agreement")
_KINDS = {"holds": "hold", "holds when": "hold in part", "fails": "fail", "undecided": "undecided"}


def number(value: float) -> str:
    """Three decimals below 10, one below 1000.

    >>> number(0.12345), number(-1234.5), number(1.0), number(27.91), number(2e-5)
    ('0.123', '−1234', '1.000', '27.9', '2.0e-05')
    """
    size = abs(value)
    if size >= 1000:
        text = f"{value:.0f}"
    elif size and size < 1e-3:
        text = f"{value:.1e}"
    else:
        text = f"{value:.{1 if size >= 10 else 3}f}"
    return text.replace("-", MINUS) if "e" not in text else text


def estimate_text(estimate: Estimate) -> str:
    """``0.985 [0.957, 0.997]``; an exact number stands alone, an unknown one is a dash."""
    if estimate.value is None:
        return "–"
    if estimate.low is None or estimate.high is None:
        return number(estimate.value)
    return f"{number(estimate.value)} [{number(estimate.low)}, {number(estimate.high)}]"


def check_text(check: Check, setting: tuple[tuple[str, str], ...]) -> str:
    """One setting's number, with its outcome; ``setting`` is what of the setting the reader does not know yet."""
    where = ", ".join(named(factor, level) for factor, level in setting)
    beside = "" if check.independent is None else f" (independent {number(check.independent)})"
    return f"{where}{': ' if where else ''}{estimate_text(check.estimate)}{beside} {_MARKS[check.outcome]}"


_MARKS = {"holds": "✓", "fails": "✗", "undecided": "?"}


def numbers_text(claim: Claim, *, between: str) -> str:
    """What was measured and on how many, then the numbers, one line per level of the first factors."""
    spread = _counted(claim)
    quantities = list(dict.fromkeys(check.quantity for check in claim.checks))
    lines = []
    for quantity in quantities:
        own = [check for check in claim.checks if check.quantity == quantity]
        head = quantity if quantity != quantities[0] or not spread else f"{quantity}, {spread}"
        if len(own) == 1:
            lines.append(f"{head}: {check_text(own[0], own[0].setting)}")
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
        f"{min(own)} {of}" if min(own) == max(own) else f"{min(own)} to {max(own)} {of}" for of, own in counts.items()
    )


def rules_text(claim: Claim) -> str:
    """The rules that decide a claim's settings, each once."""
    return "; ".join(dict.fromkeys(check.rule.text for check in claim.checks))


def row(claim: Claim, *, between: str = "<br>") -> tuple[str, ...]:
    """The claim's cells, in the order of :data:`COLUMNS`."""
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
    """How many claims came to which verdict, in one phrase."""
    counted: Counter[str] = Counter(verdict(claim.checks).kind for claim in claims)
    return ", ".join(f"{counted[kind]} {word}" for kind, word in _KINDS.items() if counted[kind])


def markdown(families: Sequence[Family]) -> str:
    """All claims, a table per family. The same numbers give the same text."""
    claims = [claim for family in families for claim in family.claims]
    lines = [
        "# The papers' claims, run again",
        "",
        f"{len(claims)} claims: {counts_text(claims)}. ✓ holds, ✗ fails, ? undecided, per setting.",
        "",
        RULE,
        "",
        "*Independent* is what another implementation, written before this one, found for the same claim.",
        "",
        *(f"{line}  " for line in key()),
    ]
    for family in families:
        lines += ["", f"## {family.title}", "", family.setting, "", _line(COLUMNS), _line(["---"] * len(COLUMNS))]
        lines += [
            _line([_bold(cell) if name == "verdict" else cell for name, cell in zip(COLUMNS, row(claim), strict=True)])
            for claim in family.claims
        ]
    return "\n".join(lines) + "\n"


def records(families: Sequence[Family]) -> list[dict[str, Any]]:
    """All claims with full numbers, for ``papers.json``."""
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
    }


def _bold(text: str) -> str:
    """The first word bold."""
    first, _, rest = text.partition(" ")
    return f"**{first}** {rest}".strip()


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
