"""Select the problems, steps and samples that an import compares.

Problems and steps need enough samples. Samples that selected the problems are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pandas as pd

from oversharp.diagnostics.audit.terms import SELECTED
from oversharp.diagnostics.ingest.assign import step_of
from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.ingest.formats.contract import Fault, ReadOptions, Recorded
from oversharp.diagnostics.ingest.formats.fields import BadField, parse_flag
from oversharp.diagnostics.ingest.formats.mapped import inner_records
from oversharp.diagnostics.ingest.formats.opening import without_compression
from oversharp.diagnostics.ingest.formats.paths import values_at
from oversharp.diagnostics.ingest.formats.rows import first_record, has_records, records
from oversharp.diagnostics.ingest.plan import ImportPlan, PlannedFile
from oversharp.diagnostics.ingest.rounds import ImportedRounds, is_unequal_within, resolve_rounds
from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.errors import ConfigError, ImportFileError
from oversharp.diagnostics.records.names import nearest_names
from oversharp.diagnostics.records.types import COUNTS_ALONE, AuditKey, RecordedSettings, VerdictTerms, content_hash

#: Steps with fewer than this share of the median number of problems are excluded: their dumps are truncated.
FEWEST_PROBLEMS = 0.5
NOTHING_SHARED = (
    "no problem has samples at every step, so nothing can be compared; for training rollouts pass --window with the "
    "steps of an epoch, or import validation dumps"
)
ONLY_GREEDY = "only greedy responses, but other steps have samples"


@dataclass(frozen=True, kw_only=True)
class ImportSelection:
    """Problems with at least ``n`` samples at every step, and ``n_base`` at the base.

    ``unequal`` has a row (step, problem_id, n) for each problem and step with more samples, all of which pass@k uses.
    ``greedy``: the greedy response to each problem is compared, because there are too few sampled steps. ``rounds`` is
    the stopping rule, None without one; then ``n`` and ``n_base`` are its largest numbers of samples.
    """

    problem_ids: tuple[str, ...]
    n: int
    n_base: int
    left_out: dict[str, str]
    notes: tuple[str, ...]
    unequal: pd.DataFrame
    greedy: bool = False
    rounds: ImportedRounds | None = None


def select_problems(
    counts: pd.DataFrame, config: ImportConfig, *, hint: Callable[[], str | None] = lambda: None
) -> ImportSelection:
    """Select problems, steps and n from ``counts`` (step, checkpoint, problem_id, greedy, n).

    ``hint`` returns a possible reason why problems of different steps do not match. Raises ``ConfigError`` if there is
    only one step, or no problem has samples at every step.
    """
    counts, only_greedy = _samples_or_greedy(counts)
    is_greedy = bool(counts["greedy"].any())
    n_PT = counts.pivot(index="problem_id", columns="step", values="n").fillna(0).astype(int)
    label = dict(zip(counts["step"], counts["checkpoint"], strict=True))
    if n_PT.shape[1] < 2:
        raise ConfigError(_one_step_error(int(n_PT.columns[0]), only_greedy))
    answered_T = (n_PT > 0).sum()
    median = answered_T.median()
    base = n_PT.columns.min()
    if only_greedy and min(only_greedy) < base:
        raise ConfigError(f"step {min(only_greedy)}, the base, has {ONLY_GREEDY}; import samples of the base too")
    left_out = {
        str(label[step]): f"has {n} problems, but most steps have {median:.0f}; its dump is probably truncated"
        for step, n in answered_T.items()
        if n < FEWEST_PROBLEMS * median and step != base
    }
    kept = n_PT[[step for step in n_PT.columns if str(label[step]) not in left_out]]
    least_P = kept.min(axis=1)
    shared = least_P[least_P > 0]
    if shared.empty:
        raise ConfigError(hint() or NOTHING_SHARED)
    rounds = resolve_rounds(kept.loc[shared.index], int(base), config) if not is_greedy else None
    n = rounds.n if rounds else config.n or int(shared.mode().max())
    n_least = rounds.first if rounds else n
    if config.k and max(config.k) > n:
        raise ConfigError(
            f"--k {max(config.k)} exceeds the {plural(n, 'sample')} of each problem and step; leave that k out"
        )
    problems = least_P[least_P >= n_least]
    if problems.empty:
        raise ConfigError(f"--n {n}: no problem has more than {least_P.max()} samples at every step")
    notes = [*_note_of_base(int(base), str(label[base]), config)]
    if len(problems) < len(n_PT):
        flag = f"; --{'first' if rounds else 'n'} {shared.min()} compares {len(shared)}"
        fewer = f"fewer than {plural(n_least, 'sample')} at some step{flag if len(shared) > len(problems) else ''}"
        notes.append(f"{len(n_PT) - len(problems)} of {len(n_PT)} problems left out: {fewer}")
        if len(shared) < len(n_PT) and (why := hint()):
            notes.append(why)
    chosen = kept.loc[problems.index]
    n_base = rounds.n_base if rounds else int(chosen[base].min())
    unequal = _unequal(chosen.iloc[:0] if rounds else chosen, base, n, n_base, config)
    notes += [] if rounds else _notes_of_unequal(chosen, base, n, config)
    return ImportSelection(
        problem_ids=tuple(sorted(problems.index)),
        n=n,
        n_base=n_base,
        left_out={**left_out, **{f"step {step}": ONLY_GREEDY for step in only_greedy}},
        notes=tuple(notes),
        unequal=unequal,
        greedy=is_greedy,
        rounds=rounds,
    )


def audit_key(
    series: str, settings: RecordedSettings, chosen: ImportSelection, config: ImportConfig, terms: VerdictTerms
) -> AuditKey:
    """Return the identity in the store of an audit of the selected samples."""
    rounds = chosen.rounds
    ks = tuple(sorted(set(config.k))) or tuple(2**power for power in range(chosen.n.bit_length()))
    unequal = (chosen.unequal.to_csv(index=False),) if len(chosen.unequal) else ()
    rule = (rounds.first, rounds.enough) if rounds else ()
    compared = (series, settings.settings_id, sorted(chosen.problem_ids), chosen.n, chosen.n_base, ks, *unequal, *rule)
    return AuditKey(
        audit_id=content_hash("recorded", *compared, config.strategy_regex),
        series=series,
        settings_id=settings.settings_id,
        n=chosen.n,
        n_base=chosen.n_base,
        first_round=rounds.first if rounds else None,
        enough=rounds.enough if rounds else None,
        entropy_samples=rounds.first if rounds else chosen.n,
        panel=0,
        panel_settings_id=settings.settings_id,
        kernel_problems=0,
        kernel_responses=0,
        ks=ks,
        strategy_regex=config.strategy_regex,
        terms=terms,
    )


def _note_of_base(base: int, label: str, config: ImportConfig) -> list[str]:
    """Return a note on the base if there is neither a step 0 nor ``--base``."""
    if base == 0 or config.base is not None:
        return []
    return [f"base: {label}, the first step; pass --base PATH to add samples of the model before RLVR"]


def _samples_or_greedy(counts: pd.DataFrame) -> tuple[pd.DataFrame, tuple[int, ...]]:
    """Return the sampled responses, and the steps that have only greedy responses.

    With fewer than two sampled steps, return the greedy responses instead. Greedy responses to the same problem are
    equal, so one of them is used.
    """
    greedy = counts["greedy"].astype(bool)
    sampled_steps, greedy_steps = set(counts.loc[~greedy, "step"]), set(counts.loc[greedy, "step"])
    if not sampled_steps or (len(sampled_steps) < 2 <= len(greedy_steps)):
        return counts[greedy].assign(n=1), ()
    return counts[~greedy], tuple(sorted(int(step) for step in greedy_steps - sampled_steps))


def _one_step_error(step: int, only_greedy: tuple[int, ...]) -> str:
    if only_greedy:
        return (
            f"step {step} has samples and step {only_greedy[0]} only greedy responses, which cannot be compared; "
            "import samples of both, or greedy responses of both"
        )
    return f"there is only step {step}; also import samples of the base model (--base PATH) and of other steps"


def _unequal(chosen: pd.DataFrame, base: int, n: int, n_base: int, config: ImportConfig) -> pd.DataFrame:
    """Return the rows of ``ImportSelection.unequal``; empty with ``--n``."""
    counted = chosen if config.n is None else chosen.iloc[:0]
    rows = counted.melt(ignore_index=False, var_name="step", value_name="n").reset_index()
    least_N = rows["step"].eq(base).map({True: n_base, False: n})
    return rows.loc[rows["n"] > least_N, ["step", "problem_id", "n"]].reset_index(drop=True)


def _notes_of_unequal(chosen: pd.DataFrame, base: int, n: int, config: ImportConfig) -> list[str]:
    """Return a note on steps that have more samples, and how these are used."""
    others = chosen.drop(columns=base)
    if config.n is not None:
        unused = int((others - n).to_numpy().sum())
        note = f"{plural(unused, 'sample')} beyond the first {n} of a problem and step are stored but unused (--n {n})"
        return [note] if unused else []
    more = [step for step in others.columns if (others[step] > n).any()]
    if not more:
        return []
    most = int(others[more[0]].max())
    also = f"; more than {n} also at {plural(len(more) - 1, 'other step')}" if len(more) > 1 else ""
    chosen_by = ""
    if is_unequal_within(_unequal(chosen, base, n, int(chosen[base].min()), config), len(chosen)):
        chosen_by = "; if problems have more samples because they were rarely solved, pass --until-solved and --first"
    return [
        f"step {more[0]} has up to {plural(most, 'sample')} per problem, above n = {n}{also}; "
        f"pass@k up to k = {n} uses all, comparisons of answers use the first {n}{chosen_by}"
    ]


# ---------------------------------------------------------------- samples that selected the problems


def read_samples(file: PlannedFile, config: ImportConfig) -> Iterator[Recorded | Fault]:
    """Yield the samples of a file. With a field in ``--selected-by``, the samples that it marks become faults."""
    if config.selected_field is None:
        yield from file.importer.read_samples(file.path, ReadOptions(fields=config.map, reward=config.reward))
        return
    for item, is_selecting in _marked_samples(file, config, config.selected_field):
        yield Fault(item.line, f"{SELECTED} (--selected-by {config.selected_field})") if is_selecting else item


def require_selecting_field(plan: ImportPlan, config: ImportConfig) -> None:
    """Read all samples, and raise ``ConfigError`` if those that selected the problems cannot be left out."""
    field = config.selected_field
    if field is None:
        return
    for file in plan.files:
        _require_records(file, field)
    is_known = False
    n_selecting: Counter[tuple[str, int]] = Counter()  # by series and step
    kept: set[tuple[str, int]] = set()
    for file in plan.files:
        with suppress(ImportFileError):  # the import reports this error
            for item, is_selecting in _marked_samples(file, config, field):
                is_known |= is_selecting is not None
                if isinstance(item, Fault):
                    if item.why.startswith(_flag(field)):
                        raise ConfigError(f"{file.path}:{item.line}: {item.why}")
                    continue
                step = step_of(item, file, config)
                if step is not None and is_selecting:
                    n_selecting[file.series, step] += 1
                elif step is not None:
                    kept.add((file.series, step))
    path = plan.files[0].path
    if not is_known:
        others = f" and {plural(len(plan.files) - 1, 'other file')}" if len(plan.files) > 1 else ""
        raise ConfigError(
            f"{path}{others}: {_flag(field)}: no record has that field; {nearest_names(field, first_record(path))}"
        )
    for (series, step), n in n_selecting.items():
        if (series, step) not in kept and step in (config.steps or (step,)):
            raise ConfigError(
                f"{path}: {_flag(field)}: all {plural(n, 'sample')} of step {step} selected the problems, so none is "
                "left to compare; sample this step again and import these samples too"
            )


def _flag(field: str) -> str:
    return f"--selected-by {field}"


def _require_records(file: PlannedFile, field: str) -> None:
    """Raise ``ConfigError`` if the records of a file are not single samples with named fields."""
    tool = file.importer
    if tool.name == COUNTS_ALONE:
        raise ConfigError(
            f"{file.path}: {_flag(field)}: counts have no single samples to leave out; import samples, or pass base "
            "or none"
        )
    # JSON logs of inspect and HELM are one document, whose samples are not records
    if not has_records(file.path) or without_compression(file.path).suffix.lower() not in tool.suffixes:
        raise ConfigError(
            f"{file.path}: {_flag(field)}: files of format {tool.name} cannot have that field; convert the samples "
            "to JSON Lines and pass --map"
        )


def _marked_samples(
    file: PlannedFile, config: ImportConfig, field: str
) -> Iterator[tuple[Recorded | Fault, bool | None]]:
    """Yield each sample with the value of ``field`` in its record; None if the record lacks it.

    The value is one of the whole record, or one of each sample in it. Other values become faults.
    """
    items = file.importer.read_samples(file.path, ReadOptions(fields=config.map, reward=config.reward))
    by_line = ((item.line, {}) if isinstance(item, Fault) else item for item in records(file.path))
    line, record = 0, dict[str, Any]()
    for here, of_line in groupby(items, key=lambda item: item.line):
        samples = list(of_line)
        while line < here:
            line, record = next(by_line, (here, {}))
        if not any(isinstance(item, Recorded) for item in samples):  # an unusable record
            yield from ((item, None) for item in samples)
            continue
        try:
            marks = _marks(record, field, config.map)
            if len(marks) not in (1, len(samples)):
                raise BadField("its list and the responses have different lengths; write one value per response")
        except BadField as bad:
            yield from ((Fault(here, f"{_flag(field)}: {bad}"), None) for _ in samples)
            continue
        yield from zip(samples, marks * len(samples) if len(marks) == 1 else marks, strict=True)


def _marks(record: dict[str, Any], field: str, names: Mapping[str, str]) -> list[bool | None]:
    """Return the values of ``field`` in a record, in the order of its samples."""
    values = [
        value
        for part in (inner_records(record, names) if names else [record])
        for value in values_at(part, field).values()
    ]
    each = [element for value in values for element in (value if isinstance(value, list) else [value])]
    return [parse_flag(value, field) for value in each] or [None]
