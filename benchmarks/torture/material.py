"""Material of the trials: tiny checkpoints, dumps and stores, and the results of undisturbed commands."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.torture.commands import Ended, ended
from benchmarks.torture.stages import STAGES, Stage
from benchmarks.torture.states import State, trained_state
from tests.conftest import write_checkpoint
from tests.preloaded import RunningServer

STEPS = (0, 20, 40)
#: The answers accept much of the output of random weights, so that some samples are right and some wrong.
_PROBLEMS = (
    ("often", "1 2 3 = 7 :", range(90)),
    ("other", "2 3 4 = 9 :", range(89, -1, -1)),
    ("rare", "1 2 4 = 8 :", (98, 99)),
    ("some", "5 6 7 = 1 :", range(30, 80)),
)
_N_PROBLEMS, _REPEATS = 12, 8


@dataclass(frozen=True, kw_only=True)
class Undisturbed:
    """Result of an undisturbed command, its time, and its size in bytes."""

    state: State
    wall_s: float
    code: int
    n_bytes: int


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Setup of the trials: the material, the process that forks commands, and the expected result of every stage."""

    server: RunningServer
    root: Path
    whole: Mapping[str, Undisturbed]

    def folder(self, stage: Stage, number: int) -> Path:
        """Create the trial's folder, with the command's inputs."""
        folder = self.root / "trials" / str(number)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        lay_out(self.root, stage, folder)
        return folder

    def finished(self, stage: Stage, number: int) -> Path:
        """Create the trial's folder, with the results of the undisturbed command."""
        folder = self.root / "trials" / str(number)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.root / "whole" / stage.name, folder)
        return folder

    def run(self, stage: Stage, folder: Path, **disturbed: object) -> Ended:
        """Run the stage's command in ``folder``."""
        return ended(self.server, stage.arguments(self.root, folder), **disturbed)  # type: ignore[arg-type]

    def state(self, stage: Stage, folder: Path) -> State | Ended:
        """Return the command's results in ``folder``, or how reading them ended."""
        return state_of(self.server, stage, folder)


def made(server: RunningServer, root: Path, names: tuple[str, ...] = tuple(STAGES)) -> Bench:
    """Write the material and run every command of ``names`` once, undisturbed."""
    if names:
        _write_dump(root / "dump")
    if set(names) - {"import", "regrade"}:
        for step in STEPS:
            write_checkpoint(root / "run" / f"checkpoint-{step}", seed=step)
        _write_problems(root / "run" / "problems.jsonl")
    whole = {}
    for name in names:
        stage = STAGES[name]
        folder = root / "whole" / name
        folder.mkdir(parents=True)
        lay_out(root, stage, folder)
        done = ended(server, stage.arguments(root, folder))
        assert done.code in (0, 3), f"{name}: {done.said}"
        state = state_of(server, stage, folder)
        assert not isinstance(state, Ended), f"{name}: {state}"
        whole[name] = Undisturbed(state=state, wall_s=done.wall_s, code=done.code, n_bytes=bytes_in(folder))
    return Bench(server=server, root=root, whole=whole)


def lay_out(root: Path, stage: Stage, folder: Path) -> None:
    """Copy the stage's inputs, the products of other stages."""
    for product, name in stage.needs.items():
        shutil.copytree(root / product, folder / name)


def state_of(server: RunningServer, stage: Stage, folder: Path) -> State | Ended:
    """Read the results in a separate process, because a damaged file may crash it."""
    if stage.name == "train":
        return trained_state(folder / stage.product)
    target = folder / "state.pickle"
    done = ended(server, ["state", str(folder / stage.product), str(target)])
    if done.code:
        return done
    state: State = pickle.loads(target.read_bytes())
    target.unlink()
    return state


def bytes_in(folder: Path) -> int:
    """Return the size of all files below."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _write_dump(folder: Path) -> None:
    """Write a dump in verl's layout.

    Half of the problems are forgotten step by step, the others are learned.
    """
    folder.mkdir(parents=True)
    for position, step in enumerate((0, 10, 20)):
        rows = []
        for problem in range(_N_PROBLEMS):
            for repeat in range(_REPEATS):
                right = repeat < (4 + 2 * position if problem % 2 else 4 - 2 * position)
                answer = problem * 7 if right else -1 - repeat
                said = f"Attempt {repeat}: \\boxed{{{answer}}}"
                told = {"gts": str(problem * 7), "score": float(right), "step": step}
                rows.append(json.dumps({"input": f"What is 7 times {problem}?", "output": said, **told}))
        (folder / f"{step}.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")


def _write_problems(path: Path) -> None:
    lines = [
        json.dumps({"id": name, "prompt": prompt, "answer": "7", "modes": [str(number) for number in accepted]})
        for name, prompt, accepted in _PROBLEMS
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
