"""Responses in a checkpoint's kernel, and the audit's use of it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from oversharp import open_store
from oversharp.diagnostics.app.cli import main
from oversharp.diagnostics.audit.audit import audit, draw, draw_kernels
from oversharp.diagnostics.audit.config import AuditConfig
from oversharp.diagnostics.audit.prepare import prepare
from oversharp.diagnostics.engine import local as engine_module
from oversharp.diagnostics.records.errors import KernelError
from oversharp.diagnostics.records.progress import SilentProgress
from oversharp.diagnostics.records.shard import WHOLE
from oversharp.diagnostics.store.kernel_panel import upper_triangle
from oversharp.diagnostics.tasks import countdown
from tests.samplers.tiny_models import write_adapter
from tests.series.written_runs import untrain

# they share fixtures that take seconds
pytestmark = [pytest.mark.xdist_group("kernel panel"), pytest.mark.usefixtures("few_measures"), pytest.mark.slow]

SMALL = {"task": "countdown", "limit": 6, "n": 8, "n_base": 8, "k": (1, 2), "panel": 4, "entropy_samples": 2}


def config(out: Path, **changes: object) -> AuditConfig:
    kernel = {"kernel_problems": 3, "kernel_responses": 5}
    return AuditConfig(**{**SMALL, **kernel, "name": "run", "sampler": "transformers", "out": out, **changes})


@pytest.fixture(scope="module")
def audited(countdown_series: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return audit([countdown_series], config(tmp_path_factory.mktemp("kernel"))).store_path


@dataclass(frozen=True)
class WithKernels:
    store_path: Path
    without_kernel: Mapping[str, str]


def with_kernels(run: Path, config: AuditConfig) -> WithKernels:
    """An audit up to its kernels: the stages after them take a third of its time."""
    with ExitStack() as stack:
        prepared = prepare(stack, [run], config, WHOLE, SilentProgress())
        without_kernel = draw_kernels(prepared, draw(prepared).failed)
    return WithKernels(config.out / "audit.duckdb", without_kernel)


def frame(path: Path, sql: str) -> pd.DataFrame:
    with open_store(path) as store:
        return store.frame(sql)


def test_every_checkpoint_has_a_certified_kernel(audited: Path) -> None:
    runs = frame(audited, "FROM kernel_runs ORDER BY step")
    assert runs["step"].tolist() == [0, 20, 40]
    assert runs["why"].isna().all()
    assert (runs["certificate"] <= 1e-6).all()


def test_fixed_members_are_the_same_at_every_checkpoint(audited: Path) -> None:
    fixed = frame(
        audited,
        """
        SELECT step, role, problem_id, response_id, sample_index
        FROM kernel_members
        WHERE role IN ('panel', 'mode')
        ORDER BY ALL
        """,
    )
    first, *others = [rows.drop(columns="step").reset_index(drop=True) for _, rows in fixed.groupby("step")]
    assert len(others) == 2
    assert all(other.equals(first) for other in others)
    assert first["problem_id"].nunique() == 3
    assert (first.groupby("problem_id")["response_id"].nunique() <= 5).all()


def test_enumerated_modes_that_the_panel_lacks_are_members(audited: Path) -> None:
    # untrained checkpoints hardly ever solve a problem, but its modes are known
    modes = frame(audited, "SELECT DISTINCT problem_id, correct FROM kernel_members WHERE role = 'mode'")
    assert modes["problem_id"].nunique() == 3
    assert modes["correct"].all()


def test_own_samples_are_the_checkpoints_first_ones_with_duplicates(audited: Path) -> None:
    own = frame(
        audited,
        """
        SELECT m.step, m.problem_id, m.sample_index, s.response_id = m.response_id AS same
        FROM kernel_members AS m
        JOIN samples AS s USING (checkpoint_id, problem_id, sample_index)
        JOIN current_audits AS a USING (settings_id)
        WHERE m.role = 'own' AND NOT s.greedy
        """,
    )
    assert own["same"].all()
    counts = own.groupby(["step", "problem_id"])["sample_index"].agg(["min", "max", "size"])
    assert counts.to_numpy().tolist() == [[0, 4, 5]] * 9


def test_samples_of_a_bent_law_are_no_own_members(countdown_series: Path, tmp_path: Path) -> None:
    result = with_kernels(countdown_series, config(tmp_path, temperature=0.7))
    assert "own" not in frame(result.store_path, "SELECT DISTINCT role FROM kernel_members")["role"].tolist()


def test_the_stored_kernel_is_symmetric_positive_and_of_all_members(audited: Path) -> None:
    pairs = frame(audited, "FROM kernel_pairs WHERE step = 20")
    n = int(frame(audited, "SELECT max(position) + 1 AS n FROM kernel_members WHERE step = 20")["n"].iloc[0])
    kernel_NN = np.zeros((n, n))
    kernel_NN[pairs["row_position"], pairs["column_position"]] = pairs["value"]
    kernel_NN = np.triu(kernel_NN) + np.triu(kernel_NN, 1).T
    assert len(pairs) == n * (n + 1) // 2
    assert np.linalg.eigvalsh(kernel_NN).min() > -1e-4 * np.trace(kernel_NN)


def test_its_log_probabilities_are_those_of_the_scorer(audited: Path) -> None:
    both = frame(
        audited,
        """
        SELECT m.logp_sum, r.logp_sum AS scored, m.n_tokens, r.n_tokens AS scored_tokens
        FROM kernel_members AS m
        JOIN current_audits AS a USING (series)
        JOIN response_logps AS r USING (checkpoint_id, problem_id, response_id, settings_id)
        """,
    )
    assert len(both) > 30
    assert (both["n_tokens"] == both["scored_tokens"]).all()
    np.testing.assert_allclose(both["logp_sum"], both["scored"], atol=1e-4)


@pytest.mark.usefixtures("no_report")
def test_a_kernel_that_fails_is_a_warning_at_the_end_and_an_exit_code(
    countdown_series: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KernelError("its certificate is 1e-3")

    flags = "--task countdown --limit 2 --n 4 --k 1 --sampler transformers"
    command = ["audit", str(countdown_series), *flags.split(), "--out", str(tmp_path)]
    with monkeypatch.context() as planted:
        planted.setattr(engine_module.Engine, "compute_kernel", fail)
        with pytest.raises(SystemExit) as ended:
            main([*command, "--quiet"])
    assert ended.value.code == 3
    warnings = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: no gradient kernel")]
    assert len(warnings) == 3
    assert all("its certificate is 1e-3" in line for line in warnings)
    with pytest.raises(SystemExit) as ended:  # too little memory is printed, and is no failure
        main([*command, "--kernel-memory-gib", "0.00001"])
    notes = [line for line in capsys.readouterr().err.splitlines() if "no gradient kernel" in line]
    assert len(notes) == 3
    assert not any(line.startswith("warning") for line in notes)
    assert all("raise --kernel-memory-gib" in line for line in notes)


def test_a_finished_audit_loads_no_model_for_its_kernels(
    countdown_series: Path, audited: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module.ModelHolder, "load", lambda *_: pytest.fail("a model was loaded"))
    audit([countdown_series], config(audited.parent))


def test_a_kernel_that_fails_leaves_its_reason_and_is_tried_again(
    countdown_series: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KernelError("checkpoint-0: too large, raise --kernel-memory-gib")

    with monkeypatch.context() as planted:
        planted.setattr(engine_module.Engine, "compute_kernel", fail)
        result = audit([countdown_series], config(tmp_path))
    assert result.without_kernel["checkpoint-20"].endswith("raise --kernel-memory-gib")
    runs = frame(result.store_path, "FROM kernel_runs")
    assert runs["certificate"].isna().all()
    assert runs["why"].str.contains("too large, raise --kernel-memory-gib").all()
    assert frame(result.store_path, "SELECT value FROM findings WHERE measure = 'pass_at_k'")["value"].notna().all()
    audit([countdown_series], config(tmp_path))
    assert frame(result.store_path, "FROM kernel_runs")["why"].isna().all()


def test_without_a_panel_there_is_a_reason(countdown_series: Path, tmp_path: Path) -> None:
    result = with_kernels(countdown_series, config(tmp_path, panel=0))
    assert frame(result.store_path, "FROM kernel_runs")["why"].str.contains("--panel 4").all()


def test_kernel_problems_0_switches_it_off(countdown_series: Path, tmp_path: Path) -> None:
    result = audit([countdown_series], config(tmp_path, kernel_problems=0))
    assert frame(result.store_path, "FROM kernel_runs").empty


def test_training_responses_of_the_interval_are_members(countdown_series: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for checkpoint in sorted(countdown_series.iterdir()):
        (run / checkpoint.name).symlink_to(checkpoint)
    query = countdown.problems("train", limit=1)[0]
    rollouts = [
        {"step": step, "prompt": query.prompt, "response": text, "truncated": False, "correct": text == query.modes[0]}
        for step in (5, 30)
        for text in (query.modes[0], f"{step} + 1")
    ]
    (run / "rollouts").mkdir()
    pd.DataFrame(rollouts).to_parquet(run / "rollouts" / "step_000040.parquet")
    result = with_kernels(run, config(tmp_path / "out"))
    batch = frame(result.store_path, "SELECT step, correct, task FROM kernel_members WHERE role = 'batch' ORDER BY ALL")
    assert batch.to_numpy().tolist() == [
        [0, False, "training"],
        [0, True, "training"],
        [20, False, "training"],
        [20, True, "training"],
    ]


def test_one_row_is_one_pair() -> None:
    assert upper_triangle(np.array([[4.0]])).to_numpy().tolist() == [[0, 0, 4.0]]


def test_what_a_checkpoint_cannot_read_of_the_trainer_is_left_out_and_said(
    countdown_series: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for checkpoint in sorted(countdown_series.iterdir()):
        (run / checkpoint.name).symlink_to(checkpoint)
    query = countdown.problems("train", limit=1)[0]
    rows = [
        {"step": 5, "prompt": query.prompt, "response": text, "truncated": False, "correct": text == query.modes[0]}
        for text in (query.modes[0], "1 + 1", "é <script>", "")
    ]
    (run / "rollouts").mkdir()
    pd.DataFrame(rows).to_parquet(run / "rollouts" / "step_000040.parquet")
    result = with_kernels(run, config(tmp_path / "out"))
    batch = frame(result.store_path, "SELECT n_tokens, correct FROM kernel_members WHERE role = 'batch' AND step = 0")
    assert sorted(batch["n_tokens"]) == [1, 4, 6]  # the empty one is its end token
    assert batch["correct"].sum() == 1
    assert result.without_kernel == {}


def test_an_untrained_adapter_as_base_has_a_kernel_of_its_own_in_each_run(
    countdown_series: Path, tmp_path: Path
) -> None:
    for seed in (1, 2):
        run = tmp_path / f"run{seed}"
        for step in (0, 20):
            write_adapter(run / f"checkpoint-{step}", countdown_series / "checkpoint-0", seed=seed + step)
        untrain(run / "checkpoint-0")
        assert with_kernels(run, config(tmp_path / "out", name=run.name)).without_kernel == {}
    held = frame(tmp_path / "out/audit.duckdb", "SELECT series, step, why FROM kernel_runs ORDER BY ALL")
    assert held["step"].tolist() == [0, 20, 0, 20]
    assert held["why"].isna().all()
    bases = frame(
        tmp_path / "out/audit.duckdb",
        """
        SELECT DISTINCT checkpoint_id, kernel_id, value
        FROM audit_kernels
        JOIN series_checkpoints USING (checkpoint_id)
        JOIN kernel_values USING (kernel_id)
        WHERE is_base AND row_position = 0 AND column_position = 0
        """,
    )
    assert bases["checkpoint_id"].nunique() == 1
    # other first factors have other gradients; the model under both has its own
    assert (bases["kernel_id"].nunique(), bases["value"].nunique()) == (2, 2)


def test_the_base_of_adapters_has_no_kernel_beside_theirs(countdown_series: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    for step in (10, 20):
        write_adapter(run / f"checkpoint-{step}", countdown_series / "checkpoint-0", seed=step)
    result = with_kernels(run, config(tmp_path / "out"))
    why = frame(result.store_path, "SELECT why FROM kernel_runs ORDER BY step")["why"]
    assert "those of the adapters use only adapter weights" in why[0]
    assert why[1:].isna().all()
    assert result.without_kernel == {}
