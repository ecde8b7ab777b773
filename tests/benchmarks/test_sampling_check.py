"""The benchmark's check of sampled against exact pass@k would notice a biased sampler."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import pytest

from benchmarks.speed.sampling_check import agree, agreements
from oversharp.diagnostics.audit.audit import audit
from oversharp.diagnostics.audit.config import AuditConfig

# one audit for both
pytestmark = [pytest.mark.xdist_group("sampling check"), pytest.mark.slow]


@pytest.fixture(scope="module")
def audited(countdown_series: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = AuditConfig(
        task="countdown", limit=4, n=16, k=(1, 4), kernel_problems=0, out=tmp_path_factory.mktemp("checked")
    )
    return audit([countdown_series], config).store_path


def test_every_checkpoint_and_k_is_compared(audited: Path) -> None:
    assert [(row.step, row.k) for row in agreements(audited)] == [(s, k) for s in (0, 20, 40) for k in (1, 4)]


def test_a_value_that_sampling_cannot_explain_stands_out(audited: Path, tmp_path: Path) -> None:
    store_path = Path(shutil.copy(audited, tmp_path))
    assert agree(agreements(store_path))
    with duckdb.connect(str(store_path)) as connection:
        connection.execute("UPDATE audit_findings SET value = 0.5 WHERE measure = 'pass_at_k' AND scope = 'all'")
    assert not agree(agreements(store_path))
