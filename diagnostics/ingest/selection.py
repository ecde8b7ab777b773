"""Chooses the problems that an import compares: those with enough samples at every step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.errors import ConfigError

#: A step with fewer problems than this share of what most steps have is left out: its dump is cut short.
FEWEST_PROBLEMS = 0.5
NOTHING_SHARED = (
    "no problem was answered at every step, so nothing can be compared; of rollouts of training pass --window "
    "with the steps of an epoch, or import validation dumps"
)
ONLY_GREEDY = "only greedy responses, while other steps have samples"


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Selection of an audit: problems with at least ``n`` samples at every step, ``n_base`` at the base.

    ``unequal`` has a row (step, problem_id, n) for every problem and step with more samples than that: all of them
    count in pass@k. ``greedy``: the one greedy response of each problem is compared, since there are no samples.
    """

    problem_ids: tuple[str, ...]
    n: int
    n_base: int
    left_out: dict[str, str]
    notes: tuple[str, ...]
    unequal: pd.DataFrame
    greedy: bool = False


def choose(counts: pd.DataFrame, config: ImportConfig, *, hint: Callable[[], str | None] = lambda: None) -> Selection:
    """Choose problems, steps and n from ``counts`` (step, checkpoint, problem_id, greedy, n).

    ``hint`` returns why problems of different steps were not joined. Raises ``ConfigError`` if there is only one step,
    or no problem was answered at all of them.
    """
    counts, only_greedy = _of_one_kind(counts)
    is_greedy = bool(counts["greedy"].any())
    n_PT = counts.pivot(index="problem_id", columns="step", values="n").fillna(0).astype(int)
    label = dict(zip(counts["step"], counts["checkpoint"], strict=True))
    if n_PT.shape[1] < 2:
        raise ConfigError(_one_step(int(n_PT.columns[0]), only_greedy))
    answered_T = (n_PT > 0).sum()
    usual = answered_T.median()
    base = n_PT.columns.min()
    if only_greedy and min(only_greedy) < base:
        raise ConfigError(f"step {min(only_greedy)}, the base, has {ONLY_GREEDY}; import samples of the base too")
    left_out = {
        str(label[step]): f"only {n} of the {usual:.0f} problems that most steps have; its dump is cut short"
        for step, n in answered_T.items()
        if n < FEWEST_PROBLEMS * usual and step != base
    }
    kept = n_PT[[step for step in n_PT.columns if str(label[step]) not in left_out]]
    least_P = kept.min(axis=1)
    shared = least_P[least_P > 0]
    if shared.empty:
        raise ConfigError(hint() or NOTHING_SHARED)
    n = config.n or int(shared.mode().max())
    if config.k and max(config.k) > n:
        raise ConfigError(
            f"--k {max(config.k)} is larger than the {plural(n, 'sample')} of each problem and step; drop that k"
        )
    problems = least_P[least_P >= n]
    if problems.empty:
        raise ConfigError(f"--n {n}: no problem has that many samples at every step, at most {least_P.max()}")
    notes = [*_note_of_base(int(base), str(label[base]), config)]
    if len(problems) < len(n_PT):
        hint_of_n = f"; --n {shared.min()} compares {len(shared)}" if len(shared) > len(problems) else ""
        n_left_out = len(n_PT) - len(problems)
        notes.append(
            f"{n_left_out} of {len(n_PT)} problems left out: not {plural(n, 'sample')} at every step{hint_of_n}"
        )
        if len(shared) < len(n_PT) and (why := hint()):
            notes.append(why)
    chosen = kept.loc[problems.index]
    n_base = int(chosen[base].min())
    unequal = _unequal(chosen, base, n, n_base, config)
    notes += _notes_of_unequal(chosen, base, n, config)
    return Selection(
        problem_ids=tuple(sorted(problems.index)),
        n=n,
        n_base=n_base,
        left_out={**left_out, **{f"step {step}": ONLY_GREEDY for step in only_greedy}},
        notes=tuple(notes),
        unequal=unequal,
        greedy=is_greedy,
    )


def _note_of_base(base: int, label: str, config: ImportConfig) -> list[str]:
    """Return a line that names the base where the user did not: no step 0, and no ``--base``."""
    if base == 0 or config.base is not None:
        return []
    return [f"base: {label}, the first step, as there is no step 0; --base PATH adds samples of the model before RLVR"]


def _of_one_kind(counts: pd.DataFrame) -> tuple[pd.DataFrame, tuple[int, ...]]:
    """Return the samples, and the steps with only greedy responses; without two sampled steps the greedy responses.

    Greedy responses to one problem are copies, so one of them counts.
    """
    greedy = counts["greedy"].astype(bool)
    sampled_steps, greedy_steps = set(counts.loc[~greedy, "step"]), set(counts.loc[greedy, "step"])
    if not sampled_steps or (len(sampled_steps) < 2 <= len(greedy_steps)):
        return counts[greedy].assign(n=1), ()
    return counts[~greedy], tuple(sorted(int(step) for step in greedy_steps - sampled_steps))


def _one_step(step: int, only_greedy: tuple[int, ...]) -> str:
    if only_greedy:
        return (
            f"step {step} has samples and step {only_greedy[0]} only greedy responses, which cannot be compared; "
            "import samples of both, or greedy responses of both"
        )
    return f"only step {step} is there; import the samples of the base model too (--base PATH), and of other steps"


def _unequal(chosen: pd.DataFrame, base: int, n: int, n_base: int, config: ImportConfig) -> pd.DataFrame:
    """Return the rows of ``Selection.unequal``; none with ``--n``."""
    counted = chosen if config.n is None else chosen.iloc[:0]
    rows = counted.melt(ignore_index=False, var_name="step", value_name="n").reset_index()
    least_N = rows["step"].eq(base).map({True: n_base, False: n})
    return rows.loc[rows["n"] > least_N, ["step", "problem_id", "n"]].reset_index(drop=True)


def _notes_of_unequal(chosen: pd.DataFrame, base: int, n: int, config: ImportConfig) -> list[str]:
    """Return a line about steps with more samples than the fewest, and their use."""
    others = chosen.drop(columns=base)
    if config.n is not None:
        unused = int((others - n).to_numpy().sum())
        used = f"{plural(unused, 'sample')} beyond the first {n} of a problem and step: stored and not used (--n {n})"
        return [used] if unused else []
    more = [step for step in others.columns if (others[step] > n).any()]
    if not more:
        return []
    most = int(others[more[0]].max())
    also = f" (and so at {plural(len(more) - 1, 'more step')})" if len(more) > 1 else ""
    return [
        f"step {more[0]} has up to {plural(most, 'sample')} of a problem, the fewest at any step are {n}: all count in "
        f"pass@k up to k = {n}; {most - n} of {most} samples of step {more[0]} are unused for what compares "
        f"answers{also}"
    ]
