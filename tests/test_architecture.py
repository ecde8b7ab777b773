"""The import rules of the house: who may know whom, and what must stay light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("diagnostics", "trainers", "reports")
TORCH_MODULES = {
    "diagnostics/models/load.py",
    "diagnostics/models/files.py",
    "diagnostics/models/holder.py",
    "diagnostics/engine/teacher_forcing.py",
    "diagnostics/app/doctor.py",
    "diagnostics/ingest/formats/slime.py",
}
#: Packages whose every module may.
TORCH_PACKAGES = ("diagnostics/samplers/", "diagnostics/kernel/")
#: What the trainers share with the audit.
SHARED_WITH_TRAINERS = {
    "diagnostics.records.errors",
    "diagnostics.models.load",
    "diagnostics.records.progress",
    "diagnostics.samplers",
    "diagnostics.statistics",
    "diagnostics.tasks",
    "diagnostics.records.types",
    "diagnostics.verifiers",
}
#: The audit beside a training runs its command and reads its store; these modules alone know it, and no other trainer.
LIVE_AUDIT = {f"trainers/integrations/{name}.py" for name in (
    "callback", "live", "live_config", "live_findings", "live_process", "verl_live",
)}  # fmt: skip
KNOWN_TO_LIVE_AUDIT = {
    "diagnostics.app.cli",
    "diagnostics.app.cli_shared",
    "diagnostics.audit.config",
    "diagnostics.records.errors",
    "diagnostics.series",
    "diagnostics.store",
    "diagnostics.tasks",
    "diagnostics.verdict.record",
}


def _sources(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def _imports(path: Path, *, top_level_only: bool = False) -> set[str]:
    """Every module that the file imports; ``if TYPE_CHECKING`` blocks cost nothing and are left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found: set[str] = set()
    pending: list[ast.AST] = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
        elif not (top_level_only and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)):
            pending += list(ast.iter_child_nodes(node))
    return found


def _relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _users_of(module: str) -> set[str]:
    return {
        _relative(path)
        for package in PACKAGES
        for path in _sources(package)
        if any(name == module or name.startswith(f"{module}.") for name in _imports(path))
    }


def test_one_module_alone_knows_duckdb() -> None:
    assert _users_of("duckdb") == {"diagnostics/store/database.py"}


def test_in_the_audit_one_module_alone_knows_ray() -> None:
    assert {name for name in _users_of("ray") if name.startswith("diagnostics/")} == {"diagnostics/engine/ray_pool.py"}


def test_in_the_audit_only_models_samplers_scoring_and_kernel_know_torch() -> None:
    users = {name for name in _users_of("torch") | _users_of("transformers") if name.startswith("diagnostics/")}
    assert {name for name in users if not name.startswith(TORCH_PACKAGES)} == TORCH_MODULES


def test_reports_know_neither_torch_nor_a_trainer() -> None:
    foreign = _users_of("torch") | _users_of("transformers") | _users_of("trainers")
    assert not {name for name in foreign if name.startswith("reports/")}


PURE = ("measures", "statistics", "theory")


@pytest.mark.parametrize("folder", [f"diagnostics/{name}" for name in PURE])
def test_measures_statistics_and_theory_are_pure(folder: str) -> None:
    allowed = {"diagnostics.records.types", "diagnostics.records.errors", *(f"diagnostics.{name}" for name in PURE)}
    for path in _sources(folder):
        own = {name for name in _imports(path) if name.split(".")[0] in PACKAGES}
        foreign = {name for name in own if not any(name == ok or name.startswith(f"{ok}.") for ok in allowed)}
        assert not foreign, f"{_relative(path)} imports {sorted(foreign)}"


def test_types_and_errors_stand_on_nothing_of_ours() -> None:
    for name in ("diagnostics/records/types.py", "diagnostics/records/errors.py"):
        assert not {module for module in _imports(ROOT / name) if module.split(".")[0] in PACKAGES}


def _known_of_ours(paths: list[Path]) -> set[str]:
    """Packages and modules of ours that the files import, two levels deep."""
    known = {name for path in paths for name in _imports(path) if name.split(".")[0] in PACKAGES}
    return {".".join(name.split(".")[:2]) for name in known if not name.startswith("trainers")}


def test_trainers_know_the_shared_part_of_the_audit_and_no_report() -> None:
    trainers = [path for path in _sources("trainers") if _relative(path) not in LIVE_AUDIT]
    assert _known_of_ours(trainers) == SHARED_WITH_TRAINERS


def test_the_live_audit_knows_the_audits_command_settings_and_store() -> None:
    assert _known_of_ours([ROOT / name for name in sorted(LIVE_AUDIT)]) == KNOWN_TO_LIVE_AUDIT
    assert {name for name in _users_of("trainers.integrations") if name.startswith("trainers/")} <= LIVE_AUDIT


@pytest.mark.parametrize("code", ["import diagnostics, trainers, reports", "import diagnostics.app.cli"])
def test_light_imports_load_no_torch(code: str) -> None:
    heavy = {"torch", "transformers", "vllm", "duckdb", "matplotlib", "ray"}
    probe = f"{code}\nimport sys\nprint(sorted({heavy} & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True, cwd=ROOT)
    assert answer.stdout.strip() == "[]"


def test_no_file_is_too_long_to_read_in_one_sitting() -> None:
    sources = [path for package in PACKAGES for path in _sources(package)]
    assert not [_relative(path) for path in sources if len(path.read_text().splitlines()) > 450]
