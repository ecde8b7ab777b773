"""Audits with a stopping rule: the same samples as without one, fewer of them, and the same store after every kill."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from oversharp.diagnostics.audit.audit import AuditResult, audit, audit_shard
from oversharp.diagnostics.audit.config import AuditConfig
from oversharp.diagnostics.audit.regrade import regrade
from oversharp.diagnostics.records.errors import UnreadableError
from oversharp.diagnostics.records.shard import Shard
from oversharp.diagnostics.records.types import Checkpoint
from oversharp.diagnostics.statistics.stopping import StoppingRule
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.merge import merge
from tests.audit.small_audits import Notes, config, frame
from tests.conftest import audits_of_some_measures

#: Whether a response contains the answer: the untrained models solve these problems often, sometimes and never.
GRADER = "def contains(response, answer):\n    return answer in response\n"
ANSWERS = ("5", "7", "14", "99", "?")
FIRST, ENOUGH, N, N_BASE = 4, 2, 24, 32
SAMPLES = """
SELECT
    checkpoint_id, settings_id, problem_id, greedy, sample_index, text, token_ids::VARCHAR AS token_ids, finish_reason
FROM samples
ORDER BY ALL
"""
GRADES = "SELECT problem_id, response_id, verifier, answer, reward, state FROM grades ORDER BY ALL"
STOPS = "SELECT checkpoint_id, problem_id, s.n FROM stops AS s JOIN current_audits USING (audit_id) ORDER BY ALL"
COUNTS = "SELECT step, problem_id, n, n_correct, n_planned, n_cap FROM sampled_counts ORDER BY ALL"
DRAWN = """
SELECT step, is_base, problem_id, list(correct ORDER BY sample_index) AS correct, any_value(n_cap) AS n_cap
FROM graded_samples
WHERE NOT greedy
GROUP BY ALL
ORDER BY ALL
"""

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("rounds")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the problems and their grader."""
    folder = tmp_path_factory.mktemp("rounds")
    (folder / "grader.py").write_text(GRADER)
    rows = [{"prompt": f"1 2 {number} = 7 :", "answer": answer} for number, answer in enumerate(ANSWERS)]
    (folder / "problems.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder


@pytest.fixture(scope="module")
def make_config(place: Path) -> Callable[..., AuditConfig]:
    def make(out: Path, **changes: object) -> AuditConfig:
        task = {"task": None, "limit": None, "problems": place / "problems.jsonl"}
        rest = {"verifier": f"{place / 'grader.py'}:contains", "max_tokens": 6, "controls": False, "panel": 2}
        rule = {"n": N, "n_base": N_BASE, "until_solved": ENOUGH, "first": FIRST}
        return config(out, **{**task, **rest, **rule, **changes})

    return make


@pytest.fixture(scope="module", autouse=True)
def _few_measures() -> Iterator[None]:
    with audits_of_some_measures():
        yield


@pytest.fixture(scope="module")
def uniform(countdown_series: Path, place: Path, make_config: Callable[..., AuditConfig]) -> AuditResult:
    """An audit that draws all samples. Do not write into it."""
    return audit([countdown_series], make_config(place / "uniform", until_solved=0, first=None))


@pytest.fixture(scope="module")
def stopped(countdown_series: Path, place: Path, make_config: Callable[..., AuditConfig]) -> AuditResult:
    """The same audit with the rule. Do not write into it."""
    return audit([countdown_series], make_config(place / "stopped"))


def _stopped_counts(drawn: pd.DataFrame) -> list[tuple[int, str, int, int, int, int]]:
    """The rows of ``COUNTS`` that the rule leaves of all samples (``DRAWN``)."""
    rows = []
    for row in drawn.itertuples():
        rule = StoppingRule.doubling(first=FIRST, cap=N_BASE if row.is_base else N, enough=ENOUGH)
        n = FIRST
        while (following := rule.next_n(n, sum(row.correct[:n]))) is not None:
            n = following
        rows.append((row.step, row.problem_id, n, sum(row.correct[:n]), n, rule.cap))
    return rows


def test_every_problem_stops_where_the_rule_stops_it_with_the_samples_of_an_audit_without_one(
    uniform: AuditResult, stopped: AuditResult
) -> None:
    expected = _stopped_counts(frame(uniform.store_path, DRAWN))
    assert list(frame(stopped.store_path, COUNTS).itertuples(index=False, name=None)) == expected
    assert {n for *_, n, _ in expected} >= {FIRST, 2 * FIRST, N, N_BASE}
    few, many = frame(stopped.store_path, SAMPLES), frame(uniform.store_path, SAMPLES)
    assert len(few) == stopped.samples_drawn < uniform.samples_drawn == len(many)
    assert len(few.merge(many)) == len(few), "a sample differs from that of the audit without a rule"
    own = (
        few[~few["greedy"]].groupby(["checkpoint_id", "settings_id", "problem_id"])["sample_index"].agg(["max", "size"])
    )
    assert (own["max"] + 1 == own["size"]).all()


def test_a_model_is_loaded_as_often_as_without_rounds(
    countdown_series: Path, tmp_path: Path, make_config: Callable[..., AuditConfig]
) -> None:
    from oversharp.diagnostics.models import load

    loaded: list[str] = []
    whole = load.load_model

    def load_model(checkpoint: Checkpoint, **named: Any) -> Any:
        loaded.append(checkpoint.label)
        return whole(checkpoint, **named)

    with pytest.MonkeyPatch.context() as planted:
        planted.setattr(load, "load_model", load_model)
        audit([countdown_series], make_config(tmp_path / "stopped"))
        with_rounds = loaded.copy()
        loaded.clear()
        audit([countdown_series], make_config(tmp_path / "uniform", until_solved=0, first=None))
    assert with_rounds == loaded
    assert len(loaded) == 4  # the base again, for the scores of the others' samples


class KilledError(Exception):
    """The end of a process."""


@pytest.mark.parametrize(("method", "after"), [("plan_rounds", False), ("plan_rounds", True), ("add_samples", True)])
def test_killed_at_any_moment_the_audit_ends_in_the_same_store(
    countdown_series: Path,
    tmp_path: Path,
    make_config: Callable[..., AuditConfig],
    stopped: AuditResult,
    method: str,
    after: bool,
) -> None:
    n_calls, whole = 0, getattr(Store, method)

    def killed(self: Store, *arguments: object, **named: object) -> object:
        nonlocal n_calls
        n_calls += 1
        dies = n_calls % 3 == 0
        if dies and not after:
            raise KilledError
        result = whole(self, *arguments, **named)
        if dies:
            raise KilledError
        return result

    n_kills, n_samples = 0, []
    with pytest.MonkeyPatch.context() as planted:
        planted.setattr(Store, method, killed)
        while n_kills < 40:
            try:
                result = audit([countdown_series], make_config(tmp_path))
                break
            except KilledError:
                n_kills += 1
                n_samples.append(len(frame(tmp_path / "audit.duckdb", "FROM samples")))
    assert n_kills > 2
    assert len(set(n_samples)) > 2, "it was always killed at the same place"
    for query in (SAMPLES, GRADES, STOPS, COUNTS):
        pd.testing.assert_frame_equal(frame(result.store_path, query), frame(stopped.store_path, query))


def test_shards_stop_alone_and_their_merged_store_is_that_of_the_whole_audit(
    countdown_series: Path, tmp_path: Path, make_config: Callable[..., AuditConfig], stopped: AuditResult
) -> None:
    shards = [
        audit_shard([countdown_series], make_config(tmp_path / str(index)), Shard(index=index, of=2)).store_path
        for index in range(2)
    ]
    merged = merge(shards, tmp_path / "merged")
    concluded = audit([countdown_series], make_config(tmp_path / "merged"))
    assert concluded.samples_drawn == 0
    assert merged.samples_added == stopped.samples_drawn
    for query in (SAMPLES, GRADES, COUNTS, STOPS):
        pd.testing.assert_frame_equal(frame(concluded.store_path, query), frame(stopped.store_path, query))


def test_the_check_of_the_first_answers_is_final_after_the_first_round(
    countdown_series: Path, tmp_path: Path, make_config: Callable[..., AuditConfig]
) -> None:
    hopeless = tmp_path / "grader.py"
    hopeless.write_text("def contains(response, answer):\n    return False\n")
    verifier = f"{hopeless}:contains"
    with pytest.raises(UnreadableError, match=f"pass@1 so far .00; .* of {FIRST * len(ANSWERS)} responses"):
        audit([countdown_series], make_config(tmp_path / "out", verifier=verifier, strict=True))
    assert len(frame(tmp_path / "out" / "audit.duckdb", "FROM samples WHERE NOT greedy")) == FIRST * len(ANSWERS)
    notes = Notes()
    audit([countdown_series], make_config(tmp_path / "out", verifier=verifier), progress=notes)
    looks = [note for note in notes.notes if "pass@1 so far" in note]
    assert len(looks) <= 2  # the line, and the warning
    assert all(f"of {FIRST * len(ANSWERS)} responses" in look for look in looks)


def test_another_rule_is_another_audit_on_the_same_samples(
    countdown_series: Path,
    tmp_path: Path,
    make_config: Callable[..., AuditConfig],
    stopped: AuditResult,
    uniform: AuditResult,
) -> None:
    out = shutil.copytree(stopped.store_path.parent, tmp_path / "out")
    more = audit([countdown_series], make_config(out, until_solved=0, first=None))
    assert more.samples_drawn == uniform.samples_drawn - stopped.samples_drawn
    pd.testing.assert_frame_equal(frame(more.store_path, SAMPLES), frame(uniform.store_path, SAMPLES))
    again = audit([countdown_series], make_config(out))
    assert again.samples_drawn == 0
    pd.testing.assert_frame_equal(frame(again.store_path, COUNTS), frame(stopped.store_path, COUNTS))
    rules = frame(again.store_path, "SELECT DISTINCT first_round, enough FROM audits ORDER BY ALL")
    assert rules.fillna(0).to_numpy().tolist() == [[FIRST, ENOUGH], [0, 0]]


def test_a_top_up_raises_the_cap_and_keeps_the_rule(
    countdown_series: Path, tmp_path: Path, make_config: Callable[..., AuditConfig], stopped: AuditResult
) -> None:
    out = shutil.copytree(stopped.store_path.parent, tmp_path / "out")
    default = {"n": AuditConfig.n, "n_base": None, "until_solved": None, "first": None}
    more = audit([countdown_series], make_config(out, **default, top_up=N))
    row = frame(more.store_path, "SELECT n, n_base, first_round, enough FROM current_audits").iloc[0]
    assert row.tolist() == [2 * N, 2 * N_BASE, FIRST, ENOUGH]
    fresh = audit([countdown_series], make_config(tmp_path / "fresh", n=2 * N, n_base=2 * N_BASE))
    pd.testing.assert_frame_equal(frame(more.store_path, COUNTS), frame(fresh.store_path, COUNTS))
    assert (
        0 < more.samples_drawn <= fresh.samples_drawn - stopped.samples_drawn + 5 * N
    )  # 24 is no round of the new cap
    assert audit([countdown_series], make_config(out, n=2 * N, n_base=2 * N_BASE)).samples_drawn == 0


def test_after_a_regrade_the_audit_draws_what_the_second_grades_need(
    countdown_series: Path,
    tmp_path: Path,
    make_config: Callable[..., AuditConfig],
    stopped: AuditResult,
    uniform: AuditResult,
) -> None:
    strict = tmp_path / "strict.py"
    strict.write_text("def both(response, answer):\n    return answer in response and '1' in response\n")
    verifier = f"{strict}:both"
    out = shutil.copytree(stopped.store_path.parent, tmp_path / "out")
    whole = shutil.copytree(uniform.store_path.parent, tmp_path / "whole")
    of_second = COUNTS.replace("FROM sampled_counts", "FROM sampled_counts WHERE series <> 'run'")
    notes, n_drawn, n_calls = Notes(), 0, 0
    only_first = f"Only the first {FIRST} samples of each problem count"
    while n_calls < 5:
        n_calls += 1
        n_notes = len(notes.notes)
        regraded = regrade(out / "audit.duckdb", verifier, progress=notes)
        lacks = any("lack samples until they are solved" in note for note in notes.notes[n_notes:])
        assert any(only_first in caveat for caveat in regraded.verdict.caveats) == lacks
        more = audit([countdown_series], make_config(out))
        n_drawn += more.samples_drawn
        if not more.samples_drawn:
            break
    lines = [note for note in notes.notes if "lack samples until they are solved" in note]
    assert len(lines) == n_calls - 1 >= 1
    assert "run the audit's command again, then `oversharp regrade` again" in lines[0]
    assert 0 < n_drawn < uniform.samples_drawn - stopped.samples_drawn
    # the first series is unchanged
    of_first = COUNTS.replace("FROM sampled_counts", "FROM sampled_counts WHERE series = 'run'")
    pd.testing.assert_frame_equal(frame(more.store_path, of_first), frame(stopped.store_path, COUNTS))
    # the second has the stops that its grades of all samples give
    regrade(whole / "audit.duckdb", verifier)
    series = regraded.series
    drawn = DRAWN.replace("WHERE NOT greedy", f"WHERE NOT greedy AND series = '{series}'")
    assert list(frame(more.store_path, of_second).itertuples(index=False, name=None)) == _stopped_counts(
        frame(whole / "audit.duckdb", drawn)
    )


def test_controls_stop_by_the_same_rule(
    countdown_series: Path, tmp_path: Path, make_config: Callable[..., AuditConfig]
) -> None:
    controls = {"controls": True, "control_n": 12, "control_temperatures": (0.5,), "hot_temperatures": (1.5,)}
    every = audit([countdown_series], make_config(tmp_path / "all", until_solved=0, first=None, **controls))
    stopped = audit([countdown_series], make_config(tmp_path / "stopped", **controls))
    drawn = """
        SELECT step, t.temperature, problem_id, list(correct ORDER BY sample_index) AS correct
        FROM audit_samples JOIN settings AS t USING (settings_id)
        WHERE role = 'control'
        GROUP BY ALL
        ORDER BY ALL
    """
    of_all, of_stopped = frame(every.store_path, drawn), frame(stopped.store_path, drawn)
    rule = StoppingRule.doubling(first=FIRST, cap=12, enough=ENOUGH)
    for whole, part in zip(of_all["correct"], of_stopped["correct"], strict=True):
        ends = [n for n in rule.rounds if sum(whole[:n]) >= ENOUGH]
        assert list(part) == list(whole[: min(ends, default=12)])
    assert {len(part) for part in of_stopped["correct"]} >= {4, 12}
    counts = frame(stopped.store_path, "SELECT n, n_planned, n_cap, n_first FROM control_counts")
    assert (counts["n"] == counts["n_planned"]).all()
    assert set(counts["n_cap"]) == {12}
    assert set(counts["n_first"]) == {FIRST}
    assert audit([countdown_series], make_config(tmp_path / "stopped", **controls)).samples_drawn == 0
