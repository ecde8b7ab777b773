"""Find differences in problems, graders and sampling settings. Series with such differences are not comparable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from oversharp.diagnostics.verifiers.names import listed_graders
from oversharp.reports import numbers
from oversharp.reports.evidence.source import SeriesSource

#: Settings that may differ between compared series. A seed does not change the sampled distribution.
_FREE = frozenset({"seed"})
#: Maximum length of a value in a sentence, in characters. Longer values are shortened.
_LONGEST = 60
_SAMPLING = (
    "sampler",
    "temperature",
    "top_p",
    "top_k",
    "max_tokens",
    "prompt_template",
    "system_prompt",
    "chat",
    "seed",
    "dtype",
    "environment",
    "max_turns",
)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Setting that differs between series, with its value in each series."""

    field: str
    values: tuple[tuple[str, str], ...]

    @property
    def text(self) -> str:
        """Name of the setting and its values, for a sentence.

        >>> Difference(field="temperature", values=(("grpo", "1"), ("iac", "0.6"))).text
        'temperature: grpo 1, iac 0.6'
        """
        return f"{self.field}: {', '.join(f'{series} {value}' for series, value in self.values)}"


def find_differences(series: Sequence[SeriesSource]) -> tuple[Difference, ...]:
    """Return the sampling settings, graders and problem sets that differ between ``series``, in this order."""
    candidates = [
        _difference(name, series, [_setting_text(member.settings.get(name)) for member in series])
        for name in _SAMPLING
        if name not in _FREE
    ]
    candidates.append(_difference("graders", series, [listed_graders(member.graders) for member in series]))
    if len({member.problem_ids for member in series}) > 1:
        shared = len(frozenset.intersection(*(member.problem_ids for member in series)))
        values = [f"{numbers.plural(len(member.problem_ids), 'problem')} ({shared} shared)" for member in series]
        candidates.append(Difference(field="problems", values=_by_name(series, values)))
    return tuple(difference for difference in candidates if difference is not None)


def select_comparable(series: Sequence[SeriesSource]) -> tuple[SeriesSource, ...]:
    """Return the series that may be compared; empty if no two series were graded in the same way.

    They are all graded by each problem's own verifier, or all by one other verifier (`oversharp regrade`). A regraded
    series has the samples of another series, so comparing these two would not compare two runs.
    """
    ways = sorted({member.verifier for member in series}, key=lambda verifier: verifier or "")
    groups = [tuple(member for member in series if member.verifier == way) for way in ways]
    several = [group for group in groups if len(group) > 1]
    return next((group for group in several if not find_differences(group)), several[0] if several else ())


def differences_text(series: Sequence[SeriesSource]) -> str:
    """Return the differences of the audit settings as a clause, or "" if there are none."""
    unequal = find_differences(select_comparable(series))
    return (
        f"the series were audited with different settings: {'; '.join(difference.text for difference in unequal)}"
        if unequal
        else ""
    )


def _difference(name: str, series: Sequence[SeriesSource], values: Sequence[str]) -> Difference | None:
    return Difference(field=name, values=_by_name(series, values)) if len(set(values)) > 1 else None


def _by_name(series: Sequence[SeriesSource], values: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return tuple((member.name, value) for member, value in zip(series, values, strict=True))


def _setting_text(value: Any) -> str:
    if value is None:
        return numbers.UNKNOWN
    if isinstance(value, float):
        return f"{value:g}"
    text = str(value)
    is_plain = bool(text) and not any(character.isspace() for character in text)
    return text if is_plain else repr(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")
