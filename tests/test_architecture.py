"""The import rules of the house: which room stands on which, who may know whom, and what must stay light."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter, defaultdict
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("diagnostics", "reports", "trainers")
PACKAGES = ("oversharp/diagnostics", "oversharp/reports", "oversharp/trainers")
#: From the ground up: a module imports its own room and rooms that stand before it in this list, and no other.
ROOMS = (
    "oversharp.diagnostics.records",
    "oversharp.diagnostics.trajectories",
    "oversharp.diagnostics.statistics",
    "oversharp.diagnostics.theory",
    "oversharp.diagnostics.http",
    "oversharp.diagnostics.ways",
    "oversharp.diagnostics.measures",
    "oversharp.diagnostics.verdict",
    "oversharp.diagnostics.verifiers",
    "oversharp.diagnostics.series",
    "oversharp.diagnostics.repair",
    "oversharp.diagnostics.tasks",
    "oversharp.diagnostics.models",
    "oversharp.diagnostics.kernel",
    "oversharp.diagnostics.samplers",
    "oversharp.diagnostics.store",
    "oversharp.diagnostics.changes",
    "oversharp.diagnostics.engine",
    "oversharp.diagnostics.audit",
    "oversharp.diagnostics.ingest",
    "oversharp.diagnostics.export",
    "oversharp.reports",
    "oversharp.diagnostics.viewer",
    "oversharp.trainers",
    "oversharp.diagnostics.app",
    "oversharp",
    "oversharp.trainers.integrations",
)
#: The same inside ``trainers``: rooms, and the modules of its root.
ROOMS_OF_TRAINERS = (
    "oversharp.trainers.seeds",
    "oversharp.trainers.batch",
    "oversharp.trainers.objectives",
    "oversharp.trainers.config",
    "oversharp.trainers.worlds",
    "oversharp.trainers.warning_signs",
    "oversharp.trainers.model",
    "oversharp.trainers.rollouts",
    "oversharp.trainers.update",
    "oversharp.trainers.run",
    "oversharp.trainers.sft",
    "oversharp.trainers.checking",
    "oversharp.trainers.step",
    "oversharp.trainers.loop",
)
#: What reports and trainers may know of the audit.
KNOWN_TO_REPORTS = {"records", "trajectories", "statistics", "ways", "measures", "verdict", "verifiers", "store"}
KNOWN_TO_TRAINERS = {"records", "statistics", "verifiers", "tasks", "models", "samplers"}
#: The heavy libraries, and where alone each is imported.
HOMES = {
    "torch": ("models", "kernel", "samplers", "engine.teacher_forcing", "ingest.formats.slime", "app.doctor"),
    "transformers": ("models", "kernel", "samplers", "engine.teacher_forcing"),
    "duckdb": ("store.database",),
    "ray": ("engine.ray_pool",),
    "aiohttp": ("http.transport",),
    "starlette": ("viewer.server",),
    "uvicorn": ("viewer.server",),
}
#: Folders whose files are a catalogue: one file, one thing of a kind.
CATALOGUES = {"oversharp/diagnostics/ingest/formats"}
MOST_MODULES = 15

pytestmark = pytest.mark.xdist_group("architecture")  # every source file is parsed once


@cache
def _modules() -> dict[str, Path]:
    """Module name → file, of everything that ships."""
    files = [
        *(ROOT / "oversharp").glob("*.py"),
        *(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")),
    ]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in files}


@cache
def _tree(path: Path) -> ast.Module:
    """A source file, parsed once."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def _imports(name: str) -> frozenset[str]:
    """Modules that ``name`` imports, anywhere in its file, under ``TYPE_CHECKING`` too."""
    found: set[str] = set()
    for node in ast.walk(_tree(_modules()[name])):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            submodules = {f"{node.module}.{alias.name}" for alias in node.names} & _modules().keys()
            whole = len(submodules) == len(node.names)
            found |= submodules if whole else {node.module, *submodules}
    return frozenset(found - {name})


def _ours(name: str) -> set[str]:
    return {module for module in _imports(name) if module in _modules()}


def _room(module: str) -> str:
    return max((room for room in ROOMS if f"{module}.".startswith(f"{room}.")), key=len, default="")


def _in(module: str, places: set[str] | tuple[str, ...]) -> bool:
    return any(f"{module}.".startswith(f"oversharp.diagnostics.{place}.") for place in places)


def test_every_module_stands_in_a_room_and_the_root_of_diagnostics_is_empty() -> None:
    assert not [name for name in _modules() if not _room(name) and name != "oversharp.diagnostics"]
    assert [path.name for path in (ROOT / "diagnostics").glob("*.py")] == ["__init__.py"]


#: A line with an import and the name of a folder: to parse every file takes seconds.
MAY_IMPORT_A_FOLDER = re.compile(rf"^\s*(?:import|from)\b.*(?<![.\w])(?:{'|'.join(FOLDERS)})\b", re.MULTILINE)


def test_nothing_imports_a_folder_past_its_package() -> None:
    """`import diagnostics` would load a second copy of each module, which the users' own may shadow."""
    tracked = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    past = []
    for path in tracked.split():
        text = (ROOT / path).read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if MAY_IMPORT_A_FOLDER.search(text) else ():
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            past += [f"{path}: {name}" for name in names if name.split(".")[0] in FOLDERS]
    assert len(tracked.split()) > 1000
    assert not past


@pytest.mark.parametrize("room", FOLDERS)
def test_a_folder_that_is_imported_past_its_package_says_so(room: str) -> None:
    answer = subprocess.run([sys.executable, "-c", f"import {room}"], cwd=ROOT, capture_output=True, text=True)
    assert answer.returncode == 1
    assert answer.stderr.rstrip().endswith(f"ImportError: import oversharp.{room} instead of {room}")


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_what_stands_below_it(room: str) -> None:
    for name in _modules():
        if _room(name) == room:
            upward = {one for one in _ours(name) if ROOMS.index(_room(one)) > ROOMS.index(room)}
            assert not upward, f"{name} imports {sorted(upward)}"


def test_inside_the_trainers_a_room_imports_only_what_stands_below_it() -> None:
    heights = {
        name: height
        for name in _modules()
        for height, room in enumerate(ROOMS_OF_TRAINERS)
        if f"{name}.".startswith(f"{room}.")
    }
    assert heights.keys() == {name for name in _modules() if _room(name) == "oversharp.trainers"} - {
        "oversharp.trainers"
    }
    upward = [(name, one) for name in heights for one in _ours(name) & heights.keys() if heights[one] > heights[name]]
    assert not upward


def test_no_modules_import_each_other_in_a_circle() -> None:
    try:
        list(TopologicalSorter({name: _ours(name) for name in _modules()}).static_order())
    except CycleError as circle:
        pytest.fail(" → ".join(circle.args[1]))


@pytest.mark.parametrize("room", ["measures", "statistics", "theory", "verdict"])
def test_measures_statistics_theory_and_verdict_are_pure(room: str) -> None:
    pure = {"records", "measures", "statistics", "theory", "verdict", "ways"}
    for name in _modules():
        if _in(name, (room,)):
            assert not {one for one in _ours(name) if not _in(one, pure)}, name


@pytest.mark.parametrize(
    ("package", "known"), [("oversharp.reports", KNOWN_TO_REPORTS), ("oversharp.trainers", KNOWN_TO_TRAINERS)]
)
def test_reports_and_trainers_know_a_part_of_the_audit_and_not_each_other(package: str, known: set[str]) -> None:
    for name in _modules():
        if _room(name) == package:
            assert not {one for one in _ours(name) if _room(one) != package and not _in(one, known)}, name


@pytest.mark.parametrize("library", HOMES)
def test_a_heavy_library_is_imported_in_its_rooms_alone(library: str) -> None:
    users = {name for name in _modules() if any(one.split(".")[0] == library for one in _imports(name))}
    assert any(_in(name, HOMES[library]) for name in users)
    abroad = {name for name in users if not _in(name, HOMES[library])}
    allowed = "oversharp.trainers." if library in ("torch", "transformers") else "-"
    assert not {name for name in abroad if not name.startswith(allowed)}


#: Libraries that take half a second or more to import: imported in the functions that need them.
SLOW = ("scipy.stats", "scipy.optimize", "scipy.interpolate", "scipy.linalg", "sklearn")


def _imported_at_once(body: list[ast.stmt]) -> set[str]:
    """Modules that a module imports when it is itself imported."""
    found: set[str] = set()
    for node in body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Try | ast.With | ast.ClassDef):
            found |= _imported_at_once(node.body)
        elif isinstance(node, ast.If) and ast.unparse(node.test) != "TYPE_CHECKING":
            found |= _imported_at_once([*node.body, *node.orelse])
    return found


def test_slow_libraries_are_imported_in_functions_alone() -> None:
    planted = "import numpy\nif True:\n    from scipy import stats\ndef f():\n    import sklearn\n"
    assert _imported_at_once(ast.parse(planted).body) == {"numpy", "scipy", "scipy.stats"}
    for name, path in _modules().items():
        at_once = _imported_at_once(_tree(path).body)
        assert not {one for one in at_once if f"{one}.".startswith(tuple(f"{slow}." for slow in SLOW))}, name


TRAINING = """
import oversharp.trainers.config, oversharp.trainers.run.trackers, oversharp.trainers.run.checkpointing
oversharp.trainers.run.checkpointing.committed_step(oversharp.trainers.config.TrainConfig().output_dir)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        "import oversharp, oversharp.diagnostics, oversharp.trainers, oversharp.reports",
        "import oversharp.diagnostics.app.cli",
        TRAINING,
    ],
)
def test_light_imports_load_no_torch(code: str) -> None:
    heavy = {
        "torch",
        "transformers",
        "vllm",
        "duckdb",
        "matplotlib",
        "sklearn",
        "ray",
        "starlette",
        "uvicorn",
        "aiohttp",
    }
    heavy |= {"aiohttp", "tensorboard", "wandb", "trackio"}
    probe = f"{code}\nimport sys\nprint(sorted({heavy} & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True, cwd=ROOT)
    assert answer.stdout.strip() == "[]"


WRITES = re.compile(r"\b(INSERT (OR \w+ )?INTO|UPDATE \w+ SET|DELETE FROM|CREATE (OR REPLACE )?TABLE|DROP TABLE)\b")


def test_the_store_is_written_in_its_own_room_alone() -> None:
    texts = {
        name: [
            node.value
            for node in ast.walk(_tree(path))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        for name, path in _modules().items()
        if WRITES.search(path.read_text(encoding="utf-8"))
    }
    writers = {name for name, strings in texts.items() if any(WRITES.search(text) for text in strings)}
    assert writers
    assert not {name for name in writers if not _in(name, ("store",))}


def test_a_view_is_defined_once() -> None:
    scripts = [path.read_text(encoding="utf-8") for path in (ROOT / "diagnostics").rglob("*.sql")]
    pattern = r"^CREATE (?:OR REPLACE )?(?:TEMP )?(?:VIEW|TABLE) (?:IF NOT EXISTS )?(\w+)"
    made = Counter(re.findall(pattern, "\n".join(scripts), re.MULTILINE))
    assert len(made) > 30
    assert not [name for name, n in made.items() if n > 1]


def test_a_class_name_stands_for_one_thing() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for name, path in _modules().items():
        for class_name in re.findall(r"^\s*class (\w+)[(:]", path.read_text(encoding="utf-8"), re.MULTILINE):
            homes[class_name].append(name)
    assert len(homes) > 300
    assert not {name: where for name, where in homes.items() if len(where) > 1}


def test_a_folder_holds_no_more_modules_than_one_can_keep_in_mind() -> None:
    folders = Counter(
        path.relative_to(ROOT).parent.as_posix() for path in _modules().values() if path.stem != "__init__"
    )
    assert not {name: n for name, n in folders.items() if n > MOST_MODULES and name not in CATALOGUES}


def test_no_file_is_too_long_to_read_in_one_sitting() -> None:
    assert not [name for name, path in _modules().items() if len(path.read_text(encoding="utf-8").splitlines()) > 450]
