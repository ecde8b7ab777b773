"""Measure the judge that graded a series, and record the result in the store.

The verdict then has caveats with the judge's measured errors in place of the caveat that the judge is unverified.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np

from oversharp.diagnostics.audit.freshness import update_verdict
from oversharp.diagnostics.audit.judges.compared import (
    CorrectedValue,
    LabelAgreement,
    Leniency,
    corrected_values,
    describe,
    find_leniency,
    label_agreement,
)
from oversharp.diagnostics.audit.judges.grades import JudgeGrades, judged_series, read_judged
from oversharp.diagnostics.audit.judges.labels import CheckpointLabels, read_label_file, write_label_file
from oversharp.diagnostics.audit.judges.probes import JudgeProbes, probe_judge
from oversharp.diagnostics.audit.judges.recorded import JUDGE_STAGE, unverified_caveat
from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.cells import short_repr
from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.names import require_store_file
from oversharp.diagnostics.records.progress import ProgressSink, SilentProgress
from oversharp.diagnostics.records.settings import require_at_least
from oversharp.diagnostics.records.types import content_hash
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.load import left_out_checkpoints, stored_problems
from oversharp.diagnostics.verdict.record import Verdict
from oversharp.diagnostics.verifiers import named_verifier
from oversharp.diagnostics.verifiers.judges.judge import JudgeVerifier
from oversharp.diagnostics.verifiers.names import is_judge

#: Name of the label file next to the store.
LABEL_FILE = "labels.jsonl"
_TEXTS = "SELECT DISTINCT response_id, text FROM samples WHERE list_contains($ids::VARCHAR[], response_id)"


@dataclass(frozen=True, kw_only=True)
class JudgeResult:
    """Measurements of a judge, or the file to label.

    ``drawn`` is the number of responses that were written to ``label_file``; then nothing else was measured, and
    ``verdict`` is None. ``probes`` is None without requests. ``uncorrected`` maps steps without enough labels to the
    reason. ``leniency`` is a text if it could not be tested. ``sentences`` are the verdict's caveats on the judge.
    """

    series: str
    verifier: str
    store_path: Path
    report_path: Path
    verdict: Verdict | None = None
    probes: JudgeProbes | None = None
    label_file: Path | None = None
    drawn: int | None = None
    agreement: tuple[LabelAgreement, ...] = ()
    corrected: tuple[CorrectedValue, ...] = ()
    uncorrected: Mapping[int, str] = field(default_factory=dict)
    leniency: Leniency | str | None = None
    sentences: tuple[str, ...] = ()

    __repr__ = short_repr


def measure_judge(
    store_path: Path,
    verifier: str,
    *,
    series: str | None = None,
    labels: Path | None = None,
    draw_labels: int | None = None,
    draw_k: int = 1,
    steps: Sequence[int] = (),
    probes: int = 50,
    progress: ProgressSink | None = None,
) -> JudgeResult:
    """Measure the judge ``verifier`` on the responses of a store, or with ``draw_labels`` write a file to label.

    The caller writes the report. Raises ``ConfigError`` for wrong arguments, a judge or labels that cannot be used, and
    a judge that graded no series; ``EndpointError`` if the server fails.
    """
    progress = progress or SilentProgress()
    if not is_judge(verifier):
        raise ConfigError(f"--verifier {verifier}: not a judge; pass judge:FILE.toml")
    require_at_least("--probes", probes, 0)
    require_at_least("--draw-labels", draw_labels, 1)
    if steps and draw_labels is None:
        raise ConfigError("--steps: chooses checkpoints to label; add --draw-labels N")
    require_store_file(store_path)
    name = named_verifier(verifier)
    with Store.open(store_path) as store:
        key = judged_series(store, name, series)
        judged = read_judged(store, key)
        result = JudgeResult(
            series=key.series, verifier=name, store_path=store_path, report_path=store_path.parent / "report.html"
        )
        if draw_labels is not None:
            path = labels or store_path.parent / LABEL_FILE
            chosen = sorted({judged.base.step, *(steps or [max(judged.by_step)])})
            drawn = write_label_file(store, judged, path, steps=chosen, n_labels=draw_labels, k=draw_k)
            return replace(result, label_file=path, drawn=drawn)
        start = time.monotonic()
        read = {} if labels is None else read_label_file(labels, judged)
        for step, own in read.items():
            if own.n_unused:
                progress.note(f"step {step}: {plural(own.n_unused, 'set')} not used, from the first unfinished one on")
        measured = None if probes == 0 else _probe(store, judged, name, probes)
        agreement = label_agreement(judged, read)
        corrected, uncorrected = corrected_values(judged, read)
        leniency = find_leniency(store, judged, name)
        sentences = _sentences(name, measured, read, agreement, corrected, uncorrected, leniency)
        result = replace(
            result,
            probes=measured,
            label_file=labels,
            agreement=agreement,
            corrected=corrected,
            uncorrected=uncorrected,
            leniency=leniency,
            sentences=sentences,
        )
        recorded = {name: value for name, value in asdict(result).items() if name not in ("store_path", "report_path")}
        store.log_event(
            key, JUDGE_STAGE, wall_s=time.monotonic() - start, rows=0, note=json.dumps(recorded, default=str)
        )
        failed, skipped = left_out_checkpoints(store, key.series)
        verdict = update_verdict(store, key, failed, skipped, progress)
    return replace(result, verdict=verdict)


def _probe(store: Store, judged: JudgeGrades, name: str, n: int) -> JudgeProbes | None:
    """Probe the judge with responses of random problems, alternately of the base and of the last checkpoint."""
    rng = np.random.default_rng(int(content_hash("probes", judged.key.settings_id, *judged.problem_ids)[:15], 16))
    ends = (judged.base, judged.by_step[max(judged.by_step)])
    chosen: list[tuple[str, str]] = []
    for number, place in enumerate(rng.permutation(len(judged.problem_ids))[:n].tolist()):
        response_N = ends[number % 2].response_PN[place]
        chosen.append((judged.problem_ids[place], str(response_N[rng.integers(len(response_N))])))
    texts = store.frame(_TEXTS, ids=[own for _, own in chosen]).set_index("response_id")["text"]
    problems = stored_problems(store, [problem_id for problem_id, _ in chosen])
    judge = JudgeVerifier(name)
    try:
        return probe_judge(
            judge, [(problem, str(texts[own])) for problem, (_, own) in zip(problems, chosen, strict=True)]
        )
    finally:
        judge.close()


def _sentences(
    name: str,
    probes: JudgeProbes | None,
    labels: Mapping[int, CheckpointLabels],
    agreement: tuple[LabelAgreement, ...],
    corrected: tuple[CorrectedValue, ...],
    uncorrected: Mapping[int, str],
    leniency: Leniency | str,
) -> tuple[str, ...]:
    sentences = [] if any(one.n_labels for one in labels.values()) else [unverified_caveat(name)]
    sentences += describe(name, agreement, corrected, uncorrected, leniency)
    if probes is not None:
        if probes.agreement < 1.0:
            sentences.append(
                f"Repeated verdicts of the judge agree for {probes.agreement:.0%} of {probes.n} responses."
            )
        biased = [
            f"{result.name} ({result.n_accepted} of {result.n} more accepted, {result.n_refused} refused)"
            for result in probes.results
            if result.is_biased
        ]
        if biased:
            sentences.append(
                f"Planted changes that should not matter changed the judge's verdicts: {', '.join(biased)}."
            )
    return tuple(sentences)
