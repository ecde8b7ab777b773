"""Read the report's data from the store with SQL."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.errors import StoreError
from oversharp.diagnostics.records.prompts import prompt_titles
from oversharp.diagnostics.statistics.stopping import StoppingRule
from oversharp.diagnostics.store.load import Frames, why_no_audit, why_untested
from oversharp.diagnostics.verdict.record import Verdict
from oversharp.diagnostics.verdict.words.numbers import ranges_text
from oversharp.reports.evidence.findings import read_findings
from oversharp.reports.evidence.sample_counts import mean_samples, read_problem_counts, sample_settings


@dataclass(frozen=True, kw_only=True)
class SeriesSource:
    """Audited series.

    ``checkpoints`` has the columns ``step, checkpoint, checkpoint_id, is_base`` in order of the steps. ``verdict`` is
    None if the audit predates verdicts.
    """

    name: str
    audit_id: str
    path: str
    n: int
    n_base: int
    first_round: int | None  # samples of the first round of a stopping rule; None if every problem has n samples
    enough: int | None  # correct samples at which the rule stops a problem
    mean_n: float  # mean number of samples of a problem at a checkpoint after the base
    mean_n_base: float
    ks: tuple[int, ...]
    updated_at: str
    settings_id: str
    settings: Mapping[str, Any]
    provenance: Mapping[str, Any]
    unusable: Mapping[str, int]  # reason → number of records that the import skipped
    checkpoints: pd.DataFrame
    last_step: int  # last step with samples; checkpoints that failed to load have no samples
    problem_ids: frozenset[str]
    graders: tuple[str, ...]
    verifier: str | None  # verifier of a regraded series; None if each problem's own verifier graded the samples
    verdict: Verdict | None

    @property
    def is_stopped(self) -> bool:
        """Whether each problem was sampled until it was solved, up to ``n`` samples."""
        return self.first_round is not None

    def rule(self, *, is_base: bool) -> StoppingRule | None:
        """Return the stopping rule of the base or of the other checkpoints, None without one."""
        if self.first_round is None or self.enough is None:
            return None
        cap = self.n_base if is_base else self.n
        return StoppingRule.doubling(first=self.first_round, cap=cap, enough=self.enough)

    def samples_text(self, noun: str = "sample", *, is_base: bool = False) -> str:
        """Return the number of samples per problem and checkpoint, such as "16 to 256 samples"."""
        n = self.n_base if is_base else self.n
        if self.first_round is None or self.first_round >= n:
            return plural(n, noun)
        return f"{self.first_round:,} to {plural(n, noun)}"

    @property
    def stop_text(self) -> str:
        """The stopping rule as a clause, such as ", until 4 are correct (mean 62)"; "" without one."""
        if self.enough is None:
            return ""
        return f", until {self.enough} {'is' if self.enough == 1 else 'are'} correct (mean {self.mean_n:.0f})"

    def step_text(self, step: int) -> str:
        """Return the step as text, as λ for a repaired series."""
        return ranges_text([(step, step)], repaired=self.is_repaired)

    @property
    def is_repaired(self) -> bool:
        """Whether its checkpoints are interpolations between base and a checkpoint; a step is λ in hundredths."""
        return self.verdict is not None and self.verdict.repaired

    @cached_property
    def why_untested(self) -> str | None:
        """Reason why single problems are not tested, such as dependent samples; None if they are tested."""
        return why_untested(self.verdict)

    @cached_property
    def base_step(self) -> int:
        """Step of the base checkpoint."""
        return int(self.checkpoints.loc[self.checkpoints["is_base"], "step"].iloc[0])

    @property
    def base_id(self) -> Hashable:
        """Key of the base, equal for series with the same base.

        It is the hash of the base's weights. Imported samples have no weights. Their key is the group of series that
        `oversharp ship` compares, because these have identical samples of the base.
        """
        recommendation = self.verdict.shipping if self.is_recorded and self.verdict is not None else None
        if recommendation is not None:
            return recommendation.series
        return str(self.checkpoints.loc[self.checkpoints["is_base"], "checkpoint_id"].iloc[0])

    @property
    def is_recorded(self) -> bool:
        """Whether the samples were imported, so that there are no checkpoints to sample from."""
        return bool((self.checkpoints["kind"] == "recorded").all())

    @property
    def shown_steps(self) -> tuple[int, ...]:
        """Base, middle and last step. Figures with one curve per checkpoint show these."""
        steps = [int(step) for step in self.checkpoints["step"] if self.base_step != int(step) <= self.last_step]
        if len(steps) < 2:
            return (self.base_step, *steps)
        return (self.base_step, steps[(len(steps) - 1) // 2], steps[-1])


@dataclass(frozen=True, kw_only=True)
class Source:
    """Data of the report, read from the store.

    Attributes:
        store_link: Path of the store relative to the report.
        problem_counts: ``series, step, is_base, problem_id, n, n_correct, solved``. The number of samples of a problem
            is equal at every checkpoint. With a stopping rule it is that at which the problem stopped. ``solved`` is
            whether a sample up to the smallest cap is correct, NULL if that is unknown.
        last_counts: ``series, task, problem_id, cluster, n, n_correct`` of all samples at the last checkpoint of every
            series; empty for a single series.
        disagreements: Some responses that two verifiers grade differently; ``n_all`` is the number of all in the
            series.
    """

    store_name: str
    store_link: str
    series: tuple[SeriesSource, ...]
    findings: pd.DataFrame
    problem_counts: pd.DataFrame
    last_counts: pd.DataFrame
    disagreements: pd.DataFrame
    problems: pd.DataFrame
    training: pd.DataFrame
    events: pd.DataFrame
    schema_version: str

    def value_at(
        self, measure: str, series: str, step: int, *, k: int | None = None, scope: str = "all"
    ) -> pd.Series[Any] | None:
        """Return the finding of ``measure`` for this series, step, k and scope; None if it has no value."""
        place = self._places.get((measure, series, step, k, scope))
        return None if place is None else self.findings.iloc[place]

    def findings_of(self, measure: str) -> pd.DataFrame:
        """Return the findings of ``measure``, including those without a value."""
        return self._by_measure.get(measure, self.findings.iloc[:0])

    def known_findings(self, measure: str, *, scope: str | None = "all", series: str | None = None) -> pd.DataFrame:
        """Return the findings of ``measure`` that have a value. ``scope`` None selects all scopes."""
        rows = self.findings_of(measure)
        chosen = rows["value"].notna()
        if scope is not None:
            chosen &= rows["scope"] == scope
        if series is not None:
            chosen &= rows["series"] == series
        return rows[chosen]

    @cached_property
    def scopes(self) -> frozenset[str]:
        """Scopes of all findings."""
        return frozenset(self.findings["scope"].unique())

    @cached_property
    def _by_measure(self) -> Mapping[str, pd.DataFrame]:
        """Findings by measure. Selecting them from all findings for each figure would be slow."""
        return {str(name): rows for name, rows in self.findings.groupby("measure", sort=False)}

    @cached_property
    def titles(self) -> Mapping[str, str]:
        """Problem id → title, which is the shortest distinctive part of the prompt.

        It differs from the prompts of other problems of the same task, and of the same series. The task alone is not
        enough: the task of an imported problem is the first series that contained it, so it may be its only problem.
        """
        prompts = {
            str(problem_id): str(prompt)
            for problem_id, prompt in self.problems[["problem_id", "prompt"]].itertuples(index=False)
        }
        tasks = [
            [str(problem_id) for problem_id in own]
            for _, own in self.problems.groupby("task", sort=False)["problem_id"]
        ]
        titles = dict(prompts)
        for ids in (
            *tasks,
            *([problem_id for problem_id in prompts if problem_id in series.problem_ids] for series in self.series),
        ):
            for problem_id, title in zip(ids, prompt_titles([prompts[member_id] for member_id in ids]), strict=True):
                titles[problem_id] = min(titles[problem_id], title, key=len)
        return titles

    @cached_property
    def _places(self) -> Mapping[tuple[str, str, int, int | None, str], int]:
        """Index of the findings that have a value. Without it, the hundreds of look-ups of a report would be slow."""
        columns = self.findings[["measure", "series", "step", "k", "scope", "value"]]
        places: dict[tuple[str, str, int, int | None, str], int] = {}
        for place, row in enumerate(columns.itertuples(index=False)):
            if not pd.isna(row.value):
                k = None if pd.isna(row.k) else int(row.k)
                places.setdefault((row.measure, row.series, int(row.step), k, row.scope), place)
        return places


_AUDITS = """
SELECT a.series, a.audit_id, s.path, a.settings_id, a.n, a.n_base, a.first_round, a.enough, a.entropy_samples, a.panel,
       a.ks, a.strategy_regex, a.verifier,
       t.temperature AS panel_temperature, t.seed AS panel_seed, w.n_fewer,
       strftime(a.updated_at, '%Y-%m-%d %H:%M:%S') AS updated_at, CAST(a.provenance AS VARCHAR) AS provenance
FROM current_audits AS a
JOIN series AS s USING (series)
JOIN (
    SELECT audit_id, count(*) FILTER (n_planned < n AND first_round IS NULL) AS n_fewer
    FROM planned_samples JOIN audits USING (audit_id)
    GROUP BY audit_id
) AS w USING (audit_id)
LEFT JOIN settings AS t ON t.settings_id = a.panel_settings_id
ORDER BY a.verifier IS NOT NULL, a.series  -- regraded series last
"""
_CHECKPOINTS = """
SELECT c.series, c.step, c.checkpoint, c.checkpoint_id, c.is_base, k.kind, c.path
FROM series_checkpoints AS c
JOIN current_audits AS a USING (series)
LEFT JOIN checkpoints AS k USING (checkpoint_id)
ORDER BY c.series, c.step
"""
_COUNTED = ("series", "task", "problem_id", "cluster", "n", "n_correct")
_LAST_COUNTS = """
SELECT c.series, c.task, c.problem_id, ap.cluster, c.n, c.n_correct
FROM sampled_counts AS c
JOIN current_audits AS a USING (series)
JOIN audit_problems AS ap USING (audit_id, problem_id)
WHERE c.series = $series AND c.step = $step
ORDER BY c.problem_id
"""
_VERDICTS = """
SELECT series, CAST(document AS VARCHAR) AS document
FROM verdicts
ORDER BY series
"""
_PROBLEMS = """
SELECT DISTINCT p.problem_id, p.task, left(p.prompt, 8000) AS prompt, left(p.gold, 400) AS gold, p.verifier, p.source_id
FROM current_audits AS a
JOIN audit_problems AS ap USING (audit_id)
JOIN problems AS p USING (problem_id)
ORDER BY p.problem_id
"""
_MEMBERSHIP = """
SELECT a.series, ap.problem_id, coalesce(a.verifier, p.verifier) AS verifier
FROM current_audits AS a
JOIN audit_problems AS ap USING (audit_id)
JOIN problems AS p USING (problem_id)
ORDER BY a.series, ap.problem_id
"""
# for each problem, the latest disagreement with `correct` true and the latest with false; at most 20 per series
_DISAGREEMENTS = """
WITH ranked AS (
    SELECT
        d.series, d.step, d.problem_id, p.source_id, d.verifier, d.answer, d.correct, d.state,
        d.own_verifier, d.own_answer, d.own_state, d.n, right(d.text, 400) AS ending,
        count(*) OVER (PARTITION BY d.series) AS n_all,
        row_number() OVER (
            PARTITION BY d.series, d.problem_id, d.correct
            ORDER BY d.step DESC, d.n DESC, d.response_id
        ) AS place
    FROM grade_disagreements AS d
    JOIN problems AS p USING (problem_id)
)
SELECT * EXCLUDE (place)
FROM ranked
WHERE place = 1
QUALIFY row_number() OVER (PARTITION BY series ORDER BY step DESC, n DESC, problem_id, correct) <= 20
ORDER BY series, step DESC, n DESC, problem_id, correct
"""
_TRAINING = """
SELECT t.series, t.step, t.name, t.value
FROM training_metrics AS t
JOIN current_audits AS a USING (series)
ORDER BY t.series, t.name, t.step
"""
_EVENTS = """
SELECT a.series, e.stage, count(*) AS runs, sum(e.wall_s) AS wall_s, sum(e.rows_written) AS rows_written
FROM events AS e
JOIN current_audits AS a USING (audit_id)
GROUP BY ALL
ORDER BY a.series, min(e.logged_at), e.stage
"""


def read_source(
    store: Frames, store_name: str, series: tuple[str, ...] | None = None, *, store_link: str | None = None
) -> Source:
    """Read the current audits of ``series`` (default: all). The order of ``series`` determines the colours.

    ``store_link`` is the path of the store relative to the report. By default both are in the same folder. Raises
    ``StoreError`` if there is no such audit.
    """
    audits = store.frame(_AUDITS)
    regraded = len(store.frame("SELECT 1 FROM current_audits WHERE verifier IS NOT NULL LIMIT 1"))
    names = tuple(str(name) for name in audits["series"]) if series is None else tuple(dict.fromkeys(series))
    audited = {str(name) for name in audits["series"]}
    if not names:
        raise StoreError(f"{store_name}: {why_no_audit(store)}")
    for name in names:
        if name not in audited:
            raise StoreError(
                f"{store_name}: no audit of series {name!r}; available: {', '.join(sorted(audited)) or 'none'}"
            )
    settings = store.frame("FROM settings LEFT JOIN agent_settings USING (settings_id) ORDER BY settings_id")
    settings = settings.set_index("settings_id")
    checkpoints = store.frame(_CHECKPOINTS)
    membership = store.frame(_MEMBERSHIP)
    counts = read_problem_counts(store, audits)
    verdicts = {str(row["series"]): str(row["document"]) for row in store.frame(_VERDICTS).to_dict("records")}
    faults = store.frame("SELECT series, why, sum(n) AS n FROM import_faults GROUP BY series, why ORDER BY series, why")
    rows = {str(audit["series"]): audit for _, audit in audits.iterrows()}
    version = store.frame("SELECT max(version) AS version FROM schema_version")

    def select_series(frame: pd.DataFrame) -> pd.DataFrame:
        return frame[frame["series"].isin(names)].reset_index(drop=True)

    sources = tuple(
        _series_source(rows[name], settings, checkpoints, membership, counts, faults, verdicts.get(name))
        for name in names
    )
    return Source(
        store_name=store_name,
        store_link=store_link or store_name,
        series=sources,
        findings=read_findings(store, names, checkpoints),
        problem_counts=select_series(counts),
        last_counts=_last_counts(store, sources),
        disagreements=select_series(store.frame(_DISAGREEMENTS if regraded else f"{_DISAGREEMENTS} LIMIT 0")),
        problems=store.frame(_PROBLEMS),
        training=select_series(store.frame(_TRAINING)),
        events=select_series(store.frame(_EVENTS)),
        schema_version=str(version["version"].iloc[0]),
    )


def _series_source(
    audit: pd.Series[Any],
    settings: pd.DataFrame,
    checkpoints: pd.DataFrame,
    membership: pd.DataFrame,
    counts: pd.DataFrame,
    faults: pd.DataFrame,
    verdict: str | None,
) -> SeriesSource:
    name = str(audit["series"])
    own = checkpoints[checkpoints["series"] == name].drop(columns="series").reset_index(drop=True)
    if own.empty or not own["is_base"].any():
        raise StoreError(f"series {name!r} has no base checkpoint in this store; run `oversharp audit` on it again")
    sampled = counts.loc[counts["series"] == name, "step"]
    row = settings.loc[str(audit["settings_id"])]
    values = {str(key): None if pd.isna(value) else value for key, value in row.items()}
    for setting in ("environment", "max_turns"):
        if values[setting] is None:  # plain responses
            del values[setting]
    return SeriesSource(
        name=name,
        audit_id=str(audit["audit_id"]),
        path=str(audit["path"]),
        n=int(audit["n"]),
        n_base=int(audit["n_base"]),
        first_round=None if pd.isna(audit["first_round"]) else int(audit["first_round"]),
        enough=None if pd.isna(audit["enough"]) else int(audit["enough"]),
        mean_n=mean_samples(counts, name, is_base=False),
        mean_n_base=mean_samples(counts, name, is_base=True),
        ks=tuple(sorted(int(k) for k in audit["ks"])),
        updated_at=str(audit["updated_at"]),
        settings_id=str(audit["settings_id"]),
        settings={
            **values,
            **sample_settings(audit, counts),
            "samples used for token entropy": int(audit["entropy_samples"]),
            **_panel_settings(audit),
            "strategy_regex": str(audit["strategy_regex"]),
        },
        provenance=json.loads(str(audit["provenance"])),
        unusable={str(row["why"]): int(row["n"]) for row in faults[faults["series"] == name].to_dict("records")},
        checkpoints=own,
        last_step=int(own["step"].iloc[0] if sampled.empty else sampled.max()),
        problem_ids=frozenset(membership.loc[membership["series"] == name, "problem_id"]),
        graders=tuple(sorted({str(v) for v in membership.loc[membership["series"] == name, "verifier"]})),
        verifier=None if pd.isna(audit["verifier"]) else str(audit["verifier"]),
        verdict=None if verdict is None else Verdict.from_json(verdict),
    )


def _last_counts(store: Frames, series: tuple[SeriesSource, ...]) -> pd.DataFrame:
    """Return the counts of all samples at the last checkpoints. A single series needs none, and the query is slow."""
    compared = series if len(series) > 1 else ()
    frames = [store.frame(_LAST_COUNTS, series=member.name, step=member.last_step) for member in compared]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=list(_COUNTED))


def _panel_settings(audit: pd.Series[Any]) -> dict[str, Any]:
    if not audit["panel"]:
        return {"panel responses per problem": 0}
    return {
        "panel responses per problem": int(audit["panel"]),
        "panel temperature": float(audit["panel_temperature"]),
        "panel seed": int(audit["panel_seed"]),
    }
