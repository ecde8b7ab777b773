"""Find the checkpoints of a training run, order them, and check that they are complete.

No model is loaded. Only names, JSON files, and the headers and bytes of weight files are read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from oversharp.diagnostics.records.errors import CheckpointError
from oversharp.diagnostics.records.types import Checkpoint, Series
from oversharp.diagnostics.series.fingerprints import (
    is_identity,
    is_tied,
    join_labels,
    mark_equal_weights,
    refuse_untied_head,
)
from oversharp.diagnostics.series.folders import (
    Candidate,
    common_parent,
    find_candidates,
    in_step_order,
    locate_model,
    missing_model_hint,
)
from oversharp.diagnostics.series.hashes import WeightHashes
from oversharp.diagnostics.series.layouts import INNER_FOLDERS, PLAIN, REPAIR_RECORD, REPAIRED, find_place
from oversharp.diagnostics.series.tokenizers import (
    TOKENIZER_FILES,
    refuse_different_vocabularies,
    same_tokenizer,
    tokenizer_file,
    tokenizer_folders,
)
from oversharp.diagnostics.series.training_log import read_training_log
from oversharp.diagnostics.series.weights import (
    INDEX,
    IncompleteCheckpointError,
    check_complete,
    lacks_index,
    refuse_codes,
    refuse_unmerged,
    require_adapter_fit,
    weight_files,
    weights_hash,
    wrapper_of,
)

ADAPTER_CONFIG = "adapter_config.json"


def find_series(
    paths: Sequence[Path | str], *, base: Path | None = None, name: str | None = None, verify_weights: bool = False
) -> Series:
    """Return the checkpoints under ``paths`` in ascending step order, the base first.

    ``paths`` are a directory of checkpoints, several checkpoints, or globs of either. ``base`` becomes step 0. Without
    it, the base is the lowest step, or for LoRA adapters their model. If several checkpoints are listed and none has a
    step in its name, they are assumed to be in training order. Weights are hashed. Files with unchanged path, size and
    time are not hashed again unless ``verify_weights``. Unfinished checkpoints, and checkpoints in a trainer's own
    format, are skipped. ``Series.skipped`` lists them, with the command that converts them.

    Raises ``CheckpointError`` if fewer than two checkpoints remain, the base cannot be read, two checkpoints have the
    same step, verl's merger wrote the base again, or vocabularies differ. Other checkpoints with equal weights are
    marked and listed in ``Series.notes``.
    """
    with readable_files():
        return _find_series(paths, base=base, name=name, hashes=WeightHashes(verify=verify_weights))


@contextmanager
def readable_files() -> Iterator[None]:
    """Turn a file error inside the block into a ``CheckpointError`` of one line."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            f"{error.filename}: cannot be read ({error.strerror}); check its permissions, and that no trainer is "
            "deleting the file, then run the same command again"
        ) from error


def _find_series(paths: Sequence[Path | str], *, base: Path | None, name: str | None, hashes: WeightHashes) -> Series:
    candidates, skipped = find_candidates(paths)
    root = common_parent(paths, candidates)
    external = None if base is None else _locate_base(base)
    if external is not None:
        candidates = [candidate for candidate in candidates if candidate.path.resolve() != external.path.resolve()]

    checkpoints: list[Checkpoint] = []
    known = _FolderHashes(hashes)
    full = [
        candidate.path
        for candidate in candidates
        if not candidate.obstacle and not (candidate.path / ADAPTER_CONFIG).is_file()
    ]
    known.update(hashes.hash_models([*full, *([] if external is None else [external.path])]))
    faulty_base: CheckpointError | None = None
    for step, candidate in in_step_order(candidates, first_step=0 if external is None else 1):
        try:
            checkpoints.append(_check_candidate(step, candidate, external, known))
        except IncompleteCheckpointError as fault:
            skipped.append(f"{candidate.label}: {fault}")
            if not checkpoints and faulty_base is None:
                faulty_base = _make_base_error(candidate, fault)
    if faulty_base is not None and external is None and checkpoints and checkpoints[0].kind == "full":
        raise faulty_base

    checkpoints = _add_base(checkpoints, external, known)
    checkpoints[:1] = [_without_untrained_adapter(first, known) for first in checkpoints[:1]]
    if len(checkpoints) < 2:
        raise _make_too_few_error(root, checkpoints, skipped)
    layout = _find_layout(root, candidates)
    refuse_different_vocabularies(checkpoints)
    checkpoints, equal = mark_equal_weights(checkpoints, layout)
    metrics, faults = read_training_log(root, [checkpoint.trained.path for checkpoint in checkpoints])
    return Series(
        name=name or root.name,
        path=root,
        layout=layout,
        checkpoints=tuple(checkpoints),
        metrics=metrics,
        skipped=(*skipped, *faults),
        notes=(*_format_notes(checkpoints), *equal),
    )


def _format_notes(checkpoints: Sequence[Checkpoint]) -> Iterator[str]:
    """Yield a note for each weight format that transformers cannot load unchanged."""
    files = {
        checkpoint.label: weight_files(checkpoint.path, adapter=checkpoint.base_path is not None)
        for checkpoint in checkpoints
    }
    wrapped: dict[str, list[str]] = {}
    for label, own in files.items():
        if wrapper := wrapper_of(own):
            wrapped.setdefault(wrapper, []).append(label)
    for wrapper, labels in wrapped.items():
        yield f"{join_labels(labels)}: the prefix {wrapper} is removed from the tensor names"
    unlisted = [checkpoint.label for checkpoint in checkpoints if lacks_index(checkpoint.path, files[checkpoint.label])]
    if unlisted:
        yield f"{join_labels(unlisted)}: the shards have no {INDEX}; tensors are located by the shards' headers"


def _locate_base(base: Path) -> Candidate:
    folder = base.expanduser()
    place = find_place(folder) if folder.is_dir() else None
    if place is not None and place.obstacle:
        raise CheckpointError(f"--base {base}: {place.obstacle}")
    located = locate_model(str(base if place is None else place.model))
    if located is None:
        raise CheckpointError(f"--base {base}: {missing_model_hint(base)} (or a cached hub name)")
    under = None if place is None else place.under
    return Candidate(label=base.absolute().name, path=located.absolute(), step=0, under=under)


def _make_base_error(candidate: Candidate, fault: Exception) -> CheckpointError:
    if candidate.obstacle:
        return CheckpointError(f"{candidate.label} is the base of the series (--base PATH sets another), but {fault}")
    return CheckpointError(f"{candidate.path}: {fault}; it is the base of the series: restore it or pass --base PATH")


def _make_too_few_error(root: Path, checkpoints: Sequence[Checkpoint], skipped: Sequence[str]) -> CheckpointError:
    if not checkpoints:
        return CheckpointError(f"{root}: no checkpoint can be read: {'; '.join(skipped)}")
    left_out = f"; left out: {'; '.join(skipped)}" if skipped else ""
    return CheckpointError(
        f"{checkpoints[0].path}: only one checkpoint can be read, a series needs two: pass a directory with several, "
        f"or --base PATH{left_out}"
    )


#: Entries of adapter_config.json that change the output of an adapter.
_ADAPTER_SETTINGS = (
    "peft_type", "r", "lora_alpha", "alpha_pattern", "rank_pattern", "use_rslora", "use_dora", "fan_in_fan_out",
)  # fmt: skip


# ---------------------------------------------------------------- one checkpoint


class _FolderHashes(dict[Path, str]):
    """Weight hashes of this call by folder, and the cache that computes missing hashes."""

    def __init__(self, cache: WeightHashes) -> None:
        super().__init__()
        self.cache = cache


def _check_candidate(step: int, candidate: Candidate, external: Candidate | None, known: _FolderHashes) -> Checkpoint:
    """Return the candidate as a checked and hashed checkpoint.

    Raises ``IncompleteCheckpointError`` for files that may still be written, else ``CheckpointError``.
    """
    if candidate.obstacle:
        raise IncompleteCheckpointError(candidate.obstacle)
    path = candidate.path
    is_adapter = (path / ADAPTER_CONFIG).is_file()
    files = weight_files(path, adapter=is_adapter)
    config = _read_json(path / (ADAPTER_CONFIG if is_adapter else "config.json"))
    if not files:
        raise IncompleteCheckpointError(f"{'adapter_model' if is_adapter else 'model'}.safetensors missing")
    check_complete(files)
    refuse_codes(files, config)
    if not is_adapter:
        refuse_unmerged(files)
        refuse_untied_head(files, tied=is_tied(config))
    model_path = _model_of_adapter(candidate, config, external, known) if is_adapter else None
    if model_path is not None:
        require_adapter_fit(files, model_path, label=candidate.label)
    _require_tokenizer(candidate, model_path)
    if path not in known:
        base_hash = "" if model_path is None else _adapter_base(config, _model_hash(model_path, known))
        known[path] = known.cache.hash_files(files, base_hash=base_hash)
    return Checkpoint(
        step=step,
        label=candidate.label,
        path=path,
        kind="lora" if is_adapter else "full",
        weights_hash=known[path],
        base_path=model_path,
    )


def current_hash(checkpoint: Checkpoint) -> str:
    """Return the current hash of a checkpoint's weights on this machine. Reads all weights.

    Raises ``IncompleteCheckpointError`` for incomplete weights, ``CheckpointError`` for incomplete weights of an
    adapter's model.
    """
    files = weight_files(checkpoint.path, adapter=checkpoint.base_path is not None)
    if checkpoint.base_path is None:
        return weights_hash(files)
    config = _read_json(checkpoint.path / ADAPTER_CONFIG)
    return adapter_hash(files, config, _model_hash(checkpoint.base_path, _FolderHashes(WeightHashes(verify=True))))


def adapter_hash(files: Sequence[Path], config: Mapping[str, Any], model_hash: str) -> str:
    """Return the hash of an adapter's tensors, its model, and the settings that change its output."""
    return weights_hash(files, base_hash=_adapter_base(config, model_hash))


def _adapter_base(config: Mapping[str, Any], model_hash: str) -> str:
    """Return the hash of the adapter's model with the adapter's settings, because scales matter too."""
    settings = {name: config[name] for name in _ADAPTER_SETTINGS if config.get(name)}
    return f"{model_hash} {json.dumps(settings, sort_keys=True)}"


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise IncompleteCheckpointError(f"{path.name} missing")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise IncompleteCheckpointError(f"{path.name} is not readable JSON") from None
    if not isinstance(content, dict):
        raise IncompleteCheckpointError(f"{path.name} is not a JSON object")
    return content


def _model_of_adapter(
    candidate: Candidate, config: dict[str, Any], external: Candidate | None, known: _FolderHashes
) -> Path:
    """Return the adapter's model: from its configuration, else in its folder, else ``--base``.

    Equal copies count as one model, because verl's merger writes a copy into every checkpoint.
    """
    if config.get("lora_alpha") == 0:
        raise CheckpointError(
            f"{candidate.label}: lora_alpha is 0 in {candidate.path / ADAPTER_CONFIG}, so the adapter changes nothing "
            "(verl's model_merger writes 0 where lora_train_meta.json is missing); write the run's lora_alpha there"
        )
    wanted = config.get("base_model_name_or_path")
    located = locate_model(str(wanted), near=candidate.path) if wanted else None
    if located is not None:
        return located.resolve()
    if candidate.under is not None:
        digest = _model_hash(candidate.under, known)
        return next(path for path, model_hash in known.items() if model_hash == digest)
    if external is None:
        raise CheckpointError(
            f"{candidate.label}: is an adapter of {wanted or 'an unnamed model'}, which is not on this machine; pass "
            "the path of that model as --base"
        )
    return external.path


def _require_tokenizer(candidate: Candidate, model_path: Path | None) -> None:
    if tokenizer_file(tokenizer_folders(candidate.path, model_path)) is None:
        raise IncompleteCheckpointError(
            f"tokenizer.json missing (and {', '.join(TOKENIZER_FILES[1:])}); copy the tokenizer files of the base "
            "model there"
        )


def _model_hash(path: Path, known: _FolderHashes) -> str:
    if path not in known:
        try:
            files = weight_files(path)
            if not files:
                raise IncompleteCheckpointError("model.safetensors missing")
            known[path] = known.cache.hash_files(files)
        except IncompleteCheckpointError as fault:
            raise CheckpointError(f"{path}: {fault}; it is the model of the adapters: restore it") from None
    return known[path]


# ---------------------------------------------------------------- the series


def _add_base(checkpoints: list[Checkpoint], external: Candidate | None, known: _FolderHashes) -> list[Checkpoint]:
    """Prepend the base, which is ``--base`` or the model of all adapters."""
    first = checkpoints[0] if checkpoints else None
    if external is None:
        models = sorted({checkpoint.base_path for checkpoint in checkpoints if checkpoint.base_path is not None})
        if first is None or not models or first.step == 0 or first.kind == "full":
            return checkpoints
        if len(models) > 1:
            raise CheckpointError(f"adapters of different models, {models[0]} and {models[1]}; pass --base PATH")
        copy = models[0].name in INNER_FOLDERS  # verl's merger writes a copy of the model into every checkpoint
        external = Candidate(label="base" if copy else models[0].name, path=models[0], step=0)
    try:
        base = _check_candidate(0, external, None, known)
    except IncompleteCheckpointError as fault:
        raise CheckpointError(f"{external.path}: {fault}; it is the base of the series: restore it") from None
    _require_same_base(base, checkpoints, known)
    if first is not None and first.step == 0:
        # an adapter at step 0 is untrained, so its outputs are those of its model
        under = first.weights_hash if first.base_path is None else _model_hash(first.base_path, known)
        if under == base.weights_hash:
            return checkpoints
        raise CheckpointError(
            f"two bases: --base {base.path} and {first.path} (step 0) have different weights; "
            "leave --base out or move that checkpoint away"
        )
    if base.label in {checkpoint.label for checkpoint in checkpoints}:
        base = replace(base, label=f"{base.path.parent.name}/{base.label}")
    return [base, *checkpoints]


def _require_same_base(base: Checkpoint, checkpoints: Sequence[Checkpoint], known: _FolderHashes) -> None:
    """Raise ``CheckpointError`` for an adapter whose model is not the base of the series."""
    models = {base.weights_hash, *(checkpoint.weights_hash for checkpoint in checkpoints if checkpoint.kind == "full")}
    if base.base_path is not None:
        models.add(_model_hash(base.base_path, known))
    for checkpoint in checkpoints:
        if checkpoint.base_path is not None and _model_hash(checkpoint.base_path, known) not in models:
            raise CheckpointError(
                f"{checkpoint.label}: is an adapter of {checkpoint.base_path}, but --base {base.path} has other "
                f"weights; pass --base {checkpoint.base_path}, or correct base_model_name_or_path in "
                "its adapter_config.json"
            )


def _without_untrained_adapter(base: Checkpoint, known: _FolderHashes) -> Checkpoint:
    """Replace an untrained adapter as base by its model, so that runs can share the model's samples.

    An adapter with another tokenizer is kept, because its prompts may differ. Kernels still use the adapter, whose
    parameters are trained.
    """
    if base.base_path is None:
        return base
    config = _read_json(base.path / ADAPTER_CONFIG)
    plain = config.get("peft_type", "LORA") == "LORA" and not config.get("layer_replication")
    if not plain or not is_identity(weight_files(base.path, adapter=True)):
        return base
    under = _model_hash(base.base_path, known)
    model = replace(base, kind="full", path=base.base_path, base_path=None, weights_hash=under, untrained=base)
    return model if same_tokenizer(base, model) else base


def _find_layout(root: Path, candidates: Sequence[Candidate]) -> str:
    """Return the layout of the series: the first known layout of its checkpoints."""
    if (root / REPAIR_RECORD).is_file():
        return REPAIRED
    trainer_layout = next((candidate.layout for candidate in candidates if candidate.layout != PLAIN), PLAIN)
    return "oversharp" if trainer_layout == PLAIN and (root / "metrics.jsonl").is_file() else trainer_layout
