"""Finds the checkpoints of one training run, orders them, and checks that they are complete.

Nothing is loaded: names, JSON files and the headers and bytes of weight files are all that is read.
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
from oversharp.diagnostics.series.adapter_fit import require_fit
from oversharp.diagnostics.series.fingerprints import is_identity, is_tied, mark_equal_weights, refuse_untied_head
from oversharp.diagnostics.series.folders import (
    Candidate,
    common_parent,
    find_candidates,
    in_step_order,
    locate_model,
    no_model_words,
)
from oversharp.diagnostics.series.hashes import WeightHashes
from oversharp.diagnostics.series.layouts import INNER_FOLDERS, PLAIN, REPAIR_RECORD, REPAIRED, recognised
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
    weight_files,
    weights_hash,
    wrapper_of,
)

ADAPTER_CONFIG = "adapter_config.json"


def find_series(
    paths: Sequence[Path | str], *, base: Path | None = None, name: str | None = None, verify_weights: bool = False
) -> Series:
    """Return the checkpoints under ``paths`` in ascending step order, the base first.

    ``paths`` are one directory of checkpoints, or checkpoints one by one, or globs of either. ``base`` becomes step
    0; without it the lowest step is the base, and for LoRA adapters the model that they belong to. Where none of
    several listed checkpoints has a step in its name, their order is the order of training.

    Weights are hashed; files of the same path, size and time are not read again unless ``verify_weights``.

    Unfinished checkpoints, and those whose weights only their trainer reads, are left out and listed in
    ``Series.skipped``, with the command that converts them. Raises ``CheckpointError`` if fewer than two checkpoints
    remain, the base cannot be read, two checkpoints claim one step, a merge of verl's wrote the base again, or their
    vocabularies differ. Other checkpoints with equal weights are marked, and named in ``Series.notes``.
    """
    with readable_files():
        return _find_series(paths, base=base, name=name, hashes=WeightHashes(verify=verify_weights))


@contextmanager
def readable_files() -> Iterator[None]:
    """A file that cannot be read inside the block is a ``CheckpointError`` in one line."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            f"{error.filename}: cannot be read ({error.strerror}); check its permissions and that no trainer is "
            "deleting it, then run the same command again"
        ) from error


def _find_series(paths: Sequence[Path | str], *, base: Path | None, name: str | None, hashes: WeightHashes) -> Series:
    candidates, skipped = find_candidates(paths)
    root = common_parent(paths, candidates)
    external = None if base is None else _locate_base(base)
    if external is not None:
        candidates = [
            candidate_left for candidate_left in candidates if candidate_left.path.resolve() != external.path.resolve()
        ]

    checkpoints: list[Checkpoint] = []
    known = _Known(hashes)
    full = [
        candidate_left.path
        for candidate_left in candidates
        if not candidate_left.obstacle and not (candidate_left.path / ADAPTER_CONFIG).is_file()
    ]
    known.update(hashes.hash_models([*full, *([] if external is None else [external.path])]))
    faulty_base: CheckpointError | None = None
    for step, candidate in in_step_order(candidates, first_step=0 if external is None else 1):
        try:
            checkpoints.append(_checkpoint(step, candidate, external, known))
        except IncompleteCheckpointError as fault:
            skipped.append(f"{candidate.label}: {fault}")
            if not checkpoints and faulty_base is None:
                faulty_base = _cannot_be_base(candidate, fault)
    if faulty_base is not None and external is None and checkpoints and checkpoints[0].kind == "full":
        raise faulty_base

    checkpoints = _with_base(checkpoints, external, known)
    checkpoints[:1] = [_without_untrained_adapter(first, known) for first in checkpoints[:1]]
    if len(checkpoints) < 2:
        raise _too_few(root, checkpoints, skipped)
    layout = _layout(root, candidates)
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
        notes=(*_reading_notes(checkpoints), *equal),
    )


def _reading_notes(checkpoints: Sequence[Checkpoint]) -> Iterator[str]:
    """Yield a line for each form in which checkpoints were written that none of the libraries reads as it is."""
    files = {
        checkpoint.label: weight_files(checkpoint.path, adapter=checkpoint.base_path is not None)
        for checkpoint in checkpoints
    }
    wrapped: dict[str, list[str]] = {}
    for label, own in files.items():
        if wrapper := wrapper_of(own):
            wrapped.setdefault(wrapper, []).append(label)
    for wrapper, labels in wrapped.items():
        yield f"{_listed(labels)}: the prefix {wrapper} is removed from the tensor names"
    unlisted = [checkpoint.label for checkpoint in checkpoints if lacks_index(checkpoint.path, files[checkpoint.label])]
    if unlisted:
        yield f"{_listed(unlisted)}: no {INDEX} with the shards, read by the shards' headers"


def _listed(labels: Sequence[str]) -> str:
    return f"{', '.join(labels[:3])}{f' and {len(labels) - 3} more' if len(labels) > 3 else ''}"


def _locate_base(base: Path) -> Candidate:
    folder = base.expanduser()
    place = recognised(folder) if folder.is_dir() else None
    if place is not None and place.obstacle:
        raise CheckpointError(f"--base {base}: {place.obstacle}")
    located = locate_model(str(base if place is None else place.model))
    if located is None:
        raise CheckpointError(f"--base {base}: {no_model_words(base)} (or a cached hub name)")
    under = None if place is None else place.under
    return Candidate(label=base.absolute().name, path=located.absolute(), step=0, under=under)


def _cannot_be_base(candidate: Candidate, fault: Exception) -> CheckpointError:
    if candidate.obstacle:
        return CheckpointError(f"{candidate.label} is the base of the series (--base PATH names another), but {fault}")
    return CheckpointError(f"{candidate.path}: {fault}; it is the base of the series: restore it or pass --base PATH")


def _too_few(root: Path, checkpoints: Sequence[Checkpoint], skipped: Sequence[str]) -> CheckpointError:
    if not checkpoints:
        return CheckpointError(f"{root}: no checkpoint can be read: {'; '.join(skipped)}")
    left_out = f"; left out: {'; '.join(skipped)}" if skipped else ""
    return CheckpointError(
        f"{checkpoints[0].path}: only one checkpoint can be read, a series needs two: pass the directory that holds "
        f"several or --base PATH{left_out}"
    )


#: Entries of adapter_config.json that change what the adapter does with its tensors.
_ADAPTER_SETTINGS = (
    "peft_type", "r", "lora_alpha", "alpha_pattern", "rank_pattern", "use_rslora", "use_dora", "fan_in_fan_out",
)  # fmt: skip


# ---------------------------------------------------------------- one checkpoint


class _Known(dict[Path, str]):
    """The hashes of this call by folder, and where those come from that it lacks."""

    def __init__(self, hashes: WeightHashes) -> None:
        super().__init__()
        self.hashes = hashes


def _checkpoint(step: int, candidate: Candidate, external: Candidate | None, known: _Known) -> Checkpoint:
    """Return the candidate, examined and hashed. ``known`` spares hashing the model under several adapters again.

    Raises ``IncompleteCheckpointError`` for what may still be written, ``CheckpointError`` for what never will.
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
        require_fit(files, model_path, label=candidate.label)
    _require_tokenizer(candidate, model_path)
    if path not in known:
        known[path] = (
            known.hashes.hash_of(files)
            if model_path is None
            else known.hashes.hash_of(files, base_hash=_adapter_base(config, _model_hash(model_path, known)))
        )
    return Checkpoint(
        step=step,
        label=candidate.label,
        path=path,
        kind="lora" if is_adapter else "full",
        weights_hash=known[path],
        base_path=model_path,
    )


def current_hash(checkpoint: Checkpoint) -> str:
    """Return the hash of a checkpoint's weights as they are now, or on another machine; reads all of them.

    Raises ``IncompleteCheckpointError`` for weights that are not whole, ``CheckpointError`` for the model under an
    adapter.
    """
    files = weight_files(checkpoint.path, adapter=checkpoint.base_path is not None)
    if checkpoint.base_path is None:
        return weights_hash(files)
    return adapter_hash(
        files,
        _read_json(checkpoint.path / ADAPTER_CONFIG),
        _model_hash(checkpoint.base_path, _Known(WeightHashes(verify=True))),
    )


def adapter_hash(files: Sequence[Path], config: Mapping[str, Any], model_hash: str) -> str:
    """Return the hash of an adapter: its tensors, the model under it, and the settings that affect its output."""
    return weights_hash(files, base_hash=_adapter_base(config, model_hash))


def _adapter_base(config: Mapping[str, Any], model_hash: str) -> str:
    return f"{model_hash} {_adapter_settings(config)}"


def _adapter_settings(config: Mapping[str, Any]) -> str:
    """Return the settings that affect an adapter's output: equal tensors with other scales are two checkpoints."""
    return json.dumps({name: config[name] for name in _ADAPTER_SETTINGS if config.get(name)}, sort_keys=True)


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


def _model_of_adapter(candidate: Candidate, config: dict[str, Any], external: Candidate | None, known: _Known) -> Path:
    """Return the model that the adapter names; else the copy in its folder; else ``--base``.

    Equal copies are one model: verl's merger writes one into every checkpoint.
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
            f"{candidate.label}: is an adapter of {wanted or 'an unnamed model'}, which is not on this machine; "
            "pass --base PATH of that model"
        )
    return external.path


def _require_tokenizer(candidate: Candidate, model_path: Path | None) -> None:
    if tokenizer_file(tokenizer_folders(candidate.path, model_path)) is None:
        raise IncompleteCheckpointError(
            f"tokenizer.json missing (nor is there another of {', '.join(TOKENIZER_FILES[1:])}); copy the tokenizer "
            "files of the base model there"
        )


def _model_hash(path: Path, known: _Known) -> str:
    if path not in known:
        try:
            files = weight_files(path)
            if not files:
                raise IncompleteCheckpointError("model.safetensors missing")
            known[path] = known.hashes.hash_of(files)
        except IncompleteCheckpointError as fault:
            raise CheckpointError(f"{path}: {fault}; it is the model under the adapters: restore it") from None
    return known[path]


# ---------------------------------------------------------------- the series


def _with_base(checkpoints: list[Checkpoint], external: Candidate | None, known: _Known) -> list[Checkpoint]:
    """Put the base in front: ``--base``, or the one model that all adapters belong to."""
    first = checkpoints[0] if checkpoints else None
    if external is None:
        models = sorted({checkpoint.base_path for checkpoint in checkpoints if checkpoint.base_path is not None})
        if first is None or not models or first.step == 0 or first.kind == "full":
            return checkpoints
        if len(models) > 1:
            raise CheckpointError(f"adapters of different models, {models[0]} and {models[1]}; pass --base PATH")
        copy = models[0].name in INNER_FOLDERS  # verl's merger puts one into every checkpoint
        external = Candidate(label="base" if copy else models[0].name, path=models[0], step=0)
    try:
        base = _checkpoint(0, external, None, known)
    except IncompleteCheckpointError as fault:
        raise CheckpointError(f"{external.path}: {fault}; it is the base of the series: restore it") from None
    _require_one_base(base, checkpoints, known)
    if first is not None and first.step == 0:
        # a fresh adapter is the identity, so an adapter at step 0 equals the model under it
        under = first.weights_hash if first.base_path is None else _model_hash(first.base_path, known)
        if under == base.weights_hash:
            return checkpoints
        raise CheckpointError(
            f"two bases: --base {base.path} and {first.path} (step 0) hold different weights; "
            "leave --base out or move that checkpoint away"
        )
    if base.label in {checkpoint.label for checkpoint in checkpoints}:
        base = replace(base, label=f"{base.path.parent.name}/{base.label}")
    return [base, *checkpoints]


def _require_one_base(base: Checkpoint, checkpoints: Sequence[Checkpoint], known: _Known) -> None:
    """Raise ``CheckpointError`` for an adapter on a model that is neither the base nor one of the series."""
    models = {base.weights_hash, *(checkpoint.weights_hash for checkpoint in checkpoints if checkpoint.kind == "full")}
    if base.base_path is not None:
        models.add(_model_hash(base.base_path, known))
    for checkpoint in checkpoints:
        if checkpoint.base_path is not None and _model_hash(checkpoint.base_path, known) not in models:
            raise CheckpointError(
                f"{checkpoint.label}: is an adapter of {checkpoint.base_path}, and --base {base.path} holds other "
                f"weights; give --base {checkpoint.base_path}, or correct base_model_name_or_path in "
                "its adapter_config.json"
            )


def _without_untrained_adapter(base: Checkpoint, known: _Known) -> Checkpoint:
    """Return the model under an adapter that adds nothing, for that is what it is: runs of one model share its samples.

    The adapter stays where it has another tokenizer, since its prompts may differ. Kernels use the adapter,
    since it is the part that is trained.
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


def _layout(root: Path, candidates: Sequence[Candidate]) -> str:
    """Return the trainer's name; several listed runs are of the first that is known."""
    if (root / REPAIR_RECORD).is_file():
        return REPAIRED
    trainer_layout = next((candidate.layout for candidate in candidates if candidate.layout != PLAIN), PLAIN)
    return "oversharp" if trainer_layout == PLAIN and (root / "metrics.jsonl").is_file() else trainer_layout
