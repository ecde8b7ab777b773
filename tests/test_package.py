"""The wheel in a clean environment, next to a user's own `trainers/`, `reports/` and `diagnostics.py`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = ("diagnostics", "oversharp", "reports", "trainers")
#: Typed libraries whose types the functions do not show.
LIBRARIES = (
    "duckdb",
    "jaxtyping",
    "matplotlib",
    "numpy",
    "pandas",
    "rich",
    "scipy",
    "sklearn",
    "torch",
    "transformers",
)
FILES = ("LICENSE", "README.md", "pyproject.toml", "setup.py")

pytestmark = [pytest.mark.xdist_group("package"), pytest.mark.slow]


def run(*command: str | Path, cwd: Path) -> str:
    """The output of a command; fails the test with its errors."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    answer = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True, env=environment)
    assert answer.returncode == 0, f"{command}: {answer.stdout}{answer.stderr}"
    return answer.stdout


def copy_of_the_source(folder: Path) -> Path:
    folder.mkdir()
    for name in SHIPPED:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=ignored)
    for name in FILES:
        shutil.copy(ROOT / name, folder / name)
    return folder


def pip_wheel(source: Path, out: Path) -> subprocess.CompletedProcess[str]:
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-deps", "--no-build-isolation")
    return subprocess.run([*pip, "-w", str(out), str(source)], capture_output=True, text=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    answer = pip_wheel(copy_of_the_source(folder / "source"), folder)
    assert answer.returncode == 0, answer.stderr
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and the libraries of this one, without this one's editable install."""
    environment = tmp_path_factory.mktemp("environment") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", environment, cwd=environment.parent)
    packages = next((environment / "lib").glob("python*")) / "site-packages"
    libraries = [entry for entry in sys.path if entry.endswith("site-packages")]
    (packages / "libraries.pth").write_text("\n".join(libraries) + "\n")
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", packages, wheel, cwd=packages)
    return environment / "bin" / "python"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A training project whose own folders have the names of our rooms; to import them is an error."""
    for name in ("trainers", "reports"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text('raise RuntimeError("the user\'s own package")\n')
    (tmp_path / "diagnostics.py").write_text('raise RuntimeError("the user\'s own module")\n')
    rows = [
        {"prompt": f"{a} + 1?", "gold": str(a + 1), "response": f"\\boxed{{{a + 1 + (draw % 3 == 0)}}}", "step": step}
        for step in (0, 10)
        for a in range(8)
        for draw in range(4)
    ]
    (tmp_path / "dump.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def test_the_wheel_holds_one_package_with_its_data_and_its_types(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"oversharp"}
    wanted = ("py.typed", "diagnostics/store/views.sql", "diagnostics/viewer/page/view.js", "reports/templates")
    assert all(any(name.startswith(f"oversharp/{one}") for name in names) for one in wanted)
    assert len(names) > 500


def test_a_source_that_lost_its_links_builds_no_wheel(tmp_path: Path) -> None:
    source = copy_of_the_source(tmp_path / "source")
    (source / "oversharp" / "reports").unlink()
    (source / "oversharp" / "reports").write_text("../reports")  # as a zip archive stores a link
    answer = pip_wheel(source, tmp_path)
    assert answer.returncode == 1
    assert "oversharp/reports is no folder: this archive lost its symbolic links" in answer.stderr + answer.stdout


def test_every_entrance_works_in_a_project_that_has_folders_of_our_names(python: Path, project: Path) -> None:
    where = run(python, "-c", "import oversharp; print(oversharp.__file__)", cwd=project).strip()
    assert Path(where).is_relative_to(python.parents[1])
    fields = "prompt=prompt,gold=gold,response=response,step=step"
    run(python, "-m", "oversharp", "import", "dump.jsonl", "--map", fields, "--store", "audit.duckdb", cwd=project)
    assert (project / "report.html").stat().st_size > 10_000
    notebook = (  # one process for the rest: each takes seconds to import what these need
        "import oversharp\n"
        "from oversharp.diagnostics.app.cli import main\n"
        "with oversharp.open_store('audit.duckdb') as store: print(len(store.report()._repr_html_()))\n"
        "from oversharp.trainers.integrations.callback import OversharpCallback as c; print(c.__module__)\n"
        "for command in (['view', 'audit.duckdb', '--bundle', 'bundle'], ['doctor']):\n"
        "    try: main(command)\n"
        "    except SystemExit as end: assert not end.code, command"
    )
    output = run(python, "-W", "ignore", "-c", notebook, cwd=project)
    size, module, *_ = output.split()
    assert int(size) > 10_000
    assert module.endswith("integrations.callback")
    assert (project / "bundle" / "index.html").is_file()
    assert "no other distribution installs a package oversharp" in output


def test_a_type_checker_sees_the_types_of_the_functions(python: Path, project: Path) -> None:
    pytest.importorskip("mypy", reason="make lint installs mypy")
    (project / "script.py").write_text(
        "import oversharp\n"
        "reveal_type(oversharp.explain)\n"
        "reveal_type(oversharp.open_store('a.duckdb').verdict())\n"
        "oversharp.explain(3)\n"
    )
    skipped = ",".join(f"{library}.*" for library in LIBRARIES)  # what they define takes most of a minute to analyse
    (project / "mypy.ini").write_text(f"[mypy]\n[mypy-{skipped}]\nfollow_imports = skip\n")
    mypy = (sys.executable, "-m", "mypy", "--strict", "--python-executable", str(python), "script.py")
    answer = subprocess.run(mypy, cwd=project, capture_output=True, text=True)
    lines = answer.stdout.splitlines()
    assert 'def (name: str) -> str"' in lines[0], answer.stdout
    assert "oversharp.diagnostics.verdict.record.Verdict" in lines[1]
    assert 'incompatible type "int"' in lines[2]
    assert lines[3].startswith("Found 1 error")
