"""Chooses what an import can compare: problems with as many samples as most have, at every step."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from diagnostics.ingest.config import ImportConfig
from diagnostics.records.amounts import plural
from diagnostics.records.errors import ConfigError

#: A step with fewer problems than this share of what most steps have is left out: its dump is cut short.
FEWEST_PROBLEMS = 0.5


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What is compared: problems with at least ``n`` samples at every step, ``n_base`` at the base."""

    problem_ids: tuple[str, ...]
    n: int
    n_base: int
    left_out: dict[str, str]
    notes: tuple[str, ...]


def choose(counts: pd.DataFrame, config: ImportConfig) -> Selection:
    """What an audit can compare of ``counts`` (step, checkpoint, problem_id, n).

    Raises ``ConfigError`` if there is only one step, or no problem was answered at all of them.
    """
    n_PT = counts.pivot(index="problem_id", columns="step", values="n").fillna(0).astype(int)
    label = dict(zip(counts["step"], counts["checkpoint"], strict=True))
    if n_PT.shape[1] < 2:
        raise ConfigError(
            f"only step {n_PT.columns[0]} is there; import the samples of the base model too (--base PATH), "
            "and of other steps"
        )
    answered_T = (n_PT > 0).sum()
    usual = answered_T.median()
    base = n_PT.columns.min()
    left_out = {
        str(label[step]): f"only {n} of the {usual:.0f} problems that most steps have; its dump is cut short"
        for step, n in answered_T.items()
        if n < FEWEST_PROBLEMS * usual and step != base
    }
    kept = n_PT[[step for step in n_PT.columns if str(label[step]) not in left_out]]
    least_P = kept.min(axis=1)
    shared = least_P[least_P > 0]
    if shared.empty:
        raise ConfigError(
            "no problem was answered at every step, so nothing can be compared; of rollouts of training pass --window "
            "with the steps of an epoch, or import validation dumps"
        )
    n = config.n or int(shared.mode().max())
    if config.k and max(config.k) > n:
        raise ConfigError(
            f"--k {max(config.k)} is larger than the {plural(n, 'sample')} of each problem and step; drop that k"
        )
    problems = least_P[least_P >= n]
    if problems.empty:
        raise ConfigError(f"--n {n}: no problem has so many samples at every step, at most {least_P.max()}")
    notes = []
    if len(problems) < len(n_PT):
        mend = f"; --n {shared.min()} compares {len(shared)}" if len(shared) > len(problems) else ""
        n_left_out = len(n_PT) - len(problems)
        notes.append(f"{n_left_out} of {len(n_PT)} problems left out: not {plural(n, 'sample')} at every step{mend}")
    chosen = kept.loc[problems.index]
    unused = int((chosen.drop(columns=base) - n).to_numpy().sum())
    if unused:
        notes.append(f"{plural(unused, 'sample')} beyond the first {n} of a problem and step: stored and not used")
    return Selection(
        problem_ids=tuple(sorted(problems.index)),
        n=n,
        n_base=int(chosen[base].min()),
        left_out=left_out,
        notes=tuple(notes),
    )
