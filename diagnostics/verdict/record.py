"""The verdict on a series: one label, one sentence, and everything that they rest on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from html import escape
from typing import Literal

from diagnostics.statistics.rule import MARGIN, Label

#: ``no_verdict``: nothing could be compared, ``why`` says why.
VerdictLabel = Label | Literal["no_verdict"]

#: What each label is called in sentences, the report and on the command line.
TITLES: Mapping[VerdictLabel, str] = {
    "over_sharpened": "Over-sharpened",
    "over_sharpened_here": "Over-sharpened on these problems",
    "mode_collapse": "Mode collapse",
    "no_loss": "No loss found",
    "inconclusive": "Inconclusive",
    "no_verdict": "No verdict",
}
#: A rate of cut-off, unread or timed-out samples that rose by more than this (probability) may pass for lost modes.
NOTABLE_RISE = 0.01


@dataclass(frozen=True, kw_only=True)
class ChangeAtK:
    """pass@k of the base and of the late window, and their paired difference with its 95 % interval; probabilities."""

    k: int
    base: float
    late: float
    change: float
    low: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A number with the bounds of its 95 % interval; None where a bound, or the number, lies outside the data."""

    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Shares of a checkpoint's samples that look like lost modes and are not: cut off, not parsed, out of time.

    ``truncated`` is of those samples that tell why they ended, None where none does.
    """

    step: int
    checkpoint: str
    truncated: float | None
    not_parsed: float
    timed_out: float


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """What would settle it: the audit that finds a fall of ``drop`` (probability) with 80 % power, and its cost.

    ``tokens`` is None where nobody knows how long the samples were.
    """

    drop: float
    n_problems: int
    n: int
    n_base: int
    tokens: float | None


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What an audit concludes about one series.

    ``window`` are the steps of the late checkpoints, the last third: the tests pool their samples, ``changes`` and
    ``k_star`` are means over them. ``n_base`` and ``n_late`` are samples per problem, the second summed over the
    window. The verdict holds for k = 1 … ``k_most``. ``k_star`` is where pass@k of the window falls below the base
    for good. ``detected_by`` and ``decline_began`` (steps) are given after a positive verdict alone. ``caveats``
    are sentences about what may mislead in this very series.
    """

    series: str
    label: VerdictLabel
    sentence: str
    why: str | None = None
    p_exact: float | None = None
    p_population: float | None = None
    p_minority: float | None = None
    modes_collapsed: bool = False
    n_problems: int = 0
    n_minority_problems: int = 0
    n_base: int = 0
    n_late: int = 0
    window: tuple[int, ...] = ()
    k_most: int | None = None
    changes: tuple[ChangeAtK, ...] = ()
    least_change: float | None = None
    k_star: Estimate | None = None
    detected_by: int | None = None
    decline_began: Estimate | None = None
    rates: tuple[Rates, ...] = ()
    graders: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()
    remedy: Remedy | None = None

    @property
    def title(self) -> str:
        """The label in words."""
        return TITLES[self.label]

    @property
    def positive(self) -> bool:
        """Whether something was lost."""
        return self.label in ("over_sharpened", "over_sharpened_here", "mode_collapse")

    def to_json(self) -> str:
        """All fields as one JSON object; ``from_json`` gives an equal verdict."""
        return json.dumps(asdict(self), ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Verdict:
        """The verdict that ``to_json`` wrote. Raises ``ValueError`` for anything else."""
        fields = json.loads(text)
        try:
            nested = {
                "window": tuple(fields["window"]),
                "changes": tuple(ChangeAtK(**change) for change in fields["changes"]),
                "k_star": None if fields["k_star"] is None else Estimate(**fields["k_star"]),
                "decline_began": None if fields["decline_began"] is None else Estimate(**fields["decline_began"]),
                "rates": tuple(Rates(**rates) for rates in fields["rates"]),
                "graders": tuple(fields["graders"]),
                "caveats": tuple(fields["caveats"]),
                "remedy": None if fields["remedy"] is None else Remedy(**fields["remedy"]),
            }
            return cls(**{**fields, **nested})
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a verdict: {error}") from error

    def _repr_html_(self) -> str:
        """What a notebook shows: the sentence, pass@k of base and window, and the caveats."""
        rows = "".join(
            f"<tr><td>{change.k}</td><td>{change.base:.3f}</td><td>{change.late:.3f}</td>"
            f"<td>{_signed(change.change)}{_bounds(change.low, change.high)}</td></tr>"
            for change in self.changes
        )
        table = (
            "<table><thead><tr><th>k</th><th>pass@k, base</th><th>pass@k, late</th><th>change, points</th></tr></thead>"
            f"<tbody>{rows}</tbody></table>"
        )
        caveats = "".join(f"<li>{escape(caveat)}</li>" for caveat in self.caveats)
        return (
            f"<div><p><strong>{escape(self.series)}</strong> {escape(self.sentence)}</p>"
            f"{table if rows else ''}{f'<ul>{caveats}</ul>' if caveats else ''}</div>"
        )


def sentence_of(verdict: Verdict) -> str:
    """The verdict in one sentence, from its other fields: what, how much, when, on which problems, up to which k.

    Falls and rises of pass@k are in points (hundredths of probability), with the paired 95 % interval over problems of
    a fall in brackets: that of its own k, not corrected for the choice of the largest.

    >>> fall = ChangeAtK(k=64, base=0.8, late=0.7, change=-0.1, low=-0.125, high=-0.075)
    >>> late = {"n_problems": 90, "n_base": 128, "n_late": 256, "window": (40, 60), "k_most": 64}
    >>> sentence_of(Verdict(series="run", label="over_sharpened", sentence="", changes=(fall,), **late))
    'Over-sharpened: up to k = 64, pass@k fell below the base, most at k = 64: by 10.0 points [7.5, 12.5] in the last
    third of this one training run (steps 40–60), on these 90 problems and on problems like them.'
    """
    if verdict.label == "no_verdict":
        return f"{verdict.title}: {verdict.why}."
    said = {
        "over_sharpened": _over_sharpened,
        "over_sharpened_here": _over_sharpened,
        "mode_collapse": _mode_collapse,
        "no_loss": _no_loss,
        "inconclusive": _inconclusive,
    }[verdict.label](verdict)
    title = TITLES["over_sharpened"] if verdict.label == "over_sharpened_here" else verdict.title
    return f"{title}: up to k = {verdict.k_most}, {said}."


def largest_fall(changes: tuple[ChangeAtK, ...]) -> ChangeAtK | None:
    """The change at the k where pass@k fell most; None where it fell at no k."""
    least = min(changes, key=lambda change: change.change, default=None)
    return None if least is None or least.change >= 0 else least


def _over_sharpened(verdict: Verdict) -> str:
    fall = largest_fall(verdict.changes)
    most = ""
    if fall is not None:
        # an interval over problems says nothing about these very problems
        interval = ""
        if verdict.label != "over_sharpened_here" and fall.low is not None and fall.high is not None:
            interval = _bounds(-fall.high, -fall.low)
        most = f", most at k = {fall.k}: by {_points(-fall.change)} points{interval}"
    where = f"on {_problems(verdict)} and on problems like them"
    if verdict.label == "over_sharpened_here":
        where = f"on {_problems(verdict)} (whether on others like them, the data cannot say)"
    also = "; correct answers outside each problem's dominant mode were lost too" if verdict.modes_collapsed else ""
    return f"pass@k fell below the base{most} {_when(verdict)}, {where}{_first_change(verdict)}{also}"


def _mode_collapse(verdict: Verdict) -> str:
    held = "no fall of pass@k is shown"
    if verdict.least_change is not None and verdict.least_change > -MARGIN:
        held = f"pass@k fell by no more than {100 * MARGIN:.0f} points"
    seen = _problems(verdict)
    if verdict.n_minority_problems < verdict.n_problems:
        seen = f"the {verdict.n_minority_problems} of {seen} that show their modes"
    return (
        f"{held}, but correct answers outside each problem's dominant mode were lost {_when(verdict)}, on {seen}"
        f"{_first_change(verdict)}"
    )


def _no_loss(verdict: Verdict) -> str:
    return (
        f"pass@k fell by no more than {100 * MARGIN:.0f} points below the base {_when(verdict)}, "
        f"on {_problems(verdict)} and on problems like them (95 % confidence){_first_change(verdict)}"
    )


def _inconclusive(verdict: Verdict) -> str:
    said = (
        f"neither a fall of pass@k below the base nor its absence (to within {100 * MARGIN:.0f} points) is shown "
        f"{_when(verdict)}, on {_problems(verdict)}{_first_change(verdict)}"
    )
    remedy = verdict.remedy
    if remedy is None:
        return said
    shown = f"would show a fall of {100 * remedy.drop:.3g} points with 80 % power"
    if remedy.n_problems <= verdict.n_problems and remedy.n * len(verdict.window) <= verdict.n_late:
        return f"{said}; an audit of this size {shown}"
    of_base = "" if remedy.n_base == remedy.n else f" ({remedy.n_base} of the base)"
    return f"{said}; about {remedy.n_problems} problems with {remedy.n} samples each{of_base} {shown}"


def _when(verdict: Verdict) -> str:
    first, last = verdict.window[0], verdict.window[-1]
    if first == last:
        return f"at the end of this one training run (step {last})"
    return f"in the last third of this one training run (steps {first}–{last})"


def _problems(verdict: Verdict) -> str:
    return "this one problem" if verdict.n_problems == 1 else f"these {verdict.n_problems} problems"


def _first_change(verdict: Verdict) -> str:
    """What became of pass@1, unless it is what fell most."""
    first = next((change for change in verdict.changes if change.k == 1), None)
    if first is None or (verdict.label.startswith("over_sharpened") and first is largest_fall(verdict.changes)):
        return ""
    moved = _points(abs(first.change))
    if float(moved) == 0:
        return "; pass@1 did not move"
    return f"; pass@1 {'rose' if first.change > 0 else 'fell'} by {moved}"


def _points(probability: float) -> str:
    """Hundredths of probability with one decimal and a real minus sign; never −0.0."""
    text = f"{100 * probability:.1f}"
    return text.removeprefix("-") if float(text) == 0 else text.replace("-", "−")


def _signed(probability: float) -> str:
    text = _points(probability)
    return text if text.startswith("−") or float(text) == 0 else f"+{text}"


def _bounds(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f" [{_points(low)}, {_points(high)}]"
