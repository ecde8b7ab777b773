"""Model card of a repaired checkpoint."""

from __future__ import annotations

from collections.abc import Sequence

from oversharp.diagnostics.records.provenance import version
from oversharp.diagnostics.records.types import Checkpoint
from oversharp.diagnostics.repair.points import WHOLE, RepairedPoint
from oversharp.diagnostics.repair.sources import Sources

_PAPERS = (
    "WiSE-FT ([arXiv:2109.01903](https://arxiv.org/abs/2109.01903)), for reasoning "
    "[arXiv:2504.10478](https://arxiv.org/abs/2504.10478)"
)


def card(point: RepairedPoint, sources: Sources, *, float32: bool, of_base_alone: Sequence[str]) -> str:
    """Return the README.md of one point, in Markdown."""
    unchanged = _unchanged_source(point, sources)
    parts = [
        "---\ntags:\n- oversharp\n- merge\n---",
        f"# {_title(point, sources)}",
        f"The weights are those of the {unchanged}, unchanged." if unchanged else _describe_computed(point, sources),
        _table(point, sources),
        "Hashes identify the weights, as in a store of oversharp. Folders of this series are named by λ in hundredths: "
        f"`checkpoint-0` is the base, `checkpoint-{WHOLE}` is {_end(sources)}.",
        "" if unchanged else _rounding(point, float32),
        "" if unchanged else _describe_left_out(of_base_alone),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _unchanged_source(point: RepairedPoint, sources: Sources) -> str:
    if point.step == 0:
        return "base"
    return "checkpoint" if point.step == WHOLE and len(sources.checkpoints) == 1 else ""


def _title(point: RepairedPoint, sources: Sources) -> str:
    if point.step == 0:
        return f"The base of `{sources.last.label}`"
    if point.step == WHOLE:
        return _end(sources)[0].upper() + _end(sources)[1:]
    return f"{point.lambda_:.0%} of the way from the base to {_end(sources)}"


def _end(sources: Sources) -> str:
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
        f"`{sources.last.label}`.\n\nWhether this point is better than both ends is not measured here: run "
        "`oversharp audit` on the parent folder."
    )


def _table(point: RepairedPoint, sources: Sources) -> str:
    rows = [
        ("λ", f"{point.lambda_:g}"),
        ("base", _describe(sources.base)),
        *(("checkpoint", _describe(checkpoint)) for checkpoint in sources.checkpoints),
        ("weights", f"`{point.weights_hash}`"),
        ("made by", f"`oversharp repair` {version()}"),
    ]
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)])


def _describe(checkpoint: Checkpoint) -> str:
    under = "" if checkpoint.base_path is None else f", an adapter of `{checkpoint.base_path}`"
    return f"step {checkpoint.step}, `{checkpoint.path}`{under}, weights `{checkpoint.weights_hash}`"


def _rounding(point: RepairedPoint, float32: bool) -> str:
    if point.rounded_lambda is None:
        return ""
    where = f"the weights are at λ = {point.rounded_lambda:.4g}"
    if float32:
        return f"Written in float32: {where}."
    return f"Rounded to the dtype of the checkpoint: {where}, the nearest point on the line."


def _describe_left_out(of_base_alone: Sequence[str]) -> str:
    if not of_base_alone:
        return ""
    return (
        f"Tensors of the base that the checkpoint lacks are left out: {len(of_base_alone)}, `{of_base_alone[0]}` first."
    )
