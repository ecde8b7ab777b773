"""The speeds and sizes that the documentation claims, and the code on which each depends.

``python -m benchmarks.speed.claims`` prints which result files are older than that code. ``--mark`` marks them on
``docs/measured.md``. ``--run`` (``make bench-stale``) measures them again, as far as their inputs exist, and then marks
the others.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from types import MappingProxyType

from benchmarks.calibration.reached_code import bare_statement, code_reached

ROOT = Path(__file__).parents[2]
RESULTS, PAGE = ROOT / "benchmarks" / "results", ROOT / "docs" / "measured.md"
#: What follows the link to a result file that is older than the code.
MARK = " (measured with earlier code)"

_AUDIT, _IMPORT = "oversharp.diagnostics.audit.audit:audit", "oversharp.diagnostics.ingest.ingest:import_samples"
_JAILED = "oversharp.diagnostics.verifiers.sandbox.guest"
_REPORT, _TRAIN = "oversharp.reports:build_report", "oversharp.trainers.loop:train"
#: Folders whose modules are loaded by name, and SQL, which no import shows.
_MEASURES, _FORMATS, _OBJECTIVES = "diagnostics/measures", "diagnostics/ingest/formats", "trainers/objectives"
_GRADERS, _SQL = "diagnostics/verifiers", "diagnostics/store"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A result file, and the code that its numbers depend on.

    ``module`` is the benchmark, with ``arguments``. Its ``main`` is followed, and so are the functions ``reaches``
    (``module:function``), which it starts in other processes. All Python and SQL files in ``folders`` count as well.
    ``needs`` has arguments that only the user knows, such as a peer's interpreter; without them it is not run again.
    """

    module: str
    reaches: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    needs: str = ""


def _audit(module: str, needs: str = "") -> Claim:
    return Claim(module=module, reaches=(_AUDIT,), folders=(_MEASURES, _GRADERS, _SQL), needs=needs)


#: Result file → claim, in the order of the page.
CLAIMS: Mapping[str, Claim] = MappingProxyType(
    {
        "demo_cost": Claim(
            module="benchmarks.speed.demo",
            reaches=(_AUDIT, _TRAIN, _REPORT),
            folders=(_MEASURES, _GRADERS, _SQL, _OBJECTIVES),
        ),
        "audit_speed": _audit("benchmarks.speed.audit"),
        "sampling": _audit("benchmarks.speed.sampling", needs="--peer-python PYTHON"),
        "sampler_choice": Claim(
            module="benchmarks.speed.sampler_choice", reaches=("oversharp.diagnostics.samplers:make_sampler",)
        ),
        "real_model_speed": Claim(module="benchmarks.speed.real_model_speed", needs="MODEL"),
        "sampling_rounds": _audit("benchmarks.speed.sampling_rounds", needs="RUN"),
        "verification": Claim(module="benchmarks.speed.verification"),
        "own_graders": Claim(module="benchmarks.speed.own_graders", folders=(f"{_GRADERS}/own_workers",)),
        "endpoint": Claim(
            module="benchmarks.speed.endpoint",
            folders=("diagnostics/samplers/endpoint", "diagnostics/http"),
            needs="MODEL RUN",
        ),
        "sandbox": Claim(
            module="benchmarks.speed.sandbox",
            reaches=(f"{_JAILED}:_serve_calls", f"{_JAILED}:_run_script", f"{_JAILED}:_judge", f"{_JAILED}:main"),
        ),
        "grading_memory": Claim(module="benchmarks.speed.grading_memory", folders=(_GRADERS, _SQL)),
        "scoring": Claim(module="benchmarks.speed.scoring"),
        "kernel": Claim(module="benchmarks.speed.kernel", needs="--peer-python PYTHON"),
        "statistics_speed": Claim(module="benchmarks.speed.count_statistics", folders=(_MEASURES, _SQL)),
        "report_speed": Claim(module="benchmarks.speed.report", reaches=(_REPORT,), folders=(_SQL,)),
        "importing": Claim(module="benchmarks.speed.importing", folders=(_FORMATS, _SQL)),
        "ways_stage": Claim(module="benchmarks.speed.ways_stage", folders=("diagnostics/ways", _SQL)),
        "ways": Claim(
            module="benchmarks.reading.ways",
            folders=("diagnostics/ways",),
            needs="--demo STORE --real DIR --trained RUN",
        ),
        "large_import": Claim(
            module="benchmarks.speed.large_import", reaches=(_IMPORT, _REPORT), folders=(_FORMATS, _MEASURES, _SQL)
        ),
        "viewing": Claim(
            module="benchmarks.speed.viewing",
            reaches=("oversharp.diagnostics.viewer.server:create_app",),
            folders=("diagnostics/viewer", _SQL),
        ),
        "viewing_trajectories": Claim(
            module="benchmarks.speed.viewing_trajectories",
            reaches=("oversharp.diagnostics.viewer.server:create_app",),
            folders=("diagnostics/viewer", _SQL),
        ),
        "training": Claim(
            module="benchmarks.speed.training", reaches=(_TRAIN,), folders=(_OBJECTIVES,), needs="--peer-python PYTHON"
        ),
        "training_chat_model": Claim(
            module="benchmarks.speed.training",
            reaches=(_TRAIN,),
            folders=(_OBJECTIVES,),
            needs="--chat-model CHECKPOINT --peer-python PYTHON",
        ),
        "dlc_speed": Claim(module="benchmarks.speed.dlc"),
        "loss_memory": Claim(module="benchmarks.speed.loss_memory"),
        "memory_plan": Claim(module="benchmarks.speed.memory_plan"),
        "repair": Claim(module="benchmarks.speed.repair", reaches=("oversharp.diagnostics.repair.repair:repair",)),
        "audit_cost": _audit("benchmarks.speed.audit_cost", needs="RUN --model BASE"),
    }
)


def code_hash(name: str) -> str:
    """Return the hash of the code that the numbers of a result file depend on.

    Comments, docstrings, layout and module names have no effect.
    """
    claim = CLAIMS[name]
    reached = set[tuple[str, str]]()
    for start in (f"{claim.module}:main", *claim.reaches):
        reached |= _reached(start)
    for folder in claim.folders:
        reached |= _files(folder)
    return sha256(repr(sorted(reached)).encode()).hexdigest()[:16]


@cache
def _reached(start: str) -> frozenset[tuple[str, str]]:
    module, _, function = start.partition(":")
    return code_reached(getattr(import_module(module), function), root=ROOT)


@cache
def _files(folder: str) -> frozenset[tuple[str, str]]:
    """Return the code in a folder, by file name."""
    files = [file for file in (ROOT / folder).rglob("*") if file.suffix in (".py", ".sql")]
    return frozenset((file.name, _code(file)) for file in files)


def _code(file: Path) -> str:
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".sql":
        lines = (line.split("--")[0].strip() for line in text.splitlines())
        return "\n".join(line for line in lines if line and not line.startswith("COMMENT ON"))
    return "\n".join(bare_statement(statement) for statement in ast.parse(text).body)


def stale() -> tuple[str, ...]:
    """Return the names of the result files that are older than the code they depend on."""
    recorded = {name: json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8")).get("code") for name in CLAIMS}
    return tuple(name for name, code in recorded.items() if code != code_hash(name))


def marked(page: str, names: Collection[str]) -> str:
    """Return the page with a mark at the first link to each of these result files, and at no other.

    >>> marked("[`repair.json`](../benchmarks/results/repair.json), in short", ["repair"])
    '[`repair.json`](../benchmarks/results/repair.json) (measured with earlier code), in short'
    """

    def link(found: re.Match[str]) -> str:
        return f"{found[1]}{MARK if found[2] in names else ''}"

    return re.sub(rf"(\[`\w+\.json`\]\(\.\./benchmarks/results/(\w+)\.json\))(?:{re.escape(MARK)})?", link, page)


def _run(names: Collection[str]) -> Iterator[str]:
    """Measure these files again; yield a line for each that could not be."""
    for name in names:
        claim = CLAIMS[name]
        if claim.needs:
            yield f"{name}: run python -m {claim.module} {claim.needs}"
        elif subprocess.run([sys.executable, "-m", claim.module], check=False, cwd=ROOT).returncode:
            yield f"{name}: python -m {claim.module} failed"


def main() -> int:
    """List, mark or measure the stale result files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mark", action="store_true", help="mark stale files on docs/measured.md")
    parser.add_argument("--run", action="store_true", help="measure stale files again, then mark the rest")
    flags = parser.parse_args()
    names = stale()
    left = list(_run(names)) if flags.run else [f"{name}: older than its code" for name in names]
    if flags.mark or flags.run:
        PAGE.write_text(marked(PAGE.read_text(encoding="utf-8"), stale()), encoding="utf-8")
    print("\n".join(left) or "no result file is older than its code")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
