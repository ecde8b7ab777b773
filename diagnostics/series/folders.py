"""Which folders are checkpoints, what their steps are, and where on this machine a named model lies."""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from diagnostics.errors import CheckpointError
from diagnostics.series.weights import IncompleteCheckpointError, weight_files

LOOKED_FOR = "checkpoint-N, step_N, step-N, global_step_N, global_stepN_hf or any folder whose name ends in a number"

_STEP = re.compile(r"(?:^|\D)(\d+)(?:_hf)?$")
_STEP_FOLDER = re.compile(r"(?:checkpoint|step|global_step|iter)[-_]?\d+(?:_hf)?$")
_UNFINISHED = re.compile(r"^(?:tmp|temp|\.)[-_]?|\.(?:incomplete|tmp|partial)$")
#: Where trainers put the loadable model inside a step's folder; folders of these names say nothing of the step.
_INNER = ("actor/huggingface", "huggingface", "policy", "actor/lora_adapter", "lora_adapter")
_INNER_NAMES = frozenset({"actor", "huggingface", "policy", "lora_adapter"})


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A folder that may be a checkpoint; ``step`` is None where nothing tells it."""

    label: str
    path: Path
    step: int | None


def find_candidates(paths: Sequence[Path | str]) -> tuple[list[Candidate], list[str]]:
    """Every folder that may be a checkpoint, and a ``"label: reason"`` line for those still being written.

    Raises ``CheckpointError`` for a path that is not there or holds no checkpoint; of a glob's matches one is enough.
    """
    if not paths:
        raise CheckpointError("no checkpoints given; pass a directory of checkpoints")
    folders: list[Path] = []
    for given in map(str, paths):
        matches = _expand(given)
        by_match = [_step_folders(match) for match in matches]
        if not any(by_match):
            raise _nothing_here(matches[0] if len(matches) == 1 else Path(given), matches)
        folders += [folder for group in by_match for folder in group]
    distinct = {folder.resolve(): folder for folder in folders}.values()
    unfinished = [folder for folder in distinct if _UNFINISHED.search(folder.name)]
    skipped = [f"{folder.name}: still being written, by its name" for folder in unfinished]
    return [_candidate(folder) for folder in distinct if folder not in unfinished], skipped


def _expand(given: str) -> list[Path]:
    """The directories that ``given`` means; a glob means every directory that it matches."""
    path = Path(given).expanduser()
    if path.is_dir():
        return [path]
    if glob.has_magic(given):
        matches = [Path(match) for match in sorted(glob.glob(str(path))) if os.path.isdir(match)]
        if matches:
            return matches
        raise CheckpointError(f"{given}: matches no directory; quote the glob and check it with ls")
    problem = "is a file, not a directory" if path.exists() else "does not exist"
    raise CheckpointError(f"{given}: {problem}; pass a directory of checkpoints ({LOOKED_FOR})")


def _step_folders(path: Path) -> list[Path]:
    """The steps inside ``path``; ``path`` itself if it is one checkpoint.

    Steps inside win: trainers save the final model beside its checkpoints.
    """
    steps = sorted(child for child in path.iterdir() if child.is_dir() and _looks_like_step(child))
    return steps or ([path] if _is_model(_inner(path)) or sharded_actor(path) else [])


def _looks_like_step(folder: Path) -> bool:
    """A folder with a number at its end; one that is no model counts only under a trainer's usual names."""
    bare = _UNFINISHED.sub("", folder.name)
    if not _STEP.search(bare):
        return False
    return bool(_STEP_FOLDER.fullmatch(bare)) or _is_model(_inner(folder))


def _candidate(path: Path) -> Candidate:
    named = path.absolute()
    while named.name in _INNER_NAMES:
        named = named.parent
    match = _STEP.search(named.name)
    step = int(match[1]) if match else _trainer_step(path)
    return Candidate(label=named.name, path=_inner(path).absolute(), step=step)


def _trainer_step(path: Path) -> int | None:
    try:
        return int(json.loads((path / "trainer_state.json").read_text(encoding="utf-8"))["global_step"])
    except (OSError, KeyError, TypeError, ValueError, OverflowError, RecursionError):
        return None


def _inner(folder: Path) -> Path:
    """Where the loadable model lies inside a step's folder; the folder itself where nothing else is known."""
    places = [folder, *(folder / inner for inner in _INNER)]
    complete = [place for place in places if _is_model(place) and _has_weights(place)]
    return (complete or [place for place in places if _is_model(place)] or [folder])[0]


def _is_model(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("config.json", "adapter_config.json")) or _has_weights(folder)


def _has_weights(folder: Path) -> bool:
    try:
        return bool(weight_files(folder) or weight_files(folder, adapter=True))
    except IncompleteCheckpointError:
        return True


def sharded_actor(folder: Path) -> Path | None:
    """The folder of verl's own shards, which only its merger can read."""
    shards = [*folder.glob("model_world_size_*"), *folder.glob("actor/model_world_size_*")]
    return shards[0].parent if shards else None


def merge_command(actor: Path) -> str:
    """The shell command that merges verl's FSDP shards in ``actor`` into a model in ``actor/huggingface``."""
    return f"python -m verl.model_merger merge --backend fsdp --local_dir {actor} --target_dir {actor / 'huggingface'}"


def _nothing_here(given: Path, matches: Sequence[Path]) -> CheckpointError:
    children = [child for match in matches for child in sorted(match.iterdir()) if child.is_dir()]
    inside = next((child for child in children if _step_folders(child)), None)
    hint = f"there are some in {inside}: pass that" if inside else f"looked for {LOOKED_FOR}; pass their directory"
    return CheckpointError(f"{given}: no checkpoints here; {hint}")


def common_parent(paths: Sequence[Path | str], candidates: Sequence[Candidate]) -> Path:
    """The run's directory: what was passed if it is one directory of checkpoints, else what all checkpoints share."""
    only = Path(paths[0]).expanduser().absolute()
    if len(paths) == 1 and only.is_dir() and all(candidate.path != only for candidate in candidates):
        return only.resolve()
    return Path(os.path.commonpath([candidate.path.parent for candidate in candidates])).resolve()


def in_step_order(candidates: Sequence[Candidate], *, first_step: int) -> list[tuple[int, Candidate]]:
    """Candidates by step. Where none has a step, their order counts, from ``first_step`` on.

    Raises ``CheckpointError`` if only some have a step, or two have the same.
    """
    stepless = [candidate for candidate in candidates if candidate.step is None]
    if len(stepless) == len(candidates):
        # the order on the command line is all that is known
        return list(enumerate(candidates, start=first_step))
    if stepless:
        raise CheckpointError(
            f"{stepless[0].path}: its step is unknown while others have one; end its name in a number such as "
            "checkpoint-40, or pass it as --base"
        )
    by_step: dict[int, Candidate] = {}
    for candidate in candidates:
        step = candidate.step
        assert step is not None  # checked above
        if step in by_step:
            raise CheckpointError(
                f"step {step} twice: {by_step[step].path} and {candidate.path}; pass the checkpoints of one run only"
            )
        by_step[step] = candidate
    return sorted(by_step.items())


def locate_model(name: str, *, near: Path | None = None) -> Path | None:
    """A model on this machine: a directory (beside ``near``, absolute or from here), or a hub name in the cache."""
    places = [Path(name).expanduser(), *([near / name] if near else [])]
    for place in places:
        if (place / "config.json").is_file() or (place / "adapter_config.json").is_file():
            return place
    if re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        from huggingface_hub import try_to_load_from_cache

        cached = try_to_load_from_cache(name, "config.json")
        return Path(cached).parent if isinstance(cached, str) else None
    return None
