"""Other explanations of a fall of pass@k: false accepts, unparsed samples, selected problems.

A verdict is "over-sharpened" only if none of these applies. In the names of this module, *unread* is unparsed, and a
*guess* is a false accept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from oversharp.diagnostics.statistics.keys import EXACT_DRAWS, PairedCounts, draws_for, exact_key
from oversharp.diagnostics.statistics.selection import ProblemFilter, selected_fall_p
from oversharp.diagnostics.verdict.causes.guesses import guessing_p, p_of_single_problems
from oversharp.diagnostics.verdict.causes.unparsed import (
    ParsedEstimates,
    Unread,
    read_alone,
    share_explained,
    taken_for_correct,
)

#: format    unparsed samples explain at least half of the fall, and the parsed ones show no significant fall; or the
#:           grades of a lenient reader show none
#: unread    unparsed samples explain less than half of the fall, and the parsed ones show no significant fall either:
#:           no conclusion
#: guessing  false accepts at the base explain the fall
#: selection these base samples selected the problems, so an unchanged model would show such a fall too
Cause = Literal["format", "unread", "guessing", "selection"]
CAUSES: Mapping[Cause, str] = {
    "format": "unparsed or misread samples",
    "guessing": "false accepts at the base",
    "unread": "too few parsed samples",
    "selection": "selection of the problems by these base samples",
}

#: Least number of draws, times the level, for a p value that is only compared with the level.
_COMPARED_DRAWS_PER_LEVEL = 3
#: Level of the test that excludes another explanation of a fall.
EXPLAINED_LEVEL = 0.01
#: Least number of draws, times the level, for the test of false accepts.
_GUESS_DRAWS_PER_LEVEL = 1.5
#: The answer style changed if the share that only the lenient reader accepts changed by this (probability).
NOTABLE_STYLE_RISE = 0.01
#: Smallest significant change of that share, in standard errors. Weight of the pooled rate, in wrong samples.
_CLEAR_STYLE_RISE, _PRIOR_WRONG = 3.0, 4.0
#: Unparsed samples explain a fall if their share of it is at least this.
_MOST = 0.5
#: Unparsed samples are mentioned if they could explain at least this share of a fall.
NOTABLE_UNREAD_SHARE = 0.5


@dataclass(frozen=True, kw_only=True)
class Fall:
    """A significant fall, with the counts that other explanations are tested on.

    Attributes:
        ks: Tested k.
        unread: Unparsed samples; None if unknown.
        level: Level of the test that found the fall.
        lenient: Counts of the same samples by the lenient reader; None without one.
        selection: Filter that all problems pass by the base's samples; None if they pass none.
    """

    counts: PairedCounts
    ks: Sequence[int]
    unread: Unread | None
    level: float
    lenient: PairedCounts | None = None
    selection: ProblemFilter | None = None

    @property
    def worst_k(self) -> int:
        """The k at which mean pass@k fell most."""
        return self.ks[int(self.counts.changes(self.ks).sum(axis=0).argmin())]


def fall_p(
    counts: PairedCounts | ParsedEstimates,
    *,
    ks: Sequence[int],
    level: float,
    rng: np.random.Generator,
    is_compared_only: bool = False,
) -> float:
    """Return the p value of "mean pass@k of these problems fell at none of ``ks``".

    The number of draws depends on ``level``. With ``is_compared_only`` the p value is only compared with the level, so
    fewer draws are enough.
    """
    draws = draws_for(level)
    if is_compared_only:
        draws = min(draws, max(EXACT_DRAWS, int(_COMPARED_DRAWS_PER_LEVEL / level)))
    if isinstance(counts, ParsedEstimates):
        return counts.fall_p(ks, rng=rng, draws=8 * draws)
    return exact_key(counts, ks=ks, rng=rng, draws=draws)


def cause_of(fall: Fall, *, guess_share: float, guess_level: float, rng: np.random.Generator) -> Cause | None:
    """Return another explanation of a fall; None if none applies.

    If more late samples are unparsed than base samples, the fall must also be significant without them. One of two
    tests is enough: all late unparsed samples in excess of the base's count as correct, which is the most favourable
    assumption, or only parsed samples count. False accepts are tested at ``guess_level``.

    >>> half, none = np.full(100, 128), np.zeros(100, dtype=np.int64)
    >>> counts = PairedCounts(base_P=half, late_P=half // 2, n_base=256, n_late=256)
    >>> cut = Fall(counts=counts, ks=[1, 8], unread=Unread(base_P=none, late_P=half), level=0.03)
    >>> print(cause_of(cut, guess_share=0.0, guess_level=0.01, rng=np.random.default_rng(0)))
    format
    """
    if is_misread(fall, rng):
        return "format"
    unread = _unread_that_matter(fall, rng)
    if unread is not None:
        read = read_alone(fall.counts, unread, rng=rng)
        if not _shows(fall, read, rng):
            part = share_explained(fall.counts, read, k=fall.worst_k)
            return "format" if part is None or part >= _MOST else "unread"
    if fall.selection is not None:  # an unchanged model may show such a fall on problems that the base's samples chose
        draws = draws_for(fall.level)
        if selected_fall_p(fall.counts, fall.selection, ks=fall.ks, rng=rng, draws=draws) > fall.level:
            return "selection"
    if guess_share > 0:
        draws = max(EXACT_DRAWS, int(_GUESS_DRAWS_PER_LEVEL / guess_level))
        p = guessing_p(fall.counts, share=guess_share, ks=fall.ks, rng=rng, draws=draws, level=guess_level)
        if p > guess_level:
            return "guessing"
    return None


def is_misread(fall: Fall, rng: np.random.Generator) -> bool:
    """Return whether unparsed answer formats explain the fall, because the lenient reader's grades show none.

    Three conditions must hold. The share of samples that only the lenient reader accepts rose by more than its false
    accepts explain (``style_rise``). This rise is at least half of the lost correct samples. No fall is significant by
    the lenient grades: neither of pass@k, nor of single problems (Holm's correction). Single problems are tested
    because false accepts of the lenient reader hide their loss from pass@k at large k.
    """
    if fall.lenient is None or style_rise(fall.counts, fall.lenient) is None:
        return False
    part = share_misread(fall.counts, fall.lenient)
    if part is None or part < _MOST or _shows(fall, fall.lenient, rng):
        return False
    return p_of_single_problems(fall.lenient, 0.0, fall.ks) > fall.level


def style_rise(counts: PairedCounts, lenient: PairedCounts) -> float | None:
    """Return the rise of the share of samples that only the lenient reader accepts, a probability.

    The expected false accepts of the lenient reader, at the base's rate, are subtracted. With a stopping rule, only the
    first round counts. None for a change of less than
    ``NOTABLE_STYLE_RISE``, or of less than ``_CLEAR_STYLE_RISE`` standard errors over problems.

    >>> half, none = np.full(10, 8), np.zeros(10, dtype=np.int64)
    >>> strict = PairedCounts(base_P=half, late_P=none, n_base=16, n_late=16)
    >>> style_rise(strict, PairedCounts(base_P=half, late_P=half, n_base=16, n_late=16))
    0.5
    """
    rise_P = _misread_rise(counts.equal, lenient.equal)
    rise, error = float(rise_P.mean()), float(rise_P.std() / np.sqrt(len(rise_P)))
    return rise if abs(rise) >= max(NOTABLE_STYLE_RISE, _CLEAR_STYLE_RISE * error) else None


def share_misread(counts: PairedCounts, lenient: PairedCounts) -> float | None:
    """Return the share of the lost correct samples that the lenient reader accepts; None without a loss."""
    counts, lenient = counts.equal, lenient.equal
    lost_P = np.maximum(0.0, counts.base_P / counts.n_base - counts.late_P / counts.n_late)
    if not lost_P.any():
        return None
    misread_P = np.maximum(0.0, _misread_rise(counts, lenient))
    return float(np.minimum(misread_P, lost_P).sum() / lost_P.sum())


def _misread_rise(counts: PairedCounts, lenient: PairedCounts) -> Float[np.ndarray, " problem"]:
    """Return the late share that only the lenient reader accepts, minus the expected share at the base's rate.

    The base's rate is the share of its wrong samples that only the lenient reader accepts. It is shrunk towards the
    rate of all problems, with a weight of ``_PRIOR_WRONG`` wrong samples.
    """
    gap_P, wrong_P = lenient.base_P - counts.base_P, counts.n_base - counts.base_P
    pooled = float(gap_P.sum() / max(1, wrong_P.sum()))
    rate_P = (gap_P + _PRIOR_WRONG * pooled) / (wrong_P + _PRIOR_WRONG)
    late_gap_P = (lenient.late_P - counts.late_P) / counts.n_late
    return np.asarray(late_gap_P - rate_P * (1.0 - counts.late_P / counts.n_late))


def _unread_that_matter(fall: Fall, rng: np.random.Generator) -> Unread | None:
    """Return the unparsed samples if they can explain the fall, else None.

    They can if the fall is not significant when the late ones in excess of the base's count as correct.
    """
    if fall.unread is None or fall.unread.rise(fall.counts) <= 0:
        return None
    return None if _shows(fall, taken_for_correct(fall.counts, fall.unread), rng) else fall.unread


def _shows(fall: Fall, counts: PairedCounts | ParsedEstimates, rng: np.random.Generator) -> bool:
    """Return whether the fall is significant in other counts of the same problems.

    k is at most half of their samples.
    """
    most = max(1, counts.n_most // 2)
    ks = sorted({min(k, most) for k in fall.ks})
    return fall_p(counts, ks=ks, level=fall.level, rng=rng, is_compared_only=True) <= fall.level
