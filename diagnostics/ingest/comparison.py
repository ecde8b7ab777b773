"""Compares the grades of an import with what the tool itself says of the same responses."""

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
    """Where the grades of one file, task and step are not the tool's.

    ``n_compared`` problems, or responses where ``of_responses``, of which ``n_differ`` differ, the first in line
    ``first_line``, where the tool says ``first_tool`` and the grades ``first_ours``. Both means are over the compared.
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
        """What differs, by how much, and what mends it."""
        what = "responses" if self.of_responses else "problems"
        mend = "without --regrade the tool's scores count" if self.regraded else _MEND
        return (
            f"{self.path}: task {self.task}, step {self.step}: the grades are not those of {self.tool}: its "
            f"{self.metric} is {_shown(self.tool_mean)}, by {self.verifier} it is {_shown(self.our_mean)}; "
            f"{self.n_differ} of {self.n_compared} {what} differ, the first in line {self.first_line} "
            f"({_shown(self.first_tool)} and {_shown(self.first_ours)}). The verdict rests on {self.verifier}; {mend}"
        )


_MEND = (
    "import under another --name with another --verifier, or with --reward if another metric is the one to compare with"
)


@dataclass(frozen=True, kw_only=True)
class PartialRewards:
    """Rewards of one task that are neither the least nor a full one: where right begins is not known.

    ``n_of``: samples by reward. ``n_correct`` of them have at least ``least``.
    """

    tool: str
    task: str
    n_of: tuple[tuple[float, int], ...]
    n_correct: int
    least: float

    @property
    def sentence(self) -> str:
        """Which rewards there are, how they were read, and how to say it."""
        total = sum(n for _, n in self.n_of)
        often = sorted(sorted(self.n_of, key=lambda one: -one[1])[:REWARDS_LISTED])
        listed = ", ".join(f"{_shown(reward)} ({n})" for reward, n in often)
        more = f" and {len(self.n_of) - len(often)} others" if len(self.n_of) > len(often) else ""
        return (
            f"task {self.task}: the rewards of {self.tool} are not just right and wrong: {listed}{more}; correct are "
            f"the {self.n_correct} of {total} samples with at least {_shown(self.least)}: --correct-at says where "
            "right begins, under another --name if that is elsewhere"
        )


def _shown(value: float) -> str:
    return f"{value:.4g}"


def compare_grades(
    store: Store, files: Sequence[PlannedFile], verifier: str, config: ImportConfig, problems: KnownProblems
) -> tuple[list[Disagreement], int]:
    """Where ``verifier``, which is not the tool's reward, differs from the tool.

    The files are read once more: a store does not hold what the tool says where it is no grade. The second value counts
    what could not be compared, as not all of the responses of the claim were graded. ``problems`` maps samples to
    problems.
    """
    found: list[Disagreement] = []
    n_left = 0
    for file in files:
        tallies: dict[tuple[str, int, str], _Tally] = {}
        for claims in _parts(_claims(file, verifier, config, problems)):
            grades = _grades(store, claims, verifier)
            for claim in claims:
                graded = [grades.get((claim.problem_id, one)) for one in claim.response_ids]
                if None in graded:
                    n_left += 1
                else:
                    n_right = sum(map(bool, graded))
                    ours = _estimate(n_right, claim.said)
                    tallies.setdefault((claim.task, claim.step, claim.said.metric), _Tally()).add(claim, ours)
        found += [tally.disagreement(file, verifier, config) for tally in tallies.values() if tally.n_differ]
    return found, n_left


def partial_rewards(
    store: Store, series: str, settings_id: str, verifier: str, config: ImportConfig
) -> list[PartialRewards]:
    """Tasks with rewards strictly between the least one (or 0) and a full one; none where ``correct_at`` is told."""
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
    found = []
    for task, of_task in rows.groupby("task", sort=True):
        rewards = of_task["reward"]
        least, full = min(0.0, rewards.min()), max(config.least_correct, rewards.max())
        if ((rewards > least) & (rewards < full)).any():
            found.append(
                PartialRewards(
                    tool=verifier.removeprefix(RECORDED),
                    task=str(task),
                    n_of=tuple(zip(rewards.tolist(), of_task["n"].tolist(), strict=True)),
                    n_correct=int(of_task.loc[of_task["correct"], "n"].sum()),
                    least=config.least_correct,
                )
            )
    return found


def _has_partial(store: Store, verifier: str, config: ImportConfig) -> bool:
    """Whether any grade of the tool lies between: to find whose, and how many, takes a look at every sample."""
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
    said: ToolScore


def _claims(file: PlannedFile, verifier: str, config: ImportConfig, problems: KnownProblems) -> Iterator[_Claimed]:
    """What the tool says of the responses of a file, as far as the file can be read."""
    items = file.importer.read(file.path, ReadOptions(fields=config.map, reward=config.reward))
    try:
        for _, same_line in groupby(items, key=lambda item: item.line):
            of_line = [item for item in same_line if not isinstance(item, Fault)]
            for place, item in enumerate(of_line):
                said, step = _said(item, config), step_of(item, file, config)
                if said is None or step is None or (config.steps and step not in config.steps):
                    continue
                together = [one for one in of_line[place:] if one.prompt == item.prompt][: said.n]
                if len(together) == said.n:
                    problem = problem_of(item, file, verifier, config.gold)
                    yield _Claimed(
                        line=item.line,
                        step=step,
                        task=problem.task,
                        problem_id=problems.find(item, task_of(item, file)) or problem.problem_id,
                        response_ids=tuple(response_id(one.response.encode("utf-8", "replace")) for one in together),
                        said=said,
                    )
    except ImportFileError:  # the import has said it
        return


def _said(item: Recorded, config: ImportConfig) -> ToolScore | None:
    if item.reward is None:
        return item.claim
    return ToolScore(config.reward or "score", float(item.reward >= config.least_correct), 1)


def _parts(claims: Iterator[_Claimed]) -> Iterator[list[_Claimed]]:
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


def _estimate(n_right: int, said: ToolScore) -> float:
    """Pass@k of so many right responses."""
    return n_right / said.n if said.k == 1 else float(_estimates(said.n, said.k)[n_right])


@lru_cache(maxsize=64)
def _estimates(n: int, k: int) -> Float[np.ndarray, " correct"]:
    estimates: Float[np.ndarray, " correct"] = pass_at_k_table(n, [k])[:, 0]
    return estimates


class _Tally:
    """The claims of one file, task, step and metric, beside what the grades give."""

    def __init__(self) -> None:
        self.n_differ = 0
        self._n = 0
        self._tool = self._ours = 0.0
        self._first: tuple[_Claimed, float] | None = None

    def add(self, claim: _Claimed, ours: float) -> None:
        """One more."""
        self._n += 1
        self._tool += claim.said.value
        self._ours += ours
        if abs(ours - claim.said.value) > TOLERANCE:
            self.n_differ += 1
            self._first = self._first or (claim, ours)

    def disagreement(self, file: PlannedFile, verifier: str, config: ImportConfig) -> Disagreement:
        """What is said of it; at least one differs."""
        assert self._first is not None
        claim, ours = self._first
        return Disagreement(
            path=file.path,
            tool=file.importer.name,
            task=claim.task,
            step=claim.step,
            metric=claim.said.metric,
            verifier=verifier,
            tool_mean=self._tool / self._n,
            our_mean=self._ours / self._n,
            n_compared=self._n,
            n_differ=self.n_differ,
            of_responses=claim.said.n == 1,
            first_line=claim.line,
            first_tool=claim.said.value,
            first_ours=ours,
            regraded=config.regrade,
        )
