"""From the outcomes of a claim's settings to its verdict, and whether an independent implementation agrees."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.papers.claim import PART, Check, Claim, Verdict

#: Seeds behind every number of the independent implementation.
INDEPENDENT_SEEDS = 200
#: Two-sided 99 %: many numbers are compared, and at 95 % one in twenty would differ by chance.
_Z = 2.576

RULE = (
    "A setting holds or fails where the 95 % interval of its number lies on one side of the threshold, and is "
    "undecided where the threshold lies inside; a universal statement fails at one counterexample. A claim holds if "
    "all its settings hold, fails if none holds and one fails at least, holds when … (or for …, a part of the "
    "statement) if some hold, and is undecided if nothing is decided."
)


def verdict(checks: Sequence[Check]) -> Verdict:
    """The verdict that follows from the checks, by :data:`RULE`."""
    holding = [check for check in checks if check.outcome == "holds"]
    if len(holding) == len(checks):
        return Verdict(kind="holds")
    if holding:
        positive, negative = condition(holding, checks), condition([c for c in checks if c not in holding], checks)
        return Verdict(
            kind="holds when",
            condition=min(positive, negative, key=len),
            excluded=len(negative) < len(positive),
            elsewhere=_elsewhere(checks),
            of_parts=PART in dict(checks[0].setting),
        )
    if all(check.outcome == "undecided" for check in checks):
        return Verdict(kind="undecided")
    return Verdict(kind="fails", elsewhere=_elsewhere(checks) if any(c.outcome != "fails" for c in checks) else "")


def _elsewhere(checks: Sequence[Check]) -> str:
    counts = Counter(check.outcome for check in checks)
    found = [f"{kind} in {counts[kind]}" for kind in ("fails", "undecided") if counts[kind]]
    return f"{', '.join(found)} of {len(checks)}"


def condition(holding: Sequence[Check], checks: Sequence[Check]) -> str:
    """An exact description of the settings of ``holding``: one restriction per factor, or a list."""
    factors = [factor for factor, _ in checks[0].setting]
    levels = [_levels(checks, i) for i in range(len(factors))]
    held = [_levels(holding, i) for i in range(len(factors))]
    settings = {_key(check) for check in checks}
    if settings & set(itertools.product(*held)) == {_key(check) for check in holding}:
        parts = [
            named(factor, _listing(own))
            for factor, own, every in zip(factors, held, levels, strict=True)
            if len(own) < len(every)
        ]
        return " and ".join(parts)
    first = {level: [check for check in holding if check.setting[0][1] == level] for level in held[0]}
    return "; ".join(
        named(factors[0], level) + (f" ({inner})" if (inner := condition(own, _with_level(checks, level))) else "")
        for level, own in ((level, [_without_first(check) for check in found]) for level, found in first.items())
    )


def named(factor: str, level: str) -> str:
    """``G = 8``; parts, and levels of a factor without a name, speak for themselves.

    >>> named("G", "8"), named("", "raw")
    ('G = 8', 'raw')
    """
    return level if factor in ("", PART) else f"{factor} = {level}"


def agreement(claim: Claim) -> str:
    """``agrees``, or in how many numbers and which verdict it does not; empty where nothing was reported."""
    compared = [check for check in claim.checks if check.independent is not None]
    apart = [check for check in compared if not same_share(check)]
    if claim.independent is None and not compared:
        return ""
    parts = []
    if claim.independent is not None and claim.independent.kind != (kind := verdict(claim.checks).kind):
        undecided = sum(check.outcome == "undecided" for check in claim.checks)
        if claim.independent.kind == "holds" and kind == "holds when" and not _fails(claim):
            parts.append(f"agrees but for {undecided} of {len(claim.checks)} settings, undecided here")
        else:
            parts.append(f"verdict differs: {claim.independent.kind} there, {kind} here")
    if apart:
        parts.append(f"{len(apart)} of {len(compared)} numbers differ beyond chance (99 %)")
    return "; ".join(parts) or "agrees"


def _fails(claim: Claim) -> bool:
    return any(check.outcome == "fails" for check in claim.checks)


def same_share(check: Check) -> bool:
    """Whether two shares, ours and the independent one over 200 seeds, differ by chance alone (99 %)."""
    if check.independent is None or check.estimate.value is None:
        return False
    n, m = check.estimate.n, INDEPENDENT_SEEDS
    # One success and one failure added to each (Agresti–Caffo): shares of 0 and 1 have a spread too.
    ours = (check.estimate.value * n + 1) / (n + 2)
    theirs = (check.independent * m + 1) / (m + 2)
    se = math.sqrt(ours * (1 - ours) / (n + 2) + theirs * (1 - theirs) / (m + 2))
    rounding = 0.005  # of the reported number
    return abs(ours - theirs) <= _Z * se + rounding


def _levels(checks: Sequence[Check], i: int) -> list[str]:
    return list(dict.fromkeys(check.setting[i][1] for check in checks))


def _key(check: Check) -> tuple[str, ...]:
    return tuple(level for _, level in check.setting)


def _with_level(checks: Sequence[Check], level: str) -> list[Check]:
    return [_without_first(check) for check in checks if check.setting[0][1] == level]


def _without_first(check: Check) -> Check:
    return replace(check, setting=check.setting[1:])


def _listing(levels: Sequence[str]) -> str:
    return levels[0] if len(levels) == 1 else f"{', '.join(levels[:-1])} or {levels[-1]}"
