"""A small store with numbers known by hand: two series, four checkpoints, twelve problems, eight samples each."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from oversharp.diagnostics.measures.contract import Measure, Plot
from oversharp.diagnostics.records.types import (
    Checkpoint,
    Finding,
    Grade,
    Problem,
    Sample,
    Series,
    TrainingMetric,
    response_id,
)
from oversharp.diagnostics.store import Store
from oversharp.reports.context import Context
from oversharp.reports.evidence.source import read_source
from oversharp.reports.page import build_page, load_page, read_context
from oversharp.reports.records import Page
from oversharp.reports.render import render_page
from tests.reports.parts import SETTINGS, N, audit_key, family

STEPS = (0, 10, 20, 30)

REWARDS = tuple(TrainingMetric(step=s, name="reward", value=0.1 * s) for s in range(1, 31))

#: pass@1 and pass@4 per checkpoint, invented: GRPO sharpens and loses coverage, IAC keeps it.
PASS = {
    "grpo": {1: (0.25, 0.35, 0.45, 0.5), 4: (0.8, 0.75, 0.7, 0.6)},
    "iac": {1: (0.25, 0.3, 0.4, 0.45), 4: (0.8, 0.8, 0.79, 0.79)},
}

#: Correct samples of eight, per problem, at base and at last checkpoint.
CORRECT = {
    "grpo": ((2, 8), (3, 0), (1, 0), (0, 4), (2, 2), (4, 8), *((2, 2),) * 6),
    "iac": ((2, 4), (3, 3), (1, 1), (0, 0), (2, 4), (4, 8), *((2, 2),) * 6),
}
N_PROBLEMS = 12

#: Two texts, as many as the report shows per problem and side.
HOSTILE = (
    "<script>document.title='owned'</script></script><img src=x onerror=\"document.title='owned'\">"
    "שלום \u202e reversed \N{BELL} 🧮 family 👩‍👩‍👧",
    "x" * 100_000,
)


def _measure(name: str, title: str, section: str, unit: str, plot: Plot) -> Measure:
    return Measure(
        name=name,
        title=title,
        unit=unit,
        section=section,  # type: ignore[arg-type]
        needs=("problem_counts",),
        missing="no samples",
        plot=plot,
        sql="SELECT 1",
        doc=f"Meaning of ``{name}``. A second sentence that reports leave out.",
    )


@pytest.fixture(scope="session")
def measures() -> tuple[Measure, ...]:
    by_step = Plot(x="step", y_label="")
    return (
        _measure("pass_at_k", "pass@k", "coverage", "probability", Plot(x="k", group="checkpoint", log_x=True)),
        _measure("pass_at_k_delta", "Change of pass@k", "coverage", "probability", Plot(x="step", group="k")),
        _measure("token_entropy", "Token entropy", "entropy", "nats", by_step),
        _measure("effective_modes", "Effective modes", "modes", "modes", by_step),
        _measure("modes_fallen_10x", "Modes that fell more than tenfold", "modes", "probability", by_step),
        _measure("mode_share", "Mode share", "modes", "probability", Plot(x="step", group="scope")),
        _measure("truncation_rate", "Truncated responses", "health", "probability", by_step),
        _measure("from_a_plugin", "Measure of another package", "health", "tokens", by_step),
    )


def findings_of(series: str, steps: Sequence[int]) -> list[Finding]:
    found = []
    for i, step in enumerate(steps):
        made = functools.partial(Finding, checkpoint_id=f"{series}-{step}" if step else "base-0")
        share = functools.partial(made, unit="probability")
        for k, values in PASS[family(series)].items():
            value, delta = values[i], values[i] - values[0]
            found += [
                share(measure="pass_at_k", k=k, value=value, low=value - 0.05, high=value + 0.05, n=6),
                share(measure="pass_at_k_delta", k=k, value=delta, low=delta - 0.03, high=delta + 0.03, n=6),
            ]
        fallen = 0.1 * i
        found += [
            made(measure="token_entropy", unit="nats", why="no sample was scored"),
            made(measure="effective_modes", unit="modes", value=4.0 - i, low=3.5 - i, high=4.5 - i),
            share(measure="modes_fallen_10x", value=fallen, n=30, low=fallen - 0.05, high=fallen + 0.05),
            share(measure="truncation_rate", value=0.01 * i, n=48),
            made(measure="from_a_plugin", unit="tokens", value=5.0 + i, n=48),
            share(measure="mode_share", scope="rank 1", value=0.4 + 0.1 * i),
            share(measure="mode_share", scope="rank 2", value=0.3 - 0.05 * i),
        ]
    found.append(Finding(checkpoint_id="base-0", measure="not_installed", unit="nats", value=1.0))
    return found


def write_store(
    path: Path,
    *,
    texts: Sequence[str] = (),
    names: Sequence[str] = ("grpo", "iac"),
    steps: Sequence[int] = STEPS,
    n_problems: int = N_PROBLEMS,
    metrics: Sequence[TrainingMetric] = REWARDS,
) -> Path:
    """``texts`` replace the wrong responses of the last checkpoint; prompts carry them too."""
    problems = tuple(
        Problem(task="mini", prompt=f"{i} 2 = {i + 2} : {texts[0] if texts else ''}", gold=f"{i + 2}", verifier="exact")
        for i in range(n_problems)
    )
    with Store.open(path) as store:
        store.add_problems(problems)
        for name in names:
            _write_series(store, name, problems, texts, steps, metrics)
    return path


def _write_series(
    store: Store,
    name: str,
    problems: Sequence[Problem],
    texts: Sequence[str],
    steps: Sequence[int],
    metrics: Sequence[TrainingMetric],
) -> None:
    checkpoints = tuple(
        Checkpoint(
            step=step, label=f"checkpoint-{step}", path=Path(f"/runs/{name}/{step}"), kind="full",
            weights_hash=f"{name}-{step}" if step else "base-0",
        )
        for step in steps
    )  # fmt: skip
    store.add_series(
        Series(name=name, path=Path(f"/runs/{name}"), layout="hf", checkpoints=checkpoints, metrics=tuple(metrics))
    )
    key = audit_key(name)
    problem_ids = [problem.problem_id for problem in problems]
    store.begin_audit(key, settings=SETTINGS, panel_settings=SETTINGS, problem_ids=problem_ids)
    store.end_audit(key, {"command": f"oversharp audit runs/{name} --n 8", "versions": {"torch": "2.13.0"}})
    grades: list[tuple[str, str, str, Grade]] = []
    counts = [*CORRECT[family(name)], *[(2, 2)] * len(problems)][: len(problems)]
    for i, checkpoint in enumerate(checkpoints):
        samples = []
        for problem, (base, last) in zip(problems, counts, strict=True):
            correct = round(base + (last - base) * i / max(len(checkpoints) - 1, 1))
            for index in range(N):
                good = index < correct
                wrong = texts[index % len(texts)] if texts and i else f"wrong {index % 3}"
                text = f"answer {problem.gold} way {index % 2}" if good else wrong
                samples.append(
                    Sample(
                        problem_id=problem.problem_id, sample_index=index, greedy=False, text=text, token_ids=(1, 2),
                        finish_reason="stop", logp_sum_raw=-1.0,
                    )
                )  # fmt: skip
                grade = Grade(answer=problem.gold if good else "NA", mode=None, reward=float(good))
                grades.append((problem.problem_id, response_id(text), problem.verifier, grade))
        store.add_samples(key.settings_id, checkpoint.checkpoint_id, samples)
    store.add_grades(grades)
    store.replace_findings(key, findings_of(name, steps))
    store.log_event(key, "sample", wall_s=12.34, rows=192)


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A store written with these ``names``, ``steps``, ``texts``, …, once for all tests: nobody writes to it."""

    @functools.cache
    def make(**choices: Any) -> Path:
        return write_store(tmp_path_factory.mktemp("report") / "audit.duckdb", **choices)

    return make


@pytest.fixture(scope="session")
def session_store(written: Callable[..., Path]) -> Path:
    return written()


@pytest.fixture
def store_of(written: Callable[..., Path], tmp_path: Path) -> Callable[..., Path]:
    """A store of this test alone, at ``audit.duckdb``; ``edit`` sees the findings of every series."""

    def make(*, edit: Callable[[list[Finding]], list[Finding]] | None = None, **choices: Any) -> Path:
        path = Path(shutil.copy(written(**choices), tmp_path))
        if edit is not None:
            with Store.open(path) as store:
                for name in choices.get("names", ("grpo", "iac")):
                    store.replace_findings(audit_key(name), edit(findings_of(name, choices.get("steps", STEPS))))
        return path

    return make


@pytest.fixture(scope="session")
def page(session_store: Path, measures: tuple[Measure, ...]) -> Page:
    with Store.open(session_store, read_only=True) as store:
        return load_page(store, measures, store_name="audit.duckdb")


@pytest.fixture(scope="session")
def context(session_store: Path, measures: tuple[Measure, ...]) -> Context:
    with Store.open(session_store, read_only=True) as store:
        source = read_source(store, "audit.duckdb")
    return Context(source=source, measures={m.name: m for m in measures})


@pytest.fixture(scope="session")
def html(page: Page) -> str:
    return render_page(page)


@pytest.fixture(scope="session")
def hostile_html(written: Callable[..., Path], measures: tuple[Measure, ...]) -> str:
    with Store.open(written(texts=HOSTILE, names=("grpo",)), read_only=True) as store:
        return render_page(load_page(store, measures, store_name="audit.duckdb"))


@pytest.fixture
def context_of(store_of: Callable[..., Path], measures: tuple[Measure, ...]) -> Callable[..., Context]:
    """What a report reads of a store of this test alone: enough for a test of one section."""

    def make(**choices: Any) -> Context:
        with Store.open(store_of(**choices), read_only=True) as store:
            return read_context(store, measures, store_name="audit.duckdb")

    return make


@pytest.fixture
def page_of(context_of: Callable[..., Context]) -> Callable[..., Page]:
    """The page of a store of this test alone."""
    return lambda **choices: build_page(context_of(**choices))


@pytest.fixture(scope="session")
def hostile_texts() -> tuple[str, ...]:
    return HOSTILE
