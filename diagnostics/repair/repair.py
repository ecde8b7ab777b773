"""``oversharp repair``: write points on the line from base to checkpoint as a series."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.progress import ProgressSink, SilentProgress
from oversharp.diagnostics.records.provenance import version
from oversharp.diagnostics.records.types import Checkpoint
from oversharp.diagnostics.repair.adapters import Adapters
from oversharp.diagnostics.repair.folders import (
    atomic_folder,
    copy_small_files,
    link,
    lock_output,
    refuse_inside,
    require_ours,
    require_space,
    same_disk,
)
from oversharp.diagnostics.repair.mixing import Rounding
from oversharp.diagnostics.repair.models import Models, load_object
from oversharp.diagnostics.repair.points import (
    WHOLE,
    RepairedPoint,
    RepairResult,
    folder_name,
    parse_lambdas,
    written_steps,
)
from oversharp.diagnostics.repair.sources import Sources, find_sources
from oversharp.diagnostics.repair.tensor_files import write_files
from oversharp.diagnostics.series.fingerprints import is_rounded_copy
from oversharp.diagnostics.series.layouts import REPAIR_RECORD
from oversharp.diagnostics.series.weights import IncompleteCheckpointError, check_complete, weight_files

_PAPERS = (
    "WiSE-FT ([arXiv:2109.01903](https://arxiv.org/abs/2109.01903)), for reasoning "
    "[arXiv:2504.10478](https://arxiv.org/abs/2504.10478)"
)


def repair(
    paths: Sequence[Path | str],
    out: Path,
    *,
    base: Path | None,
    checkpoint: int | None,
    lambdas: Sequence[float],
    average: int,
    float32: bool,
    progress: ProgressSink | None = None,
) -> RepairResult:
    """Write the points into ``out``, and keep points of an earlier call.

    Raises ``ConfigError`` for invalid settings or an invalid ``out``, ``CheckpointError`` for weights that cannot be
    mixed.
    """
    wanted = parse_lambdas(lambdas)
    passed = [Path(path).expanduser() for path in paths]
    refuse_inside(out, [path for path in passed if path.is_dir()])
    sources = find_sources(paths, base=base, step=checkpoint, average=average)
    refuse_inside(out, [source.path for source in sources.all])
    weights = Adapters(sources) if sources.are_adapters else Models(sources)
    line = _Interpolation(sources=sources, out=out, float32=float32, weights=weights)
    record = _make_record(sources, float32)
    require_ours(out, record)
    steps = {*wanted, *line.ends, *written_steps(out)}
    require_space(out, sum(line.n_bytes(step) for step in steps if not line.is_written(step)))
    with lock_output(out, record):
        points, left_out = line.write(sorted(steps), progress or SilentProgress())
    return RepairResult(
        out=out,
        base=sources.base.label,
        checkpoints=tuple(checkpoint.label for checkpoint in sources.checkpoints),
        points=points,
        left_out=left_out,
    )


def _make_record(sources: Sources, float32: bool) -> dict[str, Any]:
    """Return the record of the sources. Hashes identify them, because a series may be moved."""
    return {
        "made_by": f"oversharp {version()}",
        "made_of": {
            "base": sources.base.trained.weights_hash,
            "checkpoint": [checkpoint.weights_hash for checkpoint in sources.checkpoints],
            "float32": float32,
        },
        "paths": [str(source.path) for source in sources.all],
    }


@dataclass(frozen=True, kw_only=True)
class _Interpolation:
    """Line from base to checkpoint. Its points are written into ``out``."""

    sources: Sources
    out: Path
    float32: bool
    weights: Models | Adapters

    @property
    def ends(self) -> tuple[int, ...]:
        """Steps of the ends that the series contains.

        With adapters, a base that is a full model is not included.
        """
        under_adapters = self.sources.are_adapters and self.sources.base.kind == "full"
        return (WHOLE,) if under_adapters else (0, WHOLE)

    def find_source(self, step: int) -> Checkpoint | None:
        """Return the source that equals this point; None for a computed point."""
        if step == 0:
            return self.sources.base
        return self.sources.last if step == WHOLE and len(self.sources.checkpoints) == 1 else None

    def is_written(self, step: int) -> bool:
        """Return whether an earlier call wrote this point.

        Raises ``ConfigError`` if the point is damaged.
        """
        folder = self.out / folder_name(step)
        if not folder.is_dir():
            return False
        try:
            files = weight_files(folder, adapter=self.sources.are_adapters)
            check_complete(files)
        except IncompleteCheckpointError as fault:
            raise ConfigError(f"{folder}: {fault}; delete it and run the same command again") from None
        if not files or not (folder / REPAIR_RECORD).is_file():
            raise ConfigError(f"{folder}: is incomplete; delete it and run the same command again")
        return True

    def n_bytes(self, step: int) -> int:
        """Return the disk space that this point needs."""
        source = self.find_source(step)
        if source is not None:
            files = weight_files(source.path, adapter=self.sources.are_adapters)
            return sum(0 if same_disk(file, self.out) else file.stat().st_size for file in files)
        planned = self.weights.plan_files(step / WHOLE, float32=self.float32, rounding=Rounding())
        return sum(tensor.n_bytes for tensors in planned.values() for tensor in tensors)

    def write(self, steps: Sequence[int], progress: ProgressSink) -> tuple[tuple[RepairedPoint, ...], dict[str, str]]:
        """Write the missing points, the ends first. Skip a point whose weights equal another point's."""
        points: dict[int, RepairedPoint] = {}
        left_out: dict[str, str] = {}
        for step in sorted(steps, key=lambda step: (self.find_source(step) is None, step)):
            point = self._load_point(step) if self.is_written(step) else self._write_point(step, points, progress)
            twin = next((other for other in points.values() if other.weights_hash == point.weights_hash), None)
            if twin is None:
                points[step] = point
            else:
                left_out[folder_name(step)] = (
                    f"rounds to the weights of {folder_name(twin.step)}, because training changed them by only one "
                    "rounding step of their dtype; use --float32 and another --out to keep the difference"
                )
        return tuple(points[step] for step in sorted(points)), left_out

    def _load_point(self, step: int) -> RepairedPoint:
        folder = self.out / folder_name(step)
        recorded = load_object(folder / REPAIR_RECORD)
        try:
            own = {name: recorded[name] for name in ("lambda_", "weights_hash", "rounded_lambda")}
        except KeyError as error:
            raise ConfigError(
                f"{folder / REPAIR_RECORD}: lacks {error}; delete {folder} and run the same command again"
            ) from None
        return RepairedPoint(step=step, path=folder, found=True, **own)

    def _write_point(self, step: int, others: Mapping[int, RepairedPoint], progress: ProgressSink) -> RepairedPoint:
        """Write one point, unless its weights equal another point's."""
        final = self.out / folder_name(step)
        source = self.find_source(step)
        rounding = Rounding()
        with atomic_folder(final) as folder:
            copy_small_files(source or self.sources.last, folder)
            config = self.weights.make_config(
                source or self.sources.last, computed=source is None, float32=self.float32
            )
            (folder / self.weights.config_name).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
            if source is None:
                self._compute(step, folder, rounding, progress)
            else:
                _link_weights(source, folder)
            point = RepairedPoint(
                step=step,
                lambda_=step / WHOLE,
                path=final,
                weights_hash=self.weights.hash_folder(folder) if source is None else source.weights_hash,
                rounded_lambda=rounding.rounded_lambda(step / WHOLE),
                found=False,
            )
            if source is None and self._is_rounded_base(folder):
                point = replace(point, weights_hash=self.sources.base.weights_hash)
            if any(other.weights_hash == point.weights_hash for other in others.values()):
                shutil.rmtree(folder)
            else:
                self._write_description(point, folder)
        return point

    def _is_rounded_base(self, folder: Path) -> bool:
        """Return whether a model is the base, rounded. A series must not contain the base twice."""
        if self.sources.are_adapters:
            return False
        return is_rounded_copy(weight_files(folder), weight_files(self.sources.base.path))

    def _compute(self, step: int, folder: Path, rounding: Rounding, progress: ProgressSink) -> None:
        planned = self.weights.plan_files(step / WHOLE, float32=self.float32, rounding=rounding)
        n_tensors = sum(len(tensors) for tensors in planned.values())
        with progress.stage(f"tensors at λ = {step / WHOLE:g}", n_tensors) as advance:
            write_files(folder, planned, advance)

    def _write_description(self, point: RepairedPoint, folder: Path) -> None:
        text = _write_card(point, self.sources, float32=self.float32, base_only=self.weights.base_only)
        (folder / "README.md").write_text(text, encoding="utf-8")
        kept = {name: value for name, value in asdict(point).items() if name not in ("path", "found")}
        (folder / REPAIR_RECORD).write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")


def _link_weights(source: Checkpoint, folder: Path) -> None:
    for file in weight_files(source.path, adapter=source.kind == "lora"):
        target = folder / file.relative_to(source.path)
        target.parent.mkdir(parents=True, exist_ok=True)
        link(file, target)
    for index in source.path.glob("*.safetensors.index.json"):
        shutil.copyfile(index, folder / index.name)


# ---------------------------------------------------------------- model card


def _write_card(point: RepairedPoint, sources: Sources, *, float32: bool, base_only: Sequence[str]) -> str:
    """Return the README.md of one point, in Markdown."""
    unchanged = _unchanged_source(point, sources)
    left_out = ""
    if base_only:
        left_out = (
            f"Tensors of the base that the checkpoint lacks are not included: {len(base_only)}, `{base_only[0]}` first."
        )
    parts = [
        "---\ntags:\n- oversharp\n- merge\n---",
        f"# {_write_title(point, sources)}",
        f"The weights are those of the {unchanged}, unchanged." if unchanged else _describe_computed(point, sources),
        _write_table(point, sources),
        "Hashes identify the weights, as in a store of oversharp. The folder names of this series contain λ in "
        "hundredths: "
        f"`checkpoint-0` is the base, `checkpoint-{WHOLE}` is {_describe_end(sources)}.",
        "" if unchanged else _describe_rounding(point, float32),
        "" if unchanged else left_out,
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _unchanged_source(point: RepairedPoint, sources: Sources) -> str:
    if point.step == 0:
        return "base"
    return "checkpoint" if point.step == WHOLE and len(sources.checkpoints) == 1 else ""


def _write_title(point: RepairedPoint, sources: Sources) -> str:
    if point.step == 0:
        return f"The base of `{sources.last.label}`"
    if point.step == WHOLE:
        return _describe_end(sources)[0].upper() + _describe_end(sources)[1:]
    return f"{point.lambda_:.0%} of the way from the base to {_describe_end(sources)}"


def _describe_end(sources: Sources) -> str:
    if len(sources.checkpoints) == 1:
        return f"`{sources.last.label}`"
    return f"the mean of {', '.join(f'`{checkpoint.label}`' for checkpoint in sources.checkpoints)}"


def _describe_computed(point: RepairedPoint, sources: Sources) -> str:
    single = len(sources.checkpoints) == 1
    formula = f"base + {point.lambda_:g} · ({'checkpoint' if single else 'mean of the checkpoints'} − base)"
    factors = ""
    if sources.are_adapters:
        summed = not single or sources.base.kind == "lora"
        how = "the factors of the adapters are concatenated" if summed else "lora_B is scaled"
        factors = f" An adapter adds B·A to its model, so {how}."
    return (
        f"The weights are {formula}, after {_PAPERS}.{factors} Configuration and tokenizer are those of "
        f"`{sources.last.label}`.\n\nWhether this point is better than both ends is unknown. To measure it, run "
        "`oversharp audit` on the parent folder."
    )


def _write_table(point: RepairedPoint, sources: Sources) -> str:
    rows = [
        ("λ", f"{point.lambda_:g}"),
        ("base", _describe_source(sources.base)),
        *(("checkpoint", _describe_source(checkpoint)) for checkpoint in sources.checkpoints),
        ("weights", f"`{point.weights_hash}`"),
        ("made by", f"`oversharp repair` {version()}"),
    ]
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)])


def _describe_source(checkpoint: Checkpoint) -> str:
    under = "" if checkpoint.base_path is None else f", an adapter of `{checkpoint.base_path}`"
    return f"step {checkpoint.step}, `{checkpoint.path}`{under}, weights `{checkpoint.weights_hash}`"


def _describe_rounding(point: RepairedPoint, float32: bool) -> str:
    if point.rounded_lambda is None:
        return ""
    where = f"the weights are at λ = {point.rounded_lambda:.4g}"
    if float32:
        return f"Written in float32: {where}."
    return f"Rounded to the dtype of the checkpoint: {where}, the nearest point on the line."
