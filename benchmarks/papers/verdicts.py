"""Compute the verdict of a claim from its settings, and compare it with an independent implementation."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.papers.claim import FAILS_AS_PRINTED, PART, Check, Claim, Never, Verdict
from oversharp.reports.numbers import listing

#: Seeds of every number of the independent implementation.
INDEPENDENT_SEEDS = 200
#: Two-sided 99 %: many numbers are compared, and at 95 % one in twenty would differ by chance.
_Z = 2.576
_ROUNDING = 0.005  # of a reported share

RULE = (
    "A setting holds or fails where the 95 % interval of its number lies on one side of the threshold, and is "
    "undecided where the threshold lies inside; a universal statement fails at one counterexample, and with it a "
    "statement of which it is a part. A number without an interval is exact. A claim holds if all its settings hold, "
    "fails if none holds and one fails at least, holds when … (or for …, a part of the statement) if some hold, and "
    "is undecided if nothing is decided. Where a corrected form is tested beside the printed one, it earns the printed "
    "one nothing: the claim fails as printed, holds corrected if a printed form fails and all corrected ones hold."
)


def verdict(checks: Sequence[Check]) -> Verdict:
    """Return the verdict that follows from the checks, by :data:`RULE`."""
    printed = [check for check in checks if check.form == "printed"]
    corrected = [check for check in checks if check.form == "corrected"]
    if not corrected:
        return _of_one_form(checks)
    if not any(check.outcome == "fails" for check in printed):
        return _of_one_form(printed)
    if all(check.outcome == "holds" for check in corrected):
        forms = tuple(dict.fromkeys(dict(check.setting)[PART] for check in corrected))
        return Verdict(kind=FAILS_AS_PRINTED, condition=listing(forms))
    return Verdict(kind="fails", elsewhere=_elsewhere(checks))


def _of_one_form(checks: Sequence[Check]) -> Verdict:
    holding = [check for check in checks if check.outcome == "holds"]
    if len(holding) == len(checks):
        return Verdict(kind="holds")
    of_parts = PART in dict(checks[0].setting)
    if of_parts and any(isinstance(check.rule, Never) and check.outcome == "fails" for check in checks):
        only = f"holds for {condition(holding, checks)}, " if holding else ""
        return Verdict(kind="fails", elsewhere=only + _elsewhere(checks) if only or _mixed(checks) else "")
    if holding:
        positive, negative = condition(holding, checks), condition([c for c in checks if c not in holding], checks)
        return Verdict(
            kind="holds when",
            condition=min(positive, negative, key=len),
            excluded=len(negative) < len(positive),
            elsewhere=_elsewhere(checks),
            of_parts=of_parts,
        )
    if all(check.outcome == "undecided" for check in checks):
        return Verdict(kind="undecided")
    return Verdict(kind="fails", elsewhere=_elsewhere(checks) if _mixed(checks) else "")


def _mixed(checks: Sequence[Check]) -> bool:
    return any(check.outcome != "fails" for check in checks)


def _elsewhere(checks: Sequence[Check]) -> str:
    counts = Counter(check.outcome for check in checks)
    found = [f"{kind} in {counts[kind]}" for kind in ("fails", "undecided") if counts[kind]]
    return f"{', '.join(found)} of {len(checks)}"


def condition(holding: Sequence[Check], checks: Sequence[Check]) -> str:
    """Describe the settings of ``holding`` exactly: one restriction per factor, or a list."""
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
    """Return ``G = 8``, or only the level for parts and for a factor without a name.

    >>> named("G", "8"), named("", "raw")
    ('G = 8', 'raw')
    """
    return level if factor in ("", PART) else f"{factor} = {level}"


def agreement(claim: Claim) -> str:
    """Return ``agrees``, or how many numbers and which verdict differ; empty without a report."""
    compared = [check for check in claim.checks if _is_told(check)]
    apart = [check for check in compared if not same_share(check)]
    if claim.independent is None and not compared:
        return ""
    differs = _other_verdict(claim)
    why = f": {claim.independent.why_apart}" if claim.independent and claim.independent.why_apart else ""
    if differs:
        return f"{differs}{why}"
    if apart:
        among = f" in {len(apart)} of {len(compared)} numbers" if len(compared) > 1 else ""
        return f"same verdict, other share{among}{why}"
    undecided = sum(check.outcome == "undecided" for check in claim.checks)
    if claim.independent is not None and claim.independent.kind != verdict(claim.checks).kind:
        return f"agrees but for {undecided} of {len(claim.checks)} settings, undecided here"
    return "agrees"


def _other_verdict(claim: Claim) -> str:
    """Return which verdicts differ.

    Settings that are undecided only here do not change the verdict.
    """
    kind = verdict(claim.checks).kind
    if claim.independent is None or claim.independent.kind == kind:
        return ""
    fails = any(check.outcome == "fails" for check in claim.checks)
    if claim.independent.kind == "holds" and kind == "holds when" and not fails:
        return ""
    return f"verdict differs: {claim.independent.kind} there, {kind} here"


def _is_told(check: Check) -> bool:
    return check.independent is not None or check.independent_range is not None


def same_share(check: Check) -> bool:
    """Return whether our share and the independent one differ by chance alone: 99 % over 200 seeds.

    For a range of unknown n: whether our interval and that range overlap.
    """
    if check.estimate.value is None or not _is_told(check):
        return False
    if check.independent is None:
        return _meets(check)
    n, m = check.estimate.n, INDEPENDENT_SEEDS
    # one success and one failure added to each (Agresti–Caffo), so that shares of 0 and 1 have a variance
    ours = (check.estimate.value * n + 1) / (n + 2)
    theirs = (check.independent * m + 1) / (m + 2)
    se = math.sqrt(ours * (1 - ours) / (n + 2) + theirs * (1 - theirs) / (m + 2))
    return abs(ours - theirs) <= _Z * se + _ROUNDING


def _meets(check: Check) -> bool:
    assert check.independent_range is not None
    assert check.estimate.value is not None
    low = check.estimate.value if check.estimate.low is None else check.estimate.low
    high = check.estimate.value if check.estimate.high is None else check.estimate.high
    return low <= check.independent_range[1] + _ROUNDING and high >= check.independent_range[0] - _ROUNDING


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
