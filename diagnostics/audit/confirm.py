"""Confirmation: test on fresh samples whether problems were really lost or gained.

The counts that selected a problem cannot test it, because some of many problems seem lost by chance. So the selected
problems are sampled again from the base and from the last checkpoint, with another seed and the same settings.
Repeating the command does not raise the chance of a significant result: a tested problem stays in every later test,
with the same number of samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast

import numpy as np
import pandas as pd

from oversharp.diagnostics.audit.confirm_config import ConfirmConfig
from oversharp.diagnostics.audit.stages import OpenAudit, draw_samples
from oversharp.diagnostics.engine.grading import Grader, grade_responses
from oversharp.diagnostics.engine.local import Engine, EngineSpec
from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.cells import short_repr
from oversharp.diagnostics.records.errors import CheckpointError, ConfigError, SamplerError, StoreError
from oversharp.diagnostics.records.progress import ProgressSink, SilentProgress
from oversharp.diagnostics.records.types import (
    AuditKey,
    Change,
    Checkpoint,
    Confirmation,
    Problem,
    SamplingSettings,
    content_hash,
)
from oversharp.diagnostics.samplers import choose_sampler, lora_ranks
from oversharp.diagnostics.samplers.endpoint.places import LOG_FOLDER
from oversharp.diagnostics.series import find_series
from oversharp.diagnostics.statistics.confirmation import fisher_fell, holm, shortlist
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.load import (
    SERVED_LAYOUT,
    choose_series,
    is_recorded,
    series_layout,
    stored_key,
    stored_problems,
    stored_settings,
)
from oversharp.diagnostics.store.missing import find_ungraded_drawn, missing_samples
from oversharp.diagnostics.verdict.counts import window_size
from oversharp.diagnostics.verifiers import Verifiers, named_verifier

_COUNTS = """
SELECT
    p.checkpoint_id, p.step, p.is_base, p.problem_id, p.n_planned,
    coalesce(s.n, 0) AS n, coalesce(s.n_correct, 0) AS n_correct
FROM planned_samples AS p
LEFT JOIN sampled_counts AS s USING (series, step, problem_id)
WHERE p.series = $series
ORDER BY p.step, p.problem_id
"""
_PLACES = """
SELECT c.checkpoint_id, c.checkpoint, c.step, c.path, s.path AS run
FROM series_checkpoints AS c
JOIN series AS s USING (series)
WHERE c.series = $series AND c.checkpoint_id = $checkpoint_id
ORDER BY c.is_base DESC, c.step
"""
_FRESH_COUNTS = """
SELECT s.checkpoint_id, s.problem_id, count(*) FILTER (g.correct) AS n_correct
FROM samples AS s
JOIN problems AS p USING (problem_id)
JOIN grades AS g
    ON g.problem_id = s.problem_id
    AND g.response_id = s.response_id
    AND g.verifier = p.verifier
WHERE s.settings_id = $settings_id AND NOT s.greedy AND s.sample_index < $fresh
GROUP BY ALL
"""
# from any audit of these samples, because a new audit shares them
_TESTED = """
SELECT problem_id, min(change) AS change, max(n_late) AS fresh
FROM confirmations
WHERE settings_id = $settings_id AND checkpoint_id = $checkpoint_id
GROUP BY problem_id
ORDER BY change DESC, problem_id
"""


@dataclass(frozen=True, kw_only=True)
class ConfirmResult:
    """Tests of the problems that were sampled again: lost ones first, then gained ones.

    The lost and the gained problems each begin with the shortlist. The ``n_earlier`` problems of earlier confirmations
    follow.
    """

    series: str
    checkpoint: str
    step: int
    fresh: int
    samples_drawn: int
    n_earlier: int
    problems: tuple[Problem, ...]
    tested: tuple[Confirmation, ...]
    store_path: Path
    report_path: Path

    __repr__ = short_repr


@dataclass(frozen=True, kw_only=True)
class _Shortlist:
    """Problem id → apparent change between two checkpoints (given by their ids).

    ``fresh`` is the number of samples per problem in earlier tests, None without any.
    """

    changes: Mapping[str, Change]
    base_id: str
    late_id: str
    n_earlier: int = 0
    fresh: int | None = None


def confirm(store_path: Path, config: ConfirmConfig, *, progress: ProgressSink | None = None) -> ConfirmResult:
    """Sample the problems that seem lost or gained again, and test them.

    The caller writes the report. Like the verdict, the shortlist compares the base with the pooled last third of the
    checkpoints, which has more samples than one checkpoint. With a stopping rule, the shares of correct samples are
    biased, but they only order the problems: all fresh samples are equally many. The fresh samples are from the last
    checkpoint, because users keep that one. Samples are committed in batches: the same command continues after an
    interruption, and samples nothing if it had finished.

    Every problem that was ever tested at this late checkpoint is tested again together with the shortlist. p values are
    corrected over all of them (Holm), and all rows are rewritten. The first test fixes the number of fresh samples.
    Adding samples until p is small would have an error rate above 5 %, even if each look used only new samples. The
    shortlist can only grow, which makes each test stricter. Growing it until a problem is confirmed still has an error
    rate above 5 %, so choose ``most`` before you look.

    Raises:
        ConfigError: ``fresh`` differs from that of an earlier test, or the series has no checkpoints to sample.
        StoreError: no such store or audit, or the audit has no graded samples.
        CheckpointError: a checkpoint was moved, or its weights differ from the audited ones.
        SamplerError: the audit's sampler cannot run here, or fails.
    """
    progress = progress or SilentProgress()
    if not store_path.is_file():
        raise StoreError(f"{store_path}: no such store; run `oversharp audit … --out {store_path.parent}` first")
    with Store.open(store_path) as store:
        key = stored_key(store, choose_series(store, config.series))
        _require_checkpoints(store, key)
        audited = stored_settings(store, key.settings_id)
        if audited.environment is not None:
            raise ConfigError(
                f"--series {key.series}: its samples are trajectories, which confirm cannot sample; add samples by "
                "`oversharp audit --top-up` instead"
            )
        settings = fresh_settings(audited)
        listed = _add_tested(store, _shortlist(store, key, config.most), settings)
        problems = stored_problems(store, list(listed.changes))
        _require_verifiers(problems, config)
        fresh = config.fresh or listed.fresh or key.n_base
        if listed.fresh not in (None, fresh):
            raise ConfigError(
                f"--fresh {fresh}: these problems were tested with {plural(listed.fresh, 'fresh sample')} each; "
                "changing the number after seeing results would make the test invalid; remove --fresh"
            )
        drawn = _draw(store, key, listed, problems, settings, fresh, config, progress)
        pending = find_ungraded_drawn(store, settings.settings_id, list(listed.changes))
        grade_responses(store, problems, pending, key=key, progress=progress)
        tested = _test_changes(store, listed, settings, fresh)
        store.add_confirmations(key.audit_id, listed.late_id, settings.settings_id, tested)
        late = store.frame(_PLACES, series=key.series, checkpoint_id=listed.late_id).iloc[0]
    return ConfirmResult(
        series=key.series,
        checkpoint=str(late["checkpoint"]),
        step=int(late["step"]),
        fresh=fresh,
        samples_drawn=drawn,
        n_earlier=listed.n_earlier,
        problems=tuple(problems),
        tested=tuple(tested),
        store_path=store_path,
        report_path=confirm_report_path(store_path, config),
    )


def confirm_report_path(store_path: Path, config: ConfirmConfig) -> Path:
    """Return the path of a confirmation's report."""
    return config.out or store_path.parent / "report.html"


def _require_verifiers(problems: Sequence[Problem], config: ConfirmConfig) -> None:
    """Raise ``ConfigError`` or ``VerifierError`` if the problems cannot be graded here."""
    if config.verifier is not None:
        named_verifier(config.verifier, config.grader_limits)
    with Verifiers() as verifiers:
        for problem in problems:
            verifiers.of(problem)


def _require_checkpoints(store: Store, key: AuditKey) -> None:
    if key.verifier is not None:
        raise ConfigError(
            f"--series {key.series}: `oversharp regrade` created it with {key.verifier}; confirm the original series, "
            "or audit the checkpoints with this verifier"
        )
    if series_layout(store, key.series) == SERVED_LAYOUT:
        raise ConfigError(
            f"--series {key.series}: exists only behind a server; add samples by `oversharp audit --top-up` instead"
        )
    if is_recorded(store, key.series):
        raise ConfigError(
            f"--series {key.series}: has imported samples but no checkpoints; import more samples, or run `oversharp "
            "audit` on the checkpoints and confirm that audit"
        )


def fresh_settings(settings: SamplingSettings) -> SamplingSettings:
    """Return the audit's settings with another seed.

    The settings id therefore differs, so fresh samples are never counted in the audit.
    """
    return replace(settings, seed=int(content_hash("confirm", settings.seed), 16) % 2**31)


def _shortlist(store: Store, key: AuditKey, most: int) -> _Shortlist:
    counts = store.frame(_COUNTS, series=key.series)
    whole = counts.groupby(["step", "checkpoint_id", "is_base"])[["n", "n_planned"]].apply(
        lambda rows: bool((rows["n"] == rows["n_planned"]).all())
    )
    complete = whole[whole].index.to_frame(index=False).sort_values(["is_base", "step"], ascending=[False, True])
    complete = complete.drop_duplicates("checkpoint_id")  # steps with equal weights share their samples
    counts = counts[counts["step"].isin(complete["step"])]
    base_ids = complete.loc[complete["is_base"], "checkpoint_id"].tolist()
    trained_ids = complete.loc[~complete["is_base"], "checkpoint_id"].tolist()
    if not base_ids or not trained_ids:
        lacking = "its base" if not base_ids else "a checkpoint after its base"
        raise StoreError(
            f"{store.path}: series {key.series!r} lacks graded samples of {lacking}; run its audit to the end"
        )
    window_ids = trained_ids[-window_size(len(trained_ids)) :]
    base = counts[counts["checkpoint_id"] == base_ids[0]].set_index("problem_id").sort_index()
    late = counts[counts["checkpoint_id"].isin(window_ids)].groupby("problem_id")[["n", "n_correct"]].sum().sort_index()
    lost, gained = shortlist(
        base["n_correct"].to_numpy(dtype=np.int64),
        late["n_correct"].to_numpy(dtype=np.int64),
        base["n"].to_numpy(dtype=np.int64),
        late["n"].to_numpy(dtype=np.int64),
        most=most,
    )
    ids = base.index.to_list()
    changes: dict[str, Change] = {ids[index]: "lost" for index in lost}
    changes.update({ids[index]: "gained" for index in gained})
    return _Shortlist(changes=changes, base_id=base_ids[0], late_id=window_ids[-1])


def _add_tested(store: Store, listed: _Shortlist, settings: SamplingSettings) -> _Shortlist:
    """Add every problem that was tested before, with the direction of its test."""
    earlier = store.frame(_TESTED, settings_id=settings.settings_id, checkpoint_id=listed.late_id)
    if earlier.empty:
        return listed
    tested = cast(dict[str, Change], dict(zip(earlier["problem_id"], earlier["change"], strict=True)))
    changes = {**listed.changes, **tested}
    return replace(
        listed,
        # a stable sort; "lost" precedes "gained"
        changes=dict(sorted(changes.items(), key=lambda item: item[1], reverse=True)),
        n_earlier=len(changes) - len(listed.changes),
        fresh=int(earlier["fresh"].max()),
    )


def _draw(
    store: Store,
    key: AuditKey,
    listed: _Shortlist,
    problems: Sequence[Problem],
    settings: SamplingSettings,
    fresh: int,
    config: ConfirmConfig,
    progress: ProgressSink,
) -> int:
    """Draw the missing samples and return their number.

    The checkpoints are needed only if some are missing.
    """
    planned = dict.fromkeys(listed.changes, fresh)
    if not any(
        missing_samples(store, settings.settings_id, checkpoint_id, planned, greedy=False)
        for checkpoint_id in (listed.base_id, listed.late_id)
    ):
        return 0
    pair = _locate_pair(store, key, listed, config)
    both = " and ".join(checkpoint.label for checkpoint in pair)
    progress.note(
        f"series {key.series}: {plural(fresh, 'fresh sample')} of each of {plural(len(planned), 'problem')} from {both}"
    )
    try:
        sampler, _ = choose_sampler(settings.sampler, pair, device=config.device)
    except SamplerError as error:
        why = str(error).removeprefix(f"--sampler {settings.sampler}: ").split("; use --sampler")[0]
        raise SamplerError(
            f"fresh samples need the audit's sampler {settings.sampler}, which cannot run here ({why}); confirm on the "
            "machine of the audit"
        ) from error
    endpoint = config.endpoint_settings(store.path.parent / LOG_FOLDER, compares_weights=False)
    if (sampler == "endpoint") != (endpoint is not None):
        fault = "a server generated the audit's samples" if endpoint is None else f"the audit's sampler is {sampler}"
        hint = "add --endpoint, --serve or --endpoints" if endpoint is None else "remove the flags of the server"
        raise ConfigError(f"--endpoint: {fault}, and fresh samples need the same sampler; {hint}")
    store.add_settings(settings)
    spec = EngineSpec(
        config=config,
        dtype=cast(Literal["float32", "bfloat16", "float16"], settings.dtype),
        sampler_name=sampler,
        why="as in the audit",
        lora_ranks=lora_ranks(pair),
        endpoint=endpoint,
    )
    with (
        closing(Engine(spec, note=progress.note)) as engine,
        Grader(store, key, problems, note=progress.note) as grader,
    ):
        audit = OpenAudit(store=store, key=key, engine=engine, grader=grader, problems=problems, progress=progress)
        return sum(
            sum(draw_samples(audit, {checkpoint: planned}, settings, greedy=False, stage="confirm").values())
            for checkpoint in pair
        )


def _locate_pair(
    store: Store, key: AuditKey, listed: _Shortlist, config: ConfirmConfig
) -> tuple[Checkpoint, Checkpoint]:
    """Return the base and the late checkpoint on disk. Their weights equal the audited ones."""
    places = [
        store.frame(_PLACES, series=key.series, checkpoint_id=checkpoint_id).iloc[0]
        for checkpoint_id in (listed.base_id, listed.late_id)
    ]
    base_path, late_path = (_current_path(place, config.path) for place in places)
    base_path = base_path if config.base is None else config.base
    for place, path in zip(places, (base_path, late_path), strict=True):
        if not path.is_dir():
            inside = Path(place["path"]).is_relative_to(place["run"])
            hint = "--path with the run directory" if inside else "--base with the base model's directory"
            raise CheckpointError(f"{place['checkpoint']}: {path} does not exist; pass {hint}")
    checkpoints = find_series([late_path], base=base_path).checkpoints
    by_id = {checkpoint.checkpoint_id: checkpoint for checkpoint in checkpoints}
    for place, path in zip(places, (base_path, late_path), strict=True):
        if place["checkpoint_id"] not in by_id:
            raise CheckpointError(
                f"{place['checkpoint']}: the weights of {path} differ from the audited ones "
                f"({place['checkpoint_id']}); restore them, or pass --path or --base with the directory that has them"
            )
    base, late = (
        replace(by_id[place["checkpoint_id"]], label=str(place["checkpoint"]), step=int(place["step"]))
        for place in places
    )
    return base, late


def _current_path(place: pd.Series, run_now: Path | None) -> Path:
    path, run = Path(place["path"]), Path(place["run"])
    if run_now is None or not path.is_relative_to(run):
        return path
    return run_now / path.relative_to(run)


def _test_changes(store: Store, listed: _Shortlist, settings: SamplingSettings, fresh: int) -> list[Confirmation]:
    counts = store.frame(_FRESH_COUNTS, settings_id=settings.settings_id, fresh=fresh)
    correct = counts.set_index(["checkpoint_id", "problem_id"])["n_correct"]
    rows = [
        (problem_id, change, int(correct[listed.base_id, problem_id]), int(correct[listed.late_id, problem_id]))
        for problem_id, change in listed.changes.items()
    ]
    # a gain is tested as a fall from the late checkpoint to the base
    before_P = np.array([base if change == "lost" else late for _, change, base, late in rows], dtype=np.int64)
    after_P = np.array([late if change == "lost" else base for _, change, base, late in rows], dtype=np.int64)
    p_P = fisher_fell(before_P, fresh, after_P, fresh)
    return [
        Confirmation(
            problem_id=problem_id,
            change=change,
            n_base=fresh,
            correct_base=base,
            n_late=fresh,
            correct_late=late,
            p=float(p),
            p_adjusted=float(adjusted),
        )
        for (problem_id, change, base, late), p, adjusted in zip(rows, p_P, holm(p_P), strict=True)
    ]
