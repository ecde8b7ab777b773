"""Compares the grades of an import with the tool's own scores of the same responses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path

import numpy as np
from jaxtyping import Float

from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.ingest.formats.contract import Fault, ReadOptions, Recorded, ToolScore
from oversharp.diagnostics.ingest.place import problem_of, step_of, task_of
from oversharp.diagnostics.ingest.plan import PlannedFile
from oversharp.diagnostics.ingest.problems import KnownProblems
from oversharp.diagnostics.records.errors import ImportFileError
from oversharp.diagnostics.records.types import response_id
from oversharp.diagnostics.statistics.pass_at_k import pass_at_k_table
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.verifiers.names import RECORDED

#: Tools write shares of n responses with four decimals or more: what differs by more is another number of right ones.
TOLERANCE = 1e-4
#: Responses that are looked up at once.
RESPONSES_PER_QUERY = 20_000
#: Different rewards that a warning lists.
REWARDS_LISTED = 5


@dataclass(frozen=True, kw_only=True)
class Disagreement:
    """Differences between our grades and the tool's scores, for one file, task and step.

    ``n_compared`` problems, or responses where ``of_responses``, of which ``n_differ`` differ, the first in line
    ``first_line`` with ``first_tool`` and ``first_ours``. Both means are over the compared.
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
        """Warning: what differs, by how much, and what to do."""
        what = "responses" if self.of_responses else "problems"
        hint = "without --regrade the tool's scores count" if self.regraded else _HINT
        return (
            f"{self.path}: task {self.task}, step {self.step}: the grades are not those of {self.tool}: its "
            f"{self.metric} is {_format_value(self.tool_mean)}, by {self.verifier} it is "
            f"{_format_value(self.our_mean)}; "
            f"{self.n_differ} of {self.n_compared} {what} differ, the first in line {self.first_line} "
            f"({_format_value(self.first_tool)} and {_format_value(self.first_ours)}). The verdict uses the grades of "
            f"{self.verifier}; {hint}"
        )


_HINT = (
    "import under another --name with another --verifier, or with --reward if another metric is the one to compare with"
)


@dataclass(frozen=True, kw_only=True)
class PartialRewards:
    """Rewards of one task between wrong and right, where the limit of a correct response is unknown.

    ``n_of``: samples by reward. ``n_correct`` of them have at least ``least``.
    """

    tool: str
    task: str
    n_of: tuple[tuple[float, int], ...]
    n_correct: int
    least: float

    @property
    def sentence(self) -> str:
        """Warning: the rewards, how many count as correct, and the flag that sets the limit."""
        total = sum(n for _, n in self.n_of)
        often = sorted(sorted(self.n_of, key=lambda pair: -pair[1])[:REWARDS_LISTED])
        listed = ", ".join(f"{_format_value(reward)} ({n})" for reward, n in often)
        more = f" and {len(self.n_of) - len(often)} others" if len(self.n_of) > len(often) else ""
        return (
            f"task {self.task}: the rewards of {self.tool} are not only right and wrong: {listed}{more}; correct are "
            f"the {self.n_correct} of {total} samples with at least {_format_value(self.least)}: --correct-at sets "
            "the least correct reward; use another --name to change it"
        )


def _format_value(value: float) -> str:
    return f"{value:.4g}"


def compare_grades(
    store: Store, files: Sequence[PlannedFile], verifier: str, config: ImportConfig, problems: KnownProblems
) -> tuple[list[Disagreement], int]:
    """Return where the grades of ``verifier`` differ from the tool's scores, and how many scores were not compared.

    Reads the files again, since the store does not keep scores that are no grades. A score is not compared where some
    of its responses have no grade. ``problems`` maps samples to problems.
    """
    disagreements: list[Disagreement] = []
    n_left = 0
    for file in files:
        tallies: dict[tuple[str, int, str], _Tally] = {}
        for claims in _batches(_claims(file, verifier, config, problems)):
            grades = _grades(store, claims, verifier)
            for claim in claims:
                graded = [grades.get((claim.problem_id, response)) for response in claim.response_ids]
                if None in graded:
                    n_left += 1
                else:
                    n_right = sum(map(bool, graded))
                    ours = _estimate(n_right, claim.score)
                    tallies.setdefault((claim.task, claim.step, claim.score.metric), _Tally()).add(claim, ours)
        disagreements += [tally.disagreement(file, verifier, config) for tally in tallies.values() if tally.n_differ]
    return disagreements, n_left


def partial_rewards(
    store: Store, series: str, settings_id: str, verifier: str, config: ImportConfig
) -> list[PartialRewards]:
    """Return the tasks with rewards strictly between 0 (or the least) and 1; none with ``--correct-at``."""
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
    listed = []
    for task, of_task in rows.groupby("task", sort=True):
        rewards = of_task["reward"]
        least, full = min(0.0, rewards.min()), max(config.least_correct, rewards.max())
        if ((rewards > least) & (rewards < full)).any():
            listed.append(
                PartialRewards(
                    tool=verifier.removeprefix(RECORDED),
                    task=str(task),
                    n_of=tuple(zip(rewards.tolist(), of_task["n"].tolist(), strict=True)),
                    n_correct=int(of_task.loc[of_task["correct"], "n"].sum()),
                    least=config.least_correct,
                )
            )
    return listed


def _has_partial(store: Store, verifier: str, config: ImportConfig) -> bool:
    """Return whether any reward lies in between; cheaper than the query over all samples."""
    rewards = store.frame("SELECT DISTINCT reward FROM grades WHERE verifier = $verifier", verifier=verifier)["reward"]
    least, full = min(0.0, rewards.min()), max(config.least_correct, rewards.max())
    return bool(((rewards > least) & (rewards < full)).any())


# ---------------------------------------------------------------- what the tool says


@dataclass(frozen=True, kw_only=True)
class _Claimed:
    line: int
    step: int
    task: str
    problem_id: str
    response_ids: tuple[str, ...]
    score: ToolScore


def _claims(file: PlannedFile, verifier: str, config: ImportConfig, problems: KnownProblems) -> Iterator[_Claimed]:
    """Yield the tool's scores of the responses of a file, up to the first unreadable part."""
    items = file.importer.read_samples(file.path, ReadOptions(fields=config.map, reward=config.reward))
    try:
        for _, same_line in groupby(items, key=lambda item: item.line):
            of_line = [item for item in same_line if not isinstance(item, Fault)]
            for place, item in enumerate(of_line):
                score, step = _score_of(item, config), step_of(item, file, config)
                if score is None or step is None or (config.steps and step not in config.steps):
                    continue
                together = [follower for follower in of_line[place:] if follower.prompt == item.prompt][: score.n]
                if len(together) == score.n:
                    problem = problem_of(item, file, verifier, config.gold)
                    yield _Claimed(
                        line=item.line,
                        step=step,
                        task=problem.task,
                        problem_id=problems.find(item, task_of(item, file)) or problem.problem_id,
                        response_ids=tuple(
                            response_id(follower.response.encode("utf-8", "replace")) for follower in together
                        ),
                        score=score,
                    )
    except ImportFileError:  # the import reports it
        return


def _score_of(item: Recorded, config: ImportConfig) -> ToolScore | None:
    if item.reward is None:
        return item.claim
    return ToolScore(config.reward or "score", float(item.reward >= config.least_correct), 1)


def _batches(claims: Iterator[_Claimed]) -> Iterator[list[_Claimed]]:
    part: list[_Claimed] = []
    n_responses = 0
    for claim in claims:
        part.append(claim)
        n_responses += len(claim.response_ids)
        if n_responses >= RESPONSES_PER_QUERY:
            yield part
            part, n_responses = [], 0
    if part:
        yield part


def _grades(store: Store, claims: Sequence[_Claimed], verifier: str) -> dict[tuple[str, str], bool]:
    pairs = {(claim.problem_id, response) for claim in claims for response in claim.response_ids}
    rows = store.frame(
        """
        WITH asked AS (
            SELECT unnest($problem_ids::VARCHAR[]) AS problem_id, unnest($response_ids::VARCHAR[]) AS response_id
        )
        SELECT problem_id, response_id, correct
        FROM grades
        SEMI JOIN asked USING (problem_id, response_id)
        WHERE verifier = $verifier
        """,
        problem_ids=[problem for problem, _ in pairs],
        response_ids=[response for _, response in pairs],
        verifier=verifier,
    )
    return {(row.problem_id, row.response_id): bool(row.correct) for row in rows.itertuples(index=False)}


def _estimate(n_right: int, score: ToolScore) -> float:
    """Return pass@k of ``n_right`` correct responses."""
    return n_right / score.n if score.k == 1 else float(_estimates(score.n, score.k)[n_right])


@lru_cache(maxsize=64)
def _estimates(n: int, k: int) -> Float[np.ndarray, " correct"]:
    estimates: Float[np.ndarray, " correct"] = pass_at_k_table(n, [k])[:, 0]
    return estimates


class _Tally:
    """Scores of one file, task, step and metric, next to our grades."""

    def __init__(self) -> None:
        self.n_differ = 0
        self._n = 0
        self._tool = self._ours = 0.0
        self._first: tuple[_Claimed, float] | None = None

    def add(self, claim: _Claimed, ours: float) -> None:
        """Add a score."""
        self._n += 1
        self._tool += claim.score.value
        self._ours += ours
        if abs(ours - claim.score.value) > TOLERANCE:
            self.n_differ += 1
            self._first = self._first or (claim, ours)

    def disagreement(self, file: PlannedFile, verifier: str, config: ImportConfig) -> Disagreement:
        """Return the differences; there must be one."""
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
