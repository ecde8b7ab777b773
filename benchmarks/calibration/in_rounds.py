"""Counts of samples that are drawn in rounds, until each problem has enough correct ones."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from oversharp.diagnostics.audit.config import DEFAULT_FIRST
from oversharp.diagnostics.audit.settings import FIRST_WITH_MODES
from oversharp.diagnostics.statistics.stopping import StoppingRule
from oversharp.diagnostics.verdict.counts import CheckpointCounts, RoundCounts, SeriesCounts


@dataclass(frozen=True, kw_only=True)
class InRounds:
    """Counts of the base and of checkpoints S.

    ``minority_SP``: correct samples of the first round outside the mode that dominates the first half of the base's
    first round; of the base only those of the second half. ``unread_SP``: unparsed samples at the end.
    """

    rounds: list[RoundCounts]
    minority_SP: list[Int[np.ndarray, " problem"]]
    unread_SP: list[Int[np.ndarray, " problem"]]
    shows_modes_P: Bool[np.ndarray, " problem"]
    is_minority_PM: Bool[np.ndarray, "problem mode"]


def stopping_rule(n: int, enough: int, *, of: int, has_modes: bool) -> StoppingRule:
    """Return the default rule of an audit with n = ``of``, for a checkpoint with at most ``n`` samples."""
    first = min(FIRST_WITH_MODES, of // 2) if has_modes else min(DEFAULT_FIRST, of // 4)
    return StoppingRule.doubling(first=min(n, max(4, first)), cap=n, enough=enough)


def draw_in_rounds(
    rules: Sequence[StoppingRule],
    modes_SPM: Float[np.ndarray, "step problem mode"],
    unread_SP: Float[np.ndarray, "step problem"] | None,
    rng: np.random.Generator,
) -> InRounds:
    """Draw all samples up to the cap, and ignore those after the stop.

    A sample is correct in one of the modes, unparsed, or wrong, with these probabilities.
    """
    n_modes = modes_SPM.shape[2]
    unread_SP1 = np.zeros_like(modes_SPM[:, :, :1]) if unread_SP is None else unread_SP[:, :, None]
    wrong_SP1 = np.clip(1.0 - modes_SPM.sum(axis=2, keepdims=True) - unread_SP1, 0.0, 1.0)
    chances_SPX = np.concatenate([modes_SPM, unread_SP1, wrong_SP1], axis=2)
    # the first round in two halves
    drawn_S = [
        np.stack([rng.multinomial(size, chances_PX) for size in np.diff([0, rule.rounds[0] // 2, *rule.rounds])])
        for rule, chances_PX in zip(rules, chances_SPX, strict=True)
    ]
    chosen_PM = drawn_S[0][0][:, :n_modes]
    is_minority_PM = np.arange(n_modes) != chosen_PM.argmax(axis=1)[:, None]
    rounds, minority_SP = [], []
    for step, (rule, drawn_HPX) in enumerate(zip(rules, drawn_S, strict=True)):
        first_HPM = drawn_HPX[1:2, :, :n_modes] if step == 0 else drawn_HPX[:2, :, :n_modes]
        minority_SP.append((first_HPM.sum(axis=0) * is_minority_PM).sum(axis=1))
        after_RPX = drawn_HPX.cumsum(axis=0)[1:]
        correct_RP = after_RPX[:, :, :n_modes].sum(axis=2)
        stops_P = np.searchsorted(rule.rounds, rule.hits(rule.stop(correct_RP))[0])
        last_RP = np.minimum(np.arange(len(rule.rounds))[:, None], stops_P)
        until_stop = [np.take_along_axis(of_RP, last_RP, axis=0) for of_RP in (correct_RP, after_RPX[:, :, n_modes])]
        rounds.append(RoundCounts(rule=rule, correct_RP=until_stop[0], unread_RP=until_stop[1]))
    return InRounds(
        rounds=rounds,
        minority_SP=minority_SP,
        unread_SP=[one.unread_RP[-1] for one in rounds if one.unread_RP is not None],
        shows_modes_P=chosen_PM.any(axis=1),
        is_minority_PM=is_minority_PM,
    )


def series_in_rounds(
    n_S: Sequence[int],
    enough: int,
    rate_SP: Float[np.ndarray, "step problem"],
    rng: np.random.Generator,
    *,
    unread_SP: Float[np.ndarray, "step problem"] | None = None,
    **known: Any,
) -> SeriesCounts:
    """Draw the base and checkpoints S in rounds, by the default rule of an audit without modes.

    ``known`` are further fields of ``SeriesCounts``.
    """
    rules = [stopping_rule(n, enough, of=n_S[-1], has_modes=False) for n in n_S]
    return series_of(draw_in_rounds(rules, rate_SP[:, :, None], unread_SP, rng).rounds, **known)


def series_of(rounds: Sequence[RoundCounts], **known: Any) -> SeriesCounts:
    """Return the counts of an audit without modes: of the base, then of the checkpoints."""
    none_P = np.zeros(rounds[0].correct_RP.shape[1], dtype=np.int64)
    base, *trained = (
        CheckpointCounts(
            step=step, checkpoint=f"checkpoint-{step}", n=one.rule.cap, correct_P=one.codes, minority_P=none_P,
            rates=None, unread_P=None if one.unread_RP is None else one.unread_RP[-1], rounds=one,
        )
        for step, one in enumerate(rounds)
    )  # fmt: skip
    return SeriesCounts(
        series="run", base=base, trained=tuple(trained), shows_modes_P=none_P.astype(bool), tasks=("planted",),
        graders=("exact",), tokens_per_sample=None, **known,
    )  # fmt: skip


def add_until_solved(parser: ArgumentParser) -> None:
    """Add the option ``--until-solved``."""
    text = "draw the samples of each problem in rounds until ENOUGH are correct"
    parser.add_argument("--until-solved", type=int, metavar="ENOUGH", help=text)


def result_name(name: str, enough: int | None) -> str:
    """Return the name of a result file."""
    return name if enough is None else f"{name}_until_solved"


def in_rounds_lines(enough: int | None) -> list[str]:
    """Return lines of a page, as Markdown, that describe the stopping rule; empty without one."""
    if enough is None:
        return []
    return [
        f"Each problem is drawn in rounds until {enough} samples are correct (`--until-solved {enough}`): a quarter of",
        "n samples, at most 32, then twice as many, and so on, at most n.",
        "",
    ]
