"""A static copy of a selection: files that open from disk or from any web server, and ask for nothing else."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.errors import ConfigError, StoreError
from oversharp.diagnostics.viewer.listing import selected
from oversharp.diagnostics.viewer.page import POLICY, page_files
from oversharp.diagnostics.viewer.records import ProblemSide, ViewedProblem, ViewSelection, ViewStart
from oversharp.diagnostics.viewer.viewer import Viewer

#: Different responses of an answer that a copy holds in full, and different answers of a checkpoint.
RESPONSES_PER_ANSWER, ANSWERS = 5, 40
_HEAD = '<meta charset="utf-8">'


@dataclass(frozen=True, kw_only=True)
class WrittenBundle:
    """What was written to ``folder``: ``n_problems`` of the ``n_selected`` that the selection has, in ``n_bytes``."""

    folder: Path
    n_problems: int
    n_selected: int
    n_responses: int
    n_bytes: int


def require_bundle_place(folder: Path) -> None:
    """Raise ``ConfigError`` where a copy would be written over something: before any work."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"--bundle {folder}: is there already, and not an empty directory; name another")


def write_bundle(
    viewer: Viewer,
    selection: ViewSelection,
    folder: Path,
    *,
    most: int,
    stage: Callable[[str, int], AbstractContextManager[Callable[[int], None]]],
) -> WrittenBundle:
    """Write the first ``most`` problems of a selection to ``folder``: all of it, or nothing.

    Raises ``ConfigError`` where nothing is selected or the folder is taken, ``StoreError`` where it cannot be written.
    """
    require_bundle_place(folder)
    listed = viewer.problems(selection)
    found = viewer.found(selection) if selection.search else None
    chosen = [one for one in selected(listed, selection.only) if found is None or one.problem_id in found]
    if not chosen:
        raise ConfigError(f"--bundle {folder}: the selection has no problem; choose another --only or --search")
    start = ViewStart(
        store=viewer.store_name,
        series=tuple(one for one in viewer.series if one.name == selection.series),
        selection=selection,
        bundle=True,
        note=_note(len(chosen[:most]), len(chosen), len(listed.problems), selection),
    )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as scratch:
            made = Path(scratch) / "copy"
            (made / "data").mkdir(parents=True)
            _write_page(made)
            _write(made, "start", start)
            _write(made, "problems", replace(listed, problems=tuple(chosen[:most])))
            n_responses = 0
            with stage("copy problems", len(chosen[:most])) as advance:
                for number, one in enumerate(chosen[:most]):
                    n_responses += _write_problem(viewer, selection, made, f"problem-{number}", one.problem_id)
                    advance(1)
            n_bytes = sum(file.stat().st_size for file in made.rglob("*") if file.is_file())
            _put(made, folder)
    except OSError as error:
        raise StoreError(f"{folder}: cannot be written ({error.strerror}); name another --bundle") from error
    return WrittenBundle(
        folder=folder, n_problems=len(chosen[:most]), n_selected=len(chosen), n_responses=n_responses, n_bytes=n_bytes
    )


def _note(n: int, n_selected: int, n_all: int, selection: ViewSelection) -> str:
    problems = plural(n, "problem") if n == n_selected else f"the first {n} of {plural(n_selected, 'problem')}"
    by = [f"--only {selection.only}"] if selection.only != "all" else []
    by += [f"--search {selection.search!r}"] if selection.search else []
    chosen = f", chosen of {n_all} by {' and '.join(by)}" if by else ""
    return (
        f"A copy of {problems}{chosen}, with up to {RESPONSES_PER_ANSWER} different responses in full of each of the "
        f"{ANSWERS} most frequent answers."
    )


def _put(made: Path, folder: Path) -> None:
    os.chmod(made, 0o755)
    if folder.is_dir():
        folder.rmdir()
    shutil.move(made, folder)


def _write_page(folder: Path) -> None:
    files = page_files()
    policy = f'{_HEAD}\n<meta http-equiv="content-security-policy" content="{POLICY}">'
    files["index.html"] = files["index.html"].replace("<html ", "<html data-bundle ").replace(_HEAD, policy)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


def _write_problem(viewer: Viewer, selection: ViewSelection, folder: Path, name: str, problem_id: str) -> int:
    """One file of a problem with its responses; how many these are."""
    problem = _shortened(viewer.problem(selection, problem_id))
    texts = {
        f"{side.key}:{response_id}": text
        for side in problem.sides
        for response_id, text in viewer.responses(
            selection, problem_id, side.key, [one.response_id for group in side.answers for one in group.responses]
        ).items()
    }
    _write(folder, name, {"problem": problem, "responses": texts})
    return len(texts)


def _shortened(problem: ViewedProblem) -> ViewedProblem:
    first, second = problem.sides
    return replace(problem, sides=(_few(first), _few(second)))


def _few(side: ProblemSide) -> ProblemSide:
    return replace(
        side,
        answers=tuple(
            replace(group, responses=group.responses[:RESPONSES_PER_ANSWER] if place < ANSWERS else ())
            for place, group in enumerate(side.answers)
        ),
    )


def _write(folder: Path, name: str, value: Any) -> None:
    """A script that hands the page a value: from disk a browser reads scripts alone. Plain ASCII, whatever it holds."""
    text = json.dumps(msgspec.to_builtins(value), separators=(",", ":"))
    (folder / "data" / f"{name}.js").write_text(f'oversharpData("{name}",{text});\n', encoding="ascii")
