"""Find the ends of a repair: the base, and a checkpoint or a mean of checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from oversharp.diagnostics.records.errors import CheckpointError, ConfigError
from oversharp.diagnostics.records.types import Checkpoint, Series
from oversharp.diagnostics.series.finding import ADAPTER_CONFIG, find_series, readable_files
from oversharp.diagnostics.series.fingerprints import equals_base
from oversharp.diagnostics.series.folders import Candidate, find_candidates, in_step_order
from oversharp.diagnostics.series.layouts import find_place
from oversharp.diagnostics.series.weights import IncompleteCheckpointError, check_complete, weight_files, weights_hash


@dataclass(frozen=True, kw_only=True)
class Sources:
    """The ends of the line: ``base``, and the mean of ``checkpoints`` (in step order)."""

    base: Checkpoint
    checkpoints: tuple[Checkpoint, ...]

    @property
    def last(self) -> Checkpoint:
        """The last checkpoint. The written points have its configuration, tokenizer and dtypes."""
        return self.checkpoints[-1]

    @property
    def are_adapters(self) -> bool:
        """Whether LoRA adapters are mixed instead of full models."""
        return self.last.kind == "lora"

    @property
    def all(self) -> tuple[Checkpoint, ...]:
        """All sources, the base first."""
        return (self.base, *self.checkpoints)


def find_sources(paths: Sequence[Path | str], *, base: Path | None, step: int | None, average: int) -> Sources:
    """Return the base and the last ``average`` checkpoints up to ``step`` (default: the last).

    Unlike an audit, only these checkpoints are hashed. Raises ``ConfigError`` for a step that the series lacks or too
    few checkpoints. Raises ``CheckpointError`` like ``find_series``, and for adapters and models that do not match.
    """
    if average < 1:
        raise ConfigError(f"--average {average}: must be at least 1")
    with readable_files():
        candidates, _ = find_candidates(paths)
        ordered = in_step_order(candidates, first_step=0 if base is None else 1)
        first, trained = _without_base(ordered, base)
        chosen = _select(trained, step, average)
    if not chosen:
        find_series(paths, base=base)  # this call raises an error with the reason
        raise CheckpointError(f"{paths[0]}: contains only the base; pass a directory with trained checkpoints")
    listed = [candidate.path for _, candidate in ([first] if first is not None else []) + chosen]
    sources = _as_sources(find_series(listed, base=base), chosen)
    _refuse_unchanged(sources)
    _refuse_mixed_kinds(sources)
    if sources.are_adapters:
        _refuse_other_bases(sources, base)
    return sources


def _without_base(
    ordered: Sequence[tuple[int, Candidate]], base: Path | None
) -> tuple[tuple[int, Candidate] | None, list[tuple[int, Candidate]]]:
    """Return the base (None if it is not among the candidates) and the trained checkpoints."""
    if base is not None:
        folder = base.expanduser()
        places = {folder.resolve(), find_place(folder).model.resolve()}
        return None, [(step, item) for step, item in ordered if step != 0 and item.path.resolve() not in places]
    if not ordered:
        return None, []
    step, lowest = ordered[0]
    if step != 0 and (lowest.path / ADAPTER_CONFIG).is_file():  # the adapters' model is the base
        return None, list(ordered)
    return ordered[0], list(ordered[1:])


def _select(trained: Sequence[tuple[int, Candidate]], step: int | None, average: int) -> list[tuple[int, Candidate]]:
    """Return the last ``average`` checkpoints up to ``step``, by default up to the last complete one."""
    faults = {number: _find_fault(candidate) for number, candidate in trained}
    steps = [number for number, _ in trained if step is not None or not faults[number]]
    if not steps:
        return []
    last = steps[-1] if step is None else step
    if last not in steps:
        raise ConfigError(f"--checkpoint {step}: no such checkpoint in the series; it has {', '.join(map(str, steps))}")
    available = [(number, candidate) for number, candidate in trained if number <= last]
    if len(available) < average:
        raise ConfigError(
            f"--average {average}: only {len(available)} checkpoints up to step {last} follow the base; use at most "
            f"{len(available)}"
        )
    chosen = available[-average:]
    for number, candidate in chosen:
        if faults[number]:
            raise CheckpointError(f"{candidate.label}: {faults[number]}; restore it, or choose another --checkpoint")
    return chosen


def _find_fault(candidate: Candidate) -> str:
    """Return why the candidate's weights cannot be read; empty if they can. Reads only headers."""
    is_adapter = (candidate.path / ADAPTER_CONFIG).is_file()
    try:
        files = () if candidate.obstacle else weight_files(candidate.path, adapter=is_adapter)
        check_complete(files)
    except IncompleteCheckpointError as fault:
        return str(fault)
    return candidate.obstacle or ("" if files else "its weights are missing")


def _as_sources(series: Series, chosen: Sequence[tuple[int, Candidate]]) -> Sources:
    if series.skipped:
        raise CheckpointError(f"{series.skipped[0]}; restore it, or choose another --checkpoint")
    trained = series.checkpoints[1:]
    if len(trained) != len(chosen):
        raise CheckpointError(
            f"{series.path}: only {len(trained)} of {len(chosen)} trained checkpoints could be read; pass the "
            "directory that contains them, and --base PATH"
        )
    # if names contain no steps, steps are positions in the whole series
    steps = [step for step, _ in chosen]
    checkpoints = tuple(replace(checkpoint, step=step) for checkpoint, step in zip(trained, steps, strict=True))
    return Sources(base=series.base, checkpoints=checkpoints)


# ---------------------------------------------------------------- sources that do not match


def _refuse_unchanged(sources: Sources) -> None:
    """Raise ``CheckpointError`` for a checkpoint with the base's weights."""
    same = next((checkpoint for checkpoint in sources.checkpoints if equals_base(checkpoint, sources.base)), None)
    if same is not None:
        raise CheckpointError(
            f"{same.label}: has the same weights as the base {sources.base.label}, so there is nothing to repair; "
            "choose another --checkpoint"
        )


def _refuse_mixed_kinds(sources: Sources) -> None:
    """Raise ``CheckpointError`` for a mixture of kinds.

    Only adapters with a full model as base are allowed.
    """
    other = next((checkpoint for checkpoint in sources.checkpoints if checkpoint.kind != sources.last.kind), None)
    if other is None and sources.base.kind == "lora" and sources.last.kind == "full":
        other = sources.base
    if other is not None:
        raise CheckpointError(
            f"{other.label} and {sources.last.label}: one is a LoRA adapter, the other a full model; merge the adapter "
            "into its model (merge_and_unload of peft) and repair full models"
        )


def _refuse_other_bases(sources: Sources, given: Path | None) -> None:
    """Raise ``CheckpointError`` unless every adapter is an adapter of the base or of the base's model."""
    model = sources.base.base_path or sources.base.path
    for checkpoint in sources.checkpoints:
        under = checkpoint.base_path
        assert under is not None  # find_series sets base_path for all adapters
        if under.resolve() != model.resolve() and _hash(under) != _hash(model):
            named = "the base of the series" if given is None else f"--base {given}"
            raise CheckpointError(
                f"{checkpoint.label}: is an adapter of {under}, but {named} has other weights; pass --base {under}"
            )


def _hash(model: Path) -> str:
    return weights_hash(weight_files(model))
