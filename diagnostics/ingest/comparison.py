"""Compare our grades with the tool's scores, and several scores of a tool with each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, groupby
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float

from oversharp.diagnostics.ingest.assign import problem_of, step_of, step_of_file, task_of
from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.ingest.formats.contract import Fault, ReadOptions, Recorded, ScoreTable, ToolScore
from oversharp.diagnostics.ingest.plan import PlannedFile
from oversharp.diagnostics.ingest.problems import KnownProblems
from oversharp.diagnostics.ingest.selection import read_samples
from oversharp.diagnostics.ingest.trajectories import recorded_response_id
from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.errors import ImportFileError
from oversharp.diagnostics.statistics.pass_at_k import pass_at_k_table
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.verdict.rule import MARGIN
from oversharp.diagnostics.verdict.words.numbers import signed_text
from oversharp.diagnostics.verifiers.names import RECORDED

#: Largest rounding error of a score: tools write fractions of n responses with at least four decimals.
TOLERANCE = 1e-4
#: Number of responses whose grades one query loads.
RESPONSES_PER_QUERY = 20_000
#: Number of distinct rewards that a warning lists.
REWARDS_LISTED = 5
#: Smallest reported difference between the changes of two scores, in standard errors paired over problems. It
#: corresponds to a two-sided level of 0.3 %.
_LEAST_ERRORS = 3.0


@dataclass(frozen=True, kw_only=True)
class Disagreement:
    """Differences between our grades and the tool's scores, for one file, task and step.

    ``n_compared`` counts problems, or responses if ``of_responses``. ``n_differ`` of them differ. The first difference
    is in line ``first_line``, with scores ``first_tool`` and ``first_ours``. ``tool_mean`` and ``our_mean`` are over
    all compared units.
    """

    path: Path
    tool: str
    task: str
    step: int
    metric: str
    verifier: str
    tool_mean: float
    our_mean: float
    n_compared: int
    n_differ: int
    of_responses: bool
    first_line: int
    first_tool: float
    first_ours: float
    regraded: bool

    @property
    def sentence(self) -> str:
        """Warning with the differences and a hint."""
        units = "responses" if self.of_responses else "problems"
        hint = "without --regrade the tool's scores are used" if self.regraded else _HINT
        return (
            f"{self.path}: task {self.task}, step {self.step}: grades differ from those of {self.tool}: "
            f"{self.metric} is {_format_value(self.tool_mean)} by {self.tool} and {_format_value(self.our_mean)} by "
            f"{self.verifier}; {self.n_differ} of {self.n_compared} {units} differ, the first in line "
            f"{self.first_line} ({_format_value(self.first_tool)} and {_format_value(self.first_ours)}). The verdict "
            f"uses the grades of {self.verifier}; {hint}"
        )


_HINT = "import under another --name with another --verifier, or with --reward to compare with another metric"


@dataclass(frozen=True, kw_only=True)
class PartialRewards:
    """Rewards of one task between wrong and right, if the user did not pass ``--correct-at``.

    ``n_of`` has pairs (reward, number of samples). ``n_correct`` samples have a reward of at least ``least``.
    """

    tool: str
    task: str
    n_of: tuple[tuple[float, int], ...]
    n_correct: int
    least: float

    @property
    def sentence(self) -> str:
        """Warning with the rewards, the number of correct samples, and the flag that sets the threshold."""
        total = sum(n for _, n in self.n_of)
        frequent = sorted(sorted(self.n_of, key=lambda pair: -pair[1])[:REWARDS_LISTED])
        listed = ", ".join(f"{_format_value(reward)} ({n})" for reward, n in frequent)
        more = f" and {len(self.n_of) - len(frequent)} others" if len(self.n_of) > len(frequent) else ""
        return (
            f"task {self.task}: {self.tool} has rewards between wrong and right: {listed}{more}. {self.n_correct} of "
            f"{total} samples count as correct: their reward is at least {_format_value(self.least)}. To change this "
            "threshold, import under another --name with --correct-at"
        )


def _format_value(value: float) -> str:
    return f"{value:.4g}"


def compare_grades(
    store: Store, files: Sequence[PlannedFile], verifier: str, config: ImportConfig, problems: KnownProblems
) -> tuple[list[Disagreement], int]:
    """Return where grades of ``verifier`` differ from the tool's scores, and the number of scores not compared.

    The files are read again because the store has no tool scores. A score is not compared if any of its responses has
    no grade. ``problems`` maps samples to problems.
    """
    disagreements: list[Disagreement] = []
    n_not_compared = 0
    for file in files:
        tallies: dict[tuple[str, int, str], _Tally] = {}
        for claims in _batch_claims(_read_claims(file, verifier, config, problems)):
            grades = _load_grades(store, claims, verifier)
            for claim in claims:
                graded = [grades.get((claim.problem_id, response)) for response in claim.response_ids]
                if None in graded:
                    n_not_compared += 1
                else:
                    n_correct = sum(map(bool, graded))
                    ours = _pass_at_k(n_correct, claim.score)
                    tallies.setdefault((claim.task, claim.step, claim.score.metric), _Tally()).add(claim, ours)
        disagreements += [tally.disagreement(file, verifier, config) for tally in tallies.values() if tally.n_differ]
    return disagreements, n_not_compared


def partial_rewards(
    store: Store, series: str, settings_id: str, verifier: str, config: ImportConfig
) -> list[PartialRewards]:
    """Return the tasks with rewards between wrong and right; empty with ``--correct-at``."""
    if config.correct_at is not None or not _has_partial(store, verifier, config):
        return []
    rows = store.frame(
        """
        SELECT p.task, g.reward, count(*) AS n, g.correct
        FROM series_checkpoints AS c
        JOIN samples AS s USING (checkpoint_id)
        JOIN grades AS g USING (problem_id, response_id)
        JOIN problems AS p USING (problem_id)
        WHERE c.series = $series AND s.settings_id = $settings_id AND g.verifier = $verifier
        GROUP BY ALL
        ORDER BY ALL
        """,
        series=series,
        settings_id=settings_id,
        verifier=verifier,
    )
    return [
        PartialRewards(
            tool=verifier.removeprefix(RECORDED),
            task=str(task),
            n_of=tuple(zip(of_task["reward"].tolist(), of_task["n"].tolist(), strict=True)),
            n_correct=int(of_task.loc[of_task["correct"], "n"].sum()),
            least=config.least_correct,
        )
        for task, of_task in rows.groupby("task", sort=True)
        if _are_partial(of_task["reward"], config)
    ]


def _has_partial(store: Store, verifier: str, config: ImportConfig) -> bool:
    """Return whether any reward in the store is partial.

    This query is cheaper than one over all samples.
    """
    rewards = store.frame("SELECT DISTINCT reward FROM grades WHERE verifier = $verifier", verifier=verifier)["reward"]
    return _are_partial(rewards, config)


def _are_partial(rewards: pd.Series, config: ImportConfig) -> bool:
    least, full = min(0.0, rewards.min()), max(config.least_correct, rewards.max())
    return bool(((rewards > least) & (rewards < full)).any())


# ---------------------------------------------------------------- the tool's scores


@dataclass(frozen=True, kw_only=True)
class _Claim:
    line: int
    step: int
    task: str
    problem_id: str
    response_ids: tuple[str, ...]
    score: ToolScore


def _read_claims(file: PlannedFile, verifier: str, config: ImportConfig, problems: KnownProblems) -> Iterator[_Claim]:
    """Yield the tool's scores in a file, up to the first unreadable part."""
    try:
        for _, same_line in groupby(read_samples(file, config), key=lambda item: item.line):
            of_line = [item for item in same_line if not isinstance(item, Fault)]
            for place, item in enumerate(of_line):
                score, step = _score_of(item, config), step_of(item, file, config)
                if score is None or step is None or (config.steps and step not in config.steps):
                    continue
                scored = [follower for follower in of_line[place:] if follower.prompt == item.prompt][: score.n]
                if len(scored) == score.n:
                    problem = problem_of(item, file, verifier, config.gold)
                    yield _Claim(
                        line=item.line,
                        step=step,
                        task=problem.task,
                        problem_id=problems.find(item, task_of(item, file)) or problem.problem_id,
                        response_ids=tuple(recorded_response_id(follower) for follower in scored),
                        score=score,
                    )
    except ImportFileError:  # the import reports this error
        return


def _score_of(item: Recorded, config: ImportConfig) -> ToolScore | None:
    if item.reward is None:
        return item.claim
    return ToolScore(config.reward or "score", float(item.reward >= config.least_correct), 1)


def _batch_claims(claims: Iterator[_Claim]) -> Iterator[list[_Claim]]:
    part: list[_Claim] = []
    n_responses = 0
    for claim in claims:
        part.append(claim)
        n_responses += len(claim.response_ids)
        if n_responses >= RESPONSES_PER_QUERY:
            yield part
            part, n_responses = [], 0
    if part:
        yield part


def _load_grades(store: Store, claims: Sequence[_Claim], verifier: str) -> dict[tuple[str, str], bool]:
    pairs = {(claim.problem_id, response) for claim in claims for response in claim.response_ids}
    rows = store.frame(
        """
        WITH wanted AS (
            SELECT unnest($problem_ids::VARCHAR[]) AS problem_id, unnest($response_ids::VARCHAR[]) AS response_id
        )
        SELECT problem_id, response_id, correct
        FROM grades
        SEMI JOIN wanted USING (problem_id, response_id)
        WHERE verifier = $verifier
        """,
        problem_ids=[problem for problem, _ in pairs],
        response_ids=[response for _, response in pairs],
        verifier=verifier,
    )
    return {(row.problem_id, row.response_id): bool(row.correct) for row in rows.itertuples(index=False)}


def _pass_at_k(n_correct: int, score: ToolScore) -> float:
    return n_correct / score.n if score.k == 1 else float(_pass_table(score.n, score.k)[n_correct])


@lru_cache(maxsize=64)
def _pass_table(n: int, k: int) -> Float[np.ndarray, " correct"]:
    table: Float[np.ndarray, " correct"] = pass_at_k_table(n, [k])[:, 0]
    return table


class _Tally:
    """Running sums of scores and grades of one file, task, step and metric."""

    def __init__(self) -> None:
        self.n_differ = 0
        self._n = 0
        self._tool = self._ours = 0.0
        self._first: tuple[_Claim, float] | None = None

    def add(self, claim: _Claim, ours: float) -> None:
        """Add a score."""
        self._n += 1
        self._tool += claim.score.value
        self._ours += ours
        if abs(ours - claim.score.value) > TOLERANCE:
            self.n_differ += 1
            self._first = self._first or (claim, ours)

    def disagreement(self, file: PlannedFile, verifier: str, config: ImportConfig) -> Disagreement:
        """Return the disagreement. At least one score must differ."""
        assert self._first is not None
        claim, ours = self._first
        return Disagreement(
            path=file.path,
            tool=file.importer.name,
            task=claim.task,
            step=claim.step,
            metric=claim.score.metric,
            verifier=verifier,
            tool_mean=self._tool / self._n,
            our_mean=self._ours / self._n,
            n_compared=self._n,
            n_differ=self.n_differ,
            of_responses=claim.score.n == 1,
            first_line=claim.line,
            first_tool=claim.score.value,
            first_ours=ours,
            regraded=config.regrade,
        )


# ---------------------------------------------------------------- several scores of one response


@dataclass(frozen=True, kw_only=True)
class ScoreNotes:
    """Notes about a series whose tool gave each response several scores.

    ``notes`` list the scores and name the score that is used. ``doubts`` are warnings where scores change differently
    between checkpoints.
    """

    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()


def compare_scores(files: Sequence[PlannedFile], config: ImportConfig) -> ScoreNotes:
    """Read all scores of the files, and compare their changes from the first step to every later step."""
    notes, doubts = [], []
    options = ReadOptions(fields=config.map, reward=config.reward)
    by_task: dict[str, dict[int, ScoreTable]] = {}
    for file in files:
        step = step_of_file(file, config)
        if step is None or (config.steps and step not in config.steps):
            continue
        try:
            table = file.importer.score_table(file.path, options)
        except ImportFileError:  # the import reports this error
            continue
        if table is not None:
            tables = by_task.setdefault(file.task or file.series, {})
            tables[step] = _merge_tables(tables[step], table) if step in tables else table
    for task, tables in by_task.items():
        first = tables[min(tables)]
        names = list(first.score_of)
        notes.append(
            f"task {task}: {plural(len(names), 'score')} of each response ({', '.join(names)}). {_reward_hint(first)}"
        )
        differing = max(_find_differences(tables), key=lambda movement: movement.difference, default=None)
        if differing is not None:
            doubts.append(differing.sentence(task, first))
    return ScoreNotes(notes=tuple(notes), doubts=tuple(doubts))


@dataclass(frozen=True, kw_only=True)
class _Movement:
    """Changes of the mean of two scores from step ``base`` to ``step``, over the same problems.

    Unit: probability.
    """

    base: int
    step: int
    names: tuple[str, str]
    changes: tuple[float, float]
    n_problems: int

    @property
    def difference(self) -> float:
        """Absolute difference between the two changes."""
        return abs(self.changes[0] - self.changes[1])

    def sentence(self, task: str, table: ScoreTable) -> str:
        """Return the warning text."""
        moved = " and ".join(
            f"{name} by {signed_text(change)}" for name, change in zip(self.names, self.changes, strict=True)
        )
        return (
            f"task {task}: the scores change differently between checkpoints. From step {self.base} to {self.step}, "
            f"{moved} points ({plural(self.n_problems, 'problem')}). {_reward_hint(table)} and another --name"
        )


def _reward_hint(table: ScoreTable) -> str:
    return f"Reward: {table.taken}. To use one of them: {table.flag}"


def _find_differences(tables: Mapping[int, ScoreTable]) -> Iterator[_Movement]:
    """Yield the pairs of scores whose changes differ significantly and by more than ``MARGIN``."""
    base, *later = sorted(tables)
    for step in later:
        early, late = tables[base].score_of, tables[step].score_of
        for names in combinations([name for name in early if name in late], 2):
            problems = set.intersection(*(set(early[name]) & set(late[name]) for name in names))
            if len(problems) < 2:
                continue
            changes_NP = np.array(
                [[late[name][problem] - early[name][problem] for problem in sorted(problems)] for name in names]
            )
            difference_P = changes_NP[0] - changes_NP[1]
            error = difference_P.std(ddof=1) / len(problems) ** 0.5
            if abs(difference_P.mean()) > max(MARGIN, _LEAST_ERRORS * error):
                first, second = changes_NP.mean(axis=1).tolist()
                yield _Movement(base=base, step=step, names=names, changes=(first, second), n_problems=len(problems))


def _merge_tables(table: ScoreTable, other: ScoreTable) -> ScoreTable:
    """Merge the scores of two files of one step. Where both have a score, ``table`` has priority."""
    names = dict.fromkeys([*table.score_of, *other.score_of])
    score_of = {name: {**other.score_of.get(name, {}), **table.score_of.get(name, {})} for name in names}
    return ScoreTable(score_of=score_of, taken=table.taken, flag=table.flag)
