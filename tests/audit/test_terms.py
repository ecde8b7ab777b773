"""False-accept rate, looks and runs are checked, stored, and fixed by the first verdict."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from oversharp.diagnostics.audit.config import AuditConfig
from oversharp.diagnostics.audit.measure import conclude
from oversharp.diagnostics.audit.terms import VerdictConfig, resolve_terms
from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.progress import SilentProgress
from oversharp.diagnostics.records.types import VerdictTerms
from oversharp.diagnostics.store import Store
from oversharp.trainers.integrations.live_config import arguments, live_config
from tests.audit.test_counts import plant

RESPONSES = {(problem, step): "AB.." for problem in range(3) for step in (0, 20)}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "audit.duckdb") as opened:
        yield opened


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"guess_rate": 1.5}, "--guess-rate 1.5: must be between 0 and 1"),
        ({"guess_rate": float("nan")}, "--guess-rate nan: must be between"),
        ({"looks": 0}, "--looks 0: must be at least 1"),
        ({"looks": "often"}, "--looks 'often': must be a whole number, or any"),
        ({"runs": 0}, "--runs 0: must be at least 1"),
    ],
)
def test_what_cannot_be_is_one_line_in_an_audit_and_in_an_import(given: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        AuditConfig(task="countdown", **given)
    with pytest.raises(ConfigError, match=said):
        ImportConfig(**given)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "terms"),
    [
        (VerdictConfig(), VerdictTerms(guess_rate=None, looks=1, runs=1)),
        (VerdictConfig(guess_rate=0.0, looks=5, runs=3), VerdictTerms(guess_rate=0.0, looks=5, runs=3)),
        (VerdictConfig(looks="any"), VerdictTerms(looks=None)),
    ],
)
def test_before_the_first_verdict_what_is_declared_counts(
    store: Store, config: VerdictConfig, terms: VerdictTerms
) -> None:
    assert resolve_terms(store, "run", config) == terms
    conclude(store, plant(store, RESPONSES, n=4, terms=terms), {}, {}, SilentProgress())
    kept = resolve_terms(store, "run", VerdictConfig())  # the guess rate is of this verdict, the others of the series
    assert (kept.guess_rate, kept.looks, kept.runs) == (None, terms.looks, terms.runs)
    assert resolve_terms(store, "run", config) == terms
    assert resolve_terms(store, "another", VerdictConfig(looks=9)).looks == 9


@pytest.mark.slow
@pytest.mark.parametrize(("declared", "config", "said"), [
    (1, VerdictConfig(looks=5), r"--looks 5: series 'run' had a verdict before \(step 20\), with --looks 1"),
    (1, VerdictConfig(looks="any"), "--looks any: .* with --looks 1"),
    (None, VerdictConfig(looks=2), "--looks 2: .* with --looks any"),
    (4, VerdictConfig(looks=2), "which the first look fixed; remove --looks"),
    (1, VerdictConfig(runs=1), "--runs 1: .* with --runs 2; raise it"),
])  # fmt: skip
def test_looks_declared_after_the_fact_are_refused(
    store: Store, declared: int | None, config: VerdictConfig, said: str
) -> None:
    terms = VerdictTerms(looks=declared, runs=2)
    conclude(store, plant(store, RESPONSES, n=4, terms=terms), {}, {}, SilentProgress())
    with pytest.raises(ConfigError, match=said) as refused:
        resolve_terms(store, "run", config)
    assert "\n" not in str(refused.value)


@pytest.mark.slow
def test_more_runs_to_choose_from_may_be_named_later_and_stay(store: Store) -> None:
    key = plant(store, RESPONSES, n=4)
    conclude(store, key, {}, {}, SilentProgress())
    more = resolve_terms(store, "run", VerdictConfig(runs=3))
    conclude(store, replace(key, terms=more), {}, {}, SilentProgress())
    assert resolve_terms(store, "run", VerdictConfig()) == VerdictTerms(runs=3)


def test_a_live_audit_knows_no_number_of_looks_unless_it_is_named(tmp_path: Path) -> None:
    assert "--looks=any" in arguments(tmp_path, live_config(tmp_path, {"task": "countdown"}))
    assert "--looks=any" in arguments(tmp_path, live_config(tmp_path, AuditConfig(task="countdown")))
    assert "--looks=12" in arguments(tmp_path, live_config(tmp_path, {"task": "countdown", "looks": 12}))
