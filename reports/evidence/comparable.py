"""What must be equal before two series are compared: problems, graders, and how their responses were drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from oversharp.diagnostics.verifiers.names import listed_graders
from oversharp.reports import numbers
from oversharp.reports.evidence.source import SeriesSource

#: A seed picks the samples, not what they are samples of.
_FREE = frozenset({"seed"})
#: Of a template in a sentence.
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
)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A field that is not the same for all series, with what each has."""

    field: str
    values: tuple[tuple[str, str], ...]

    @property
    def text(self) -> str:
        """The field and its values in words.

        >>> Difference(field="temperature", values=(("grpo", "1"), ("iac", "0.6"))).text
        'temperature: grpo 1, iac 0.6'
        """
        return f"{self.field}: {', '.join(f'{series} {value}' for series, value in self.values)}"


def differences(series: Sequence[SeriesSource]) -> tuple[Difference, ...]:
    """Sampling settings, graders and problem sets that differ between ``series``, in this order."""
    found = [
        _difference(name, series, [_shown(one.settings.get(name)) for one in series])
        for name in _SAMPLING
        if name not in _FREE
    ]
    found.append(_difference("graders", series, [listed_graders(one.graders) for one in series]))
    if len({one.problem_ids for one in series}) > 1:
        shared = len(frozenset.intersection(*(one.problem_ids for one in series)))
        values = [f"{numbers.plural(len(one.problem_ids), 'problem')} ({shared} shared)" for one in series]
        found.append(Difference(field="problems", values=_by_name(series, values)))
    return tuple(difference for difference in found if difference is not None)


def comparable(series: Sequence[SeriesSource]) -> tuple[SeriesSource, ...]:
    """Those of ``series`` that may be compared: under each problem's own verifier, or all under the same other one.

    Samples that were graded again are no further run. Empty where no two series are graded in one way.
    """
    ways = sorted({one.verifier for one in series}, key=lambda verifier: verifier or "")
    groups = [tuple(one for one in series if one.verifier == way) for way in ways]
    several = [group for group in groups if len(group) > 1]
    return next((group for group in several if not differences(group)), several[0] if several else ())


def not_alike(series: Sequence[SeriesSource]) -> str:
    """What differs between ``series`` beside their training, as the end of a sentence; empty where nothing does."""
    found = differences(comparable(series))
    return f"the series were not audited alike: {'; '.join(one.text for one in found)}" if found else ""


def _difference(name: str, series: Sequence[SeriesSource], values: Sequence[str]) -> Difference | None:
    return Difference(field=name, values=_by_name(series, values)) if len(set(values)) > 1 else None


def _by_name(series: Sequence[SeriesSource], values: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return tuple((one.name, value) for one, value in zip(series, values, strict=True))


def _shown(value: Any) -> str:
    if value is None:
        return numbers.UNKNOWN
    if isinstance(value, float):
        return f"{value:g}"
    text = str(value)
    is_plain = bool(text) and not any(character.isspace() for character in text)
    return text if is_plain else repr(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")
