"""Points on the line from base to checkpoint.

Which exist, their sizes, and how they are written.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.progress import ProgressSink
from oversharp.diagnostics.records.types import Checkpoint
from oversharp.diagnostics.repair.adapters import Adapters
from oversharp.diagnostics.repair.card import card
from oversharp.diagnostics.repair.folders import RECORD, atomic_folder, copy_small_files, link, same_disk
from oversharp.diagnostics.repair.mixing import Rounding
from oversharp.diagnostics.repair.models import Models, read_object
from oversharp.diagnostics.repair.points import WHOLE, RepairedPoint, folder_of
from oversharp.diagnostics.repair.sources import Sources
from oversharp.diagnostics.repair.tensor_files import write_files
from oversharp.diagnostics.series.fingerprints import same_in_another_form
from oversharp.diagnostics.series.weights import IncompleteCheckpointError, check_complete, weight_files


def load_mixable(sources: Sources) -> Models | Adapters:
    """Load the weights of the sources. Raises ``CheckpointError`` where they cannot be mixed."""
    return Adapters(sources) if sources.are_adapters else Models(sources)


@dataclass(frozen=True, kw_only=True)
class RepairLine:
    """Line from base to checkpoint, with points written into ``out``."""

    sources: Sources
    out: Path
    float32: bool
    weights: Models | Adapters

    @property
    def ends(self) -> tuple[int, ...]:
        """Ends of the line in the series.

        A full model under adapters is found by the adapters' base path.
        """
        under_adapters = self.sources.are_adapters and self.sources.base.kind == "full"
        return (WHOLE,) if under_adapters else (0, WHOLE)

    def source_of(self, step: int) -> Checkpoint | None:
        """Return the source that is identical to this point, None for a computed one."""
        if step == 0:
            return self.sources.base
        return self.sources.last if step == WHOLE and len(self.sources.checkpoints) == 1 else None

    def is_written(self, step: int) -> bool:
        """Whether an earlier call wrote it. Raises ``ConfigError`` where it was damaged since."""
        folder = self.out / folder_of(step)
        if not folder.is_dir():
            return False
        try:
            files = weight_files(folder, adapter=self.sources.are_adapters)
            check_complete(files)
        except IncompleteCheckpointError as fault:
            raise ConfigError(f"{folder}: {fault}; delete it and run the same command again") from None
        if not files or not (folder / RECORD).is_file():
            raise ConfigError(f"{folder}: is incomplete; delete it and run the same command again")
        return True

    def n_bytes(self, step: int) -> int:
        """Return the disk space of this point, slightly more than its weights."""
        whole = self.source_of(step)
        if whole is not None:
            files = weight_files(whole.path, adapter=self.sources.are_adapters)
            return sum(0 if same_disk(file, self.out) else file.stat().st_size for file in files)
        planned = self.weights.files(step / WHOLE, float32=self.float32, rounding=Rounding())
        return sum(tensor.n_bytes for tensors in planned.values() for tensor in tensors)

    def write(self, steps: Sequence[int], progress: ProgressSink) -> tuple[tuple[RepairedPoint, ...], dict[str, str]]:
        """Write the missing points, the ends first; skip a point whose weights equal another's."""
        points: dict[int, RepairedPoint] = {}
        left_out: dict[str, str] = {}
        for step in sorted(steps, key=lambda item: (self.source_of(item) is None, item)):
            point = self._read_point(step) if self.is_written(step) else self._write_point(step, points, progress)
            twin = next((entry for entry in points.values() if entry.weights_hash == point.weights_hash), None)
            if twin is None:
                points[step] = point
            else:
                left_out[folder_of(step)] = (
                    f"rounds to the weights of {folder_of(twin.step)}, because training moved them by single steps of "
                    "their dtype; use --float32 and another --out to keep the difference"
                )
        return tuple(points[step] for step in sorted(points)), left_out

    def _read_point(self, step: int) -> RepairedPoint:
        folder = self.out / folder_of(step)
        recorded = read_object(folder / RECORD)
        try:
            own = {name: recorded[name] for name in ("lambda_", "weights_hash", "rounded_lambda")}
        except KeyError as error:
            raise ConfigError(
                f"{folder / RECORD}: lacks {error}; delete {folder} and run the same command again"
            ) from None
        return RepairedPoint(step=step, path=folder, found=True, **own)

    def _write_point(self, step: int, others: Mapping[int, RepairedPoint], progress: ProgressSink) -> RepairedPoint:
        """Write one point, unless its weights equal another's."""
        final = self.out / folder_of(step)
        own = self.source_of(step)
        rounding = Rounding()
        with atomic_folder(final) as folder:
            copy_small_files(own or self.sources.last, folder)
            self._write_config(own, folder)
            if own is None:
                self._compute(step, folder, rounding, progress)
            else:
                _link_weights(own, folder)
            point = RepairedPoint(
                step=step,
                lambda_=step / WHOLE,
                path=final,
                weights_hash=self.weights.hash(folder) if own is None else own.weights_hash,
                rounded_lambda=rounding.rounded_lambda(step / WHOLE),
                found=False,
            )
            if own is None and self._is_rounded_base(folder):
                point = replace(point, weights_hash=self.sources.base.weights_hash)
            if any(other.weights_hash == point.weights_hash for other in others.values()):
                shutil.rmtree(folder)
            else:
                self._describe(point, folder)
        return point

    def _is_rounded_base(self, folder: Path) -> bool:
        """Whether a model is the base rounded to another dtype: no series contains both."""
        if self.sources.are_adapters:
            return False
        return same_in_another_form(weight_files(folder), weight_files(self.sources.base.path))

    def _write_config(self, own: Checkpoint | None, folder: Path) -> None:
        config = self.weights.config(own or self.sources.last, computed=own is None, float32=self.float32)
        (folder / self.weights.config_name).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")

    def _compute(self, step: int, folder: Path, rounding: Rounding, progress: ProgressSink) -> None:
        planned = self.weights.files(step / WHOLE, float32=self.float32, rounding=rounding)
        n_tensors = sum(len(tensors) for tensors in planned.values())
        with progress.stage(f"tensors at λ = {step / WHOLE:g}", n_tensors) as advance:
            write_files(folder, planned, advance)

    def _describe(self, point: RepairedPoint, folder: Path) -> None:
        text = card(point, self.sources, float32=self.float32, of_base_alone=self.weights.of_base_alone)
        (folder / "README.md").write_text(text, encoding="utf-8")
        kept = {name: value for name, value in asdict(point).items() if name not in ("path", "found")}
        (folder / RECORD).write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")


def _link_weights(source: Checkpoint, folder: Path) -> None:
    for file in weight_files(source.path, adapter=source.kind == "lora"):
        target = folder / file.relative_to(source.path)
        target.parent.mkdir(parents=True, exist_ok=True)
        link(file, target)
    for index in source.path.glob("*.safetensors.index.json"):
        shutil.copyfile(index, folder / index.name)
