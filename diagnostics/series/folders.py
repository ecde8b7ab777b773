"""Find the checkpoint folders of a run, their steps, and local copies of models."""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from oversharp.diagnostics.records.errors import CheckpointError
from oversharp.diagnostics.series.layouts import INNER_FOLDERS, PLAIN, find_place, has_weights, is_model
from oversharp.diagnostics.series.step_names import step_after_word

LOOKED_FOR = (
    "checkpoint-N, step_N, step-N, global_step_N, global_stepN_hf, iter_N or any folder whose name ends in a number"
)

_STEP = re.compile(r"(?:^|\D)(\d+)(?:[-_]hf)?$")
_STEP_WORDS = r"(?:checkpoint|step|(?:best_)?global_step|iter)[-_]?"
_STEP_FOLDER = re.compile(rf"{_STEP_WORDS}\d+(?:[-_]hf)?$")
_STEP_IN_NAME = re.compile(rf"(?:^|(?<![^\W_]){_STEP_WORDS})(\d+)(?:[-_]hf)?$")
_UNFINISHED = re.compile(r"^(?:tmp|temp|\.)[-_]?|\.(?:incomplete|tmp|partial)$")
#: Folders in a run's directory that contain steps: prime-rl's, SkyRL's, a folder for slime's --save-hf, OpenRLHF's.
_RUN_FOLDERS = ("weights", "checkpoints", "broadcasts", "export", "exports", "hf_exports", "hf", "_actor")
_HUB_NAME = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?")


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A folder that may be a checkpoint.

    Fields are those of ``CheckpointPlace``; ``step`` may be unknown.
    """

    label: str
    path: Path
    step: int | None
    layout: str = PLAIN
    under: Path | None = None
    obstacle: str = ""


def find_candidates(paths: Sequence[Path | str]) -> tuple[list[Candidate], list[str]]:
    """Return folders that may be checkpoints, and a ``"label: reason"`` line per skipped folder.

    Raises ``CheckpointError`` for a path that does not exist or contains no checkpoint. For a glob, one match with a
    checkpoint is enough.
    """
    if not paths:
        raise CheckpointError("no checkpoints given; pass a directory of checkpoints")
    folders: list[Path] = []
    for given in map(str, paths):
        matches = _expand(given)
        by_match = [_step_folders(match) for match in matches]
        if not any(by_match):
            raise _no_checkpoint_error(matches[0] if len(matches) == 1 else Path(given), matches)
        folders += [folder for group in by_match for folder in group]
    outermost = [_outermost(folder) for folder in folders]
    distinct, skipped = _without_links(outermost)
    skipped += [
        f"{link.name}: is a link to {link.readlink()}, which does not exist" for link in _dangling_links(outermost)
    ]
    unfinished = [folder for folder in distinct if _UNFINISHED.search(folder.name)]
    skipped += [f"{folder.name}: is still being written, judging by its name" for folder in unfinished]
    return _keep_one_per_step([_candidate(folder) for folder in distinct if folder not in unfinished]), skipped


def _without_links(folders: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """Return each folder once, if possible by its real name, and a line per skipped link.

    Raises ``CheckpointError`` if links with different steps point to the same folder outside ``folders``.
    """
    by_target: dict[Path, list[Path]] = {}
    for folder in folders:
        by_target.setdefault(folder.resolve(), []).append(folder)
    distinct, notes = [], []
    for target, names in by_target.items():
        own = next((path for path in names if not path.is_symlink()), names[0])
        distinct.append(own)
        others = sorted({path for path in names if path.name != own.name})
        if others and own.is_symlink():
            raise CheckpointError(
                f"{own} and {others[0].name} are links to the same folder ({target}), so its step is unknown; "
                "remove one of them"
            )
        notes += [f"{path.name}: is a link to {own.name}, which is in the series" for path in others]
    return distinct, notes


def _dangling_links(folders: Sequence[Path]) -> list[Path]:
    """Return the dangling links next to ``folders`` whose names contain a step."""
    siblings = [child for parent in dict.fromkeys(folder.parent for folder in folders) for child in parent.iterdir()]
    return sorted(
        path for path in siblings if path.is_symlink() and not path.exists() and _STEP_FOLDER.fullmatch(path.name)
    )


def _expand(given: str) -> list[Path]:
    """Return the directories of ``given``: a path, or every match of a glob."""
    path = Path(given).expanduser()
    if path.is_dir():
        return [path]
    if glob.has_magic(given):
        matches = [Path(match) for match in sorted(glob.glob(str(path))) if os.path.isdir(match)]
        if matches:
            return matches
        raise CheckpointError(f"{given}: matches no directory; quote the glob and check it with ls")
    problem = "is a file, not a directory" if path.exists() else "does not exist"
    near = [] if path.exists() else near_directories(path)
    hint = f"did you mean {', '.join(near)}?" if near else f"pass a directory of checkpoints ({LOOKED_FOR})"
    if not near and (name := _HUB_NAME.fullmatch(given)) is not None and not path.parent.exists():
        revision = f" --revision {name['revision']}" if name["revision"] else ""
        hint += (
            "; a name on the Hugging Face hub must be downloaded first: `hf download "
            f"{name['repository']}{revision} --local-dir RUN_DIR/checkpoint-STEP`, and pass RUN_DIR"
        )
    raise CheckpointError(f"{given}: {problem}; {hint}")


def _step_folders(path: Path) -> list[Path]:
    """Return the step folders in ``path`` or its subfolders, or ``path`` if it is a checkpoint.

    Step folders inside have priority, because trainers save the final model next to its checkpoints. Of several
    subfolders, the first with a readable step is used.
    """
    groups = [steps for folder in (path, *(path / name for name in _RUN_FOLDERS)) if (steps := _steps_in(folder))]
    readable = [steps for steps in groups if any(_is_readable(step) for step in steps)]
    if readable:
        return readable[0]
    itself = _outermost(path)
    # DeepSpeed's folder inside a checkpoint is named like a step
    if _has_model(itself) and (not groups or (_is_checkpoint(itself) and _STEP_FOLDER.fullmatch(itself.name))):
        return [path]
    return groups[0] if groups else []


def _steps_in(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(child for child in folder.iterdir() if child.is_dir() and _looks_like_step(child))


def _looks_like_step(folder: Path) -> bool:
    """Return whether a folder's name has a step, and the folder is a model or has a trainer's usual name."""
    bare = _UNFINISHED.sub("", folder.name)
    # NeMo-RL uses such names while it replaces a checkpoint
    if _step_in(bare) is None or folder.name.startswith("old_step_"):
        return False
    return bool(_STEP_FOLDER.fullmatch(bare)) or _has_model(folder)


def _has_model(folder: Path) -> bool:
    place = find_place(folder)
    return place.layout != PLAIN or is_model(place.model)


def _is_readable(folder: Path) -> bool:
    place = find_place(folder)
    return not place.obstacle and has_weights(place.model)


def _is_checkpoint(folder: Path) -> bool:
    return _is_readable(folder) or bool(find_place(folder).obstacle)


def _step_in(name: str) -> int | None:
    """Return the step in a folder's name: the number after a word for steps, else at the end."""
    step = step_after_word(name)
    match = _STEP.search(name) if step is None else None
    return int(match[1]) if match else step


def _outermost(path: Path) -> Path:
    """Return the step folder if ``path`` is a trainer's folder inside it, else ``path``."""
    outer = path.absolute()
    while outer.name in INNER_FOLDERS:
        outer = outer.parent
    return outer if find_place(outer).layout != PLAIN else path.absolute()


def _candidate(folder: Path) -> Candidate:
    place = find_place(folder)
    named = _step_in(folder.name)
    step = _trainer_step(folder) if named is None else named
    return Candidate(
        label=folder.name, path=place.model, step=step, layout=place.layout, under=place.under, obstacle=place.obstacle
    )


def run_and_step(model: str) -> tuple[str, int | None]:
    """Parse run and step from a model's path or name, by trainers' usual names.

    >>> run_and_step("/runs/lucky/global_step_40/actor/huggingface"), run_and_step("lab/lucky-step-40")
    (('/runs/lucky', 40), ('lab/lucky', 40))
    >>> run_and_step("lab/Model-7B-v0.3")
    ('lab/Model-7B-v0.3', None)
    """
    folders = model.rstrip("/").split("/")
    while len(folders) > 1 and folders[-1] in INNER_FOLDERS:
        folders.pop()
    match = _STEP_IN_NAME.search(folders[-1])
    if match is None:
        return model.rstrip("/"), None
    run = "/".join([*folders[:-1], folders[-1][: match.start()]])
    return run.rstrip("/-_."), int(match[1])


def _trainer_step(path: Path) -> int | None:
    try:
        return int(json.loads((path / "trainer_state.json").read_text(encoding="utf-8"))["global_step"])
    except (OSError, KeyError, TypeError, ValueError, OverflowError, RecursionError):
        return None


def _keep_one_per_step(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Drop shards of steps that have a converted model, and OpenRLHF's copy of its best step.

    Names that end in their step are preferred to names with more words (checkpoint-40 to checkpoint-40-copy).
    """
    readable = {candidate.step for candidate in candidates if not candidate.obstacle}
    kept = [
        candidate
        for candidate in candidates
        if candidate.step is None or not candidate.obstacle or candidate.step not in readable
    ]
    at_end = {candidate.step for candidate in kept if _STEP.search(candidate.label)}
    kept = [
        candidate
        for candidate in kept
        if candidate.step not in at_end or _STEP.search(candidate.label) or not _step_in(candidate.label)
    ]
    regular = {candidate.step for candidate in kept if not candidate.label.startswith("best_")}
    return [candidate for candidate in kept if not candidate.label.startswith("best_") or candidate.step not in regular]


def _no_checkpoint_error(given: Path, matches: Sequence[Path]) -> CheckpointError:
    children = [child for match in matches for child in sorted(match.iterdir()) if child.is_dir()]
    inside = next((child for child in children if _step_folders(child)), None)
    hint = f"pass {inside}, which contains checkpoints" if inside else f"expected {LOOKED_FOR}; pass their directory"
    return CheckpointError(f"{given}: no checkpoints here; {hint}")


def common_parent(paths: Sequence[Path | str], candidates: Sequence[Candidate]) -> Path:
    """Return the run's directory: the path given by the user, else the checkpoints' common parent."""
    only = Path(paths[0]).expanduser()
    steps = [_outermost(candidate.path) for candidate in candidates]
    if not steps or (len(paths) == 1 and only.is_dir() and _outermost(only) not in steps):
        return only.resolve()
    return Path(os.path.commonpath([step.parent for step in steps])).resolve()


def in_step_order(candidates: Sequence[Candidate], *, first_step: int) -> list[tuple[int, Candidate]]:
    """Return the candidates by step, or numbered from ``first_step`` if none has a step.

    Raises ``CheckpointError`` if only some have a step, or two have the same step.
    """
    stepless = [candidate for candidate in candidates if candidate.step is None]
    if len(stepless) == len(candidates):
        return list(enumerate(candidates, start=first_step))
    if stepless:
        raise CheckpointError(
            f"{stepless[0].path}: its step is unknown, but other checkpoints have a step; rename it to end in its "
            "step, such as checkpoint-40, or pass it as --base"
        )
    by_step: dict[int, Candidate] = {}
    for candidate in candidates:
        step = candidate.step
        assert step is not None  # checked above
        if step in by_step:
            raise CheckpointError(
                f"two checkpoints have step {step}: {by_step[step].path} and {candidate.path}; pass the checkpoints "
                "of one run only"
            )
        by_step[step] = candidate
    return sorted(by_step.items())


def near_directories(path: Path) -> list[str]:
    """Return existing directories with names similar to ``path``, the most similar first.

    If the parent of ``path`` does not exist either, the name below the nearest existing directory is compared.
    """
    wanted = path.expanduser()
    while not wanted.parent.is_dir() and wanted.parent != wanted:
        wanted = wanted.parent
    try:
        names = [child.name for child in wanted.parent.iterdir() if child.is_dir() and not child.name.startswith(".")]
    except OSError:
        return []
    near = [wanted.parent / name for name in get_close_matches(wanted.name, names, n=3, cutoff=0.6)]
    rest = path.expanduser().relative_to(wanted)
    return [str(folder / rest if (folder / rest).is_dir() else folder) for folder in near]


def missing_model_hint(path: Path) -> str:
    """Return why there is no model in ``path``, with a hint, as the end of an error message."""
    if path.expanduser().is_dir():
        inside = next((child for child in sorted(path.expanduser().glob("*/config.json"))), None)
        hint = f"{inside.parent} has one" if inside else "pass a checkpoint directory such as RUN/checkpoint-1200"
        return f"no config.json here; {hint}"
    if path.is_file():
        return "is a file, not a directory; pass a checkpoint directory such as RUN/checkpoint-1200"
    near = near_directories(path)
    hint = f"did you mean {', '.join(near)}?" if near else "pass a checkpoint directory such as RUN/checkpoint-1200"
    return f"no such directory; {hint}"


def locate_model(name: str, *, near: Path | None = None) -> Path | None:
    """Return a local model: a directory (also relative to ``near``), or a hub model in the cache."""
    places = [Path(name).expanduser(), *([near / name] if near else [])]
    for place in places:
        if (place / "config.json").is_file() or (place / "adapter_config.json").is_file():
            return place
    if re.fullmatch(r"[\w.-]+(?:/[\w.-]+)?", name):
        from huggingface_hub import try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError

        try:
            cached = try_to_load_from_cache(name, "config.json")
        except HFValidationError:  # a relative path such as ../model
            return None
        return Path(cached).parent if isinstance(cached, str) else None
    return None
