"""The disturbed commands: inputs, arguments, and results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

_SMALL = "--n 8 --n-base 16 --panel 2 --entropy-samples 2 --max-tokens 1 --batch-size 16 --device cpu"
_SMALL += " --kernel-problems 1 --kernel-responses 2 --sampler transformers --name run"
_TRAINED = "--max-steps 6 --save-every 2 --batch-prompts 3 --group-size 6 --max-tokens 1 --device cpu --resume"


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One command.

    Attributes:
        needs: Product of the material → name in the trial's folder.
        product: The command's result.
        command: Gets the folders of the material and of the trial.
    """

    name: str
    command: Callable[[Path, Path], str]
    product: str
    needs: Mapping[str, str] = field(default_factory=dict)

    def arguments(self, root: Path, folder: Path) -> list[str]:
        """Return the arguments of ``oversharp``."""
        return self.command(root, folder).split()


def _audit(run: Path, out: Path) -> str:
    return f"audit {run} {_SMALL} --problems {run}/problems.jsonl --out {out}"


_ALL = (
    Stage(
        name="import",
        command=lambda root, folder: f"import {folder}/dump --store {folder}/out/audit.duckdb",
        needs={"dump": "dump"},
        product="out/audit.duckdb",
    ),
    Stage(
        name="regrade",
        command=lambda root, folder: f"regrade {folder}/out/audit.duckdb --verifier math",
        needs={"whole/import/out": "out"},
        product="out/audit.duckdb",
    ),
    Stage(
        name="audit",
        command=lambda root, folder: _audit(folder / "run", folder / "out"),
        needs={"run": "run"},
        product="out/audit.duckdb",
    ),
    Stage(
        name="confirm",
        command=lambda root, folder: f"confirm {folder}/out/audit.duckdb --fresh 24 --batch-size 16 --device cpu",
        needs={"whole/audit/out": "out"},
        product="out/audit.duckdb",
    ),
    Stage(
        name="merge",
        command=lambda root, folder: f"merge {folder}/one/audit.duckdb {folder}/other/audit.duckdb --out {folder}/out",
        needs={"whole/import/out": "one", "whole/confirm/out": "other"},
        product="out/audit.duckdb",
    ),
    Stage(
        name="train",
        command=lambda root, folder: (
            f"train --model {root}/run/checkpoint-0 --problems {root}/run/problems.jsonl "
            f"--output-dir {folder}/trained {_TRAINED}"
        ),
        product="trained",
    ),
)
#: By name, in an order in which each finds its inputs.
STAGES: Mapping[str, Stage] = {stage.name: stage for stage in _ALL}


def with_needed(names: Iterable[str]) -> tuple[str, ...]:
    """Return these stages and those that they need, each after its inputs."""
    wanted, todo = set(names), list(names)
    while todo:
        sources = [place.split("/")[1] for place in STAGES[todo.pop()].needs if place.startswith("whole/")]
        todo += set(sources) - wanted
        wanted |= set(sources)
    return tuple(name for name in STAGES if name in wanted)
