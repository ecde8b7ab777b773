"""Functions of the API that prepare an audit: plan, plan_cost, plan_top_up, check_problems, repair."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from oversharp.diagnostics.records.arguments import check_arguments
from oversharp.diagnostics.records.names import store_file

if TYPE_CHECKING:
    from oversharp.diagnostics.audit.cost.cost import CostPlan
    from oversharp.diagnostics.audit.cost.top_up import TopUp
    from oversharp.diagnostics.audit.plan import Plan
    from oversharp.diagnostics.records.progress import ProgressSink
    from oversharp.diagnostics.repair.points import RepairResult
    from oversharp.diagnostics.tasks.overlap import OverlapResult


@check_arguments
def plan(
    store: Path | str,
    *,
    series: str | None = None,
    drop_points: float = 5.0,
    k: int | None = None,
    power: float = 0.8,
    checkpoints: int | None = None,
    until_solved: int | None = None,
    first: int | None = None,
) -> Plan:
    """Compute how many problems, samples and tokens an audit needs to detect a given loss.

    STORE has the base's samples, from a finished audit or a small pilot. The command simulates audits of several sizes
    in which pass@k falls by DROP, and counts how often the verdict reports a fall. It simulates two kinds of loss.
    Diffuse: rarely solved problems are solved less often, the others more often. Concentrated: a few problems are never
    solved again. An audit is large enough if it detects both. The power is an upper bound, because real losses vary
    more between problems, and changes between checkpoints are not simulated. The store is not changed.

    Parameters
    ----------
    store
        The audit.duckdb file, or its directory.
    series
        Name of the series whose base and responses to use; required if the store has several.
    drop_points
        The fall of pass@k to detect, in percentage points.
    k
        The k of that fall, at most half of the base's samples. Default: half of the audit's n.
    power
        The required probability of detecting that fall.
    checkpoints
        Trained checkpoints of the planned audit. Default: as many as in the store.
    until_solved
        Plan audits that sample each problem in rounds, and stop it after the round that leaves it with UNTIL_SOLVED
        correct samples. 0: always n samples. Default: as in the store's audit, else as in `oversharp audit`.
    first
        Samples per problem in the first round. Default: as in the store's audit, else as in `oversharp audit`.
    """
    from oversharp.diagnostics.audit.plan import plan as run

    return run(
        store_file(store),
        series=series,
        drop_points=drop_points,
        k=k,
        wanted=power,
        n_checkpoints=checkpoints,
        until_solved=until_solved,
        first=first,
    )


@check_arguments
def plan_cost(
    model: Path | str,
    *,
    problems: int,
    tokens: int,
    checkpoints: int = 10,
    n: int = 256,
    prompt_tokens: int = 200,
    gpu: str | None = None,
    until_solved: int | None = None,
    first: int | None = None,
    prices: str | None = None,
) -> CostPlan:
    """Estimate hours, disk and memory of each stage of an audit of MODEL with the defaults.

    Reads only the model's configuration. Without ``gpu``, the hours are for one core of this CPU. They are rates that
    were measured on one model and CPU, scaled by the operations of MODEL and by the speed of this core. Measuring that
    speed takes some seconds. GPU hours are not measured: they are lower bounds from the data sheet. With a
    stopping rule, the hours depend on success rates, which are unknown. So there are two numbers: if no problem stops,
    and if all stop after their first round.

    Parameters
    ----------
    model
        A directory with the model, or its hub name.
    problems
        Number of problems.
    tokens
        Mean length of a response, in tokens.
    checkpoints
        Trained checkpoints, without the base.
    n
        Samples per problem and checkpoint; twice as many of the base.
    prompt_tokens
        Mean length of a prompt with its chat template, in tokens.
    gpu
        h100, h200, a100, l40s or l4: a single one.
    until_solved
        Correct samples after which a problem stops. 0: always n samples. Default: as in `oversharp audit`.
    first
        Samples per problem in the first round. Default: as in `oversharp audit`.
    prices
        Prices of a million tokens of prompts and of responses, such as 0.15,0.60, for the cost of a hosted service.
    """
    from oversharp.diagnostics.audit.cost.cost import AuditSize
    from oversharp.diagnostics.audit.cost.cost import plan_cost as run
    from oversharp.diagnostics.audit.cost.rounds import PlannedStopping
    from oversharp.diagnostics.http.prices import TokenPrices

    rule = PlannedStopping(enough=until_solved, first=first).for_n(n)
    size = AuditSize(
        problems=problems, checkpoints=checkpoints, n=n, tokens=tokens, prompt_tokens=prompt_tokens, **rule
    )
    return run(str(model), size, gpu=gpu, prices=None if prices is None else TokenPrices.parse(prices))


@check_arguments
def plan_top_up(
    store: Path | str,
    path: Path | str,
    *,
    series: str | None = None,
    n: int | None = None,
    until_solved: int | None = None,
    drop_points: float = 5.0,
    k: int | None = None,
) -> TopUp:
    """Write the problems of an import whose further samples would show most, and count these samples.

    Problems that are often solved need no further samples. The others are sampled in rounds, each twice as large, until
    UNTIL_SOLVED samples are correct or there are N. PATH gets a JSON line for each problem and step of the next round,
    with the number of samples to draw. Import them into the same series with ``until_solved``. The store is not
    changed.

    Parameters
    ----------
    store
        The audit.duckdb file, or its directory.
    path
        JSON Lines file to write.
    series
        Name of the imported series; required if the store has several.
    n
        Largest number of samples of a problem. Default: four times the n of the first import.
    until_solved
        Correct samples after which a problem stops. Default: as in the series' last import, else 4.
    drop_points
        Fall of pass@k whose power is computed, in percentage points.
    k
        The k of that fall. Default: half of the import's n.

    Examples
    --------
    ::

        oversharp.plan_top_up("audit", "more.jsonl")
        # sample more.jsonl, then
        oversharp.import_samples(["answers.jsonl"], oversharp.ImportConfig(store="audit", name="run", until_solved=4))
    """
    from oversharp.diagnostics.audit.cost.top_up import top_up as run

    return run(
        store_file(store),
        Path(path),
        series=series,
        n=n,
        until_solved=until_solved,
        drop_points=drop_points,
        k=k,
    )


@check_arguments
def check_problems(audit: Path | str, against: Sequence[Path | str], *, words: int = 13) -> OverlapResult:
    """Find problems of an audit that also appear in other data sets, such as the training data.

    Reports equal texts, equal words (ignoring case, spaces and punctuation), and shared sequences of WORDS words. A
    shared sequence may be a quotation, a template, or the same problem reworded. Words that more than half of the
    audit's prompts share are ignored. Files may have prompts in prompt, question, problem, input, query or instruction,
    as text or as a chat.

    Parameters
    ----------
    audit
        Problems of the audit: a JSONL or Parquet file, or a task such as benchmark:math500.
    against
        Training data: files or tasks, one or more.
    words
        Length of an overlap: a problem overlaps if it shares this many consecutive words with training data.
    """
    from oversharp.diagnostics.tasks.overlap import check_problems as run

    return run(str(audit), [str(source) for source in against], words=words)


@check_arguments
def repair(
    series: Path | str | Sequence[Path | str],
    out: Path | str,
    *,
    base: Path | str | None = None,
    checkpoint: int | None = None,
    lambdas: Sequence[float] = (0.25, 0.5, 0.75),
    average: int = 1,
    float32: bool = False,
    progress: ProgressSink | None = None,
) -> RepairResult:
    """Write checkpoints between the base and a trained one, which may restore lost problems.

    Weights interpolated between base and checkpoint often keep most of the gain in pass@1 and restore much of the
    coverage (arXiv:2109.01903, arXiv:2504.10478). OUT is a series for `oversharp audit`, which tests this. It has the
    base as checkpoint-0, checkpoint-25 for λ = 0.25 and so on, and the checkpoint as checkpoint-100. For LoRA adapters,
    lora_B is scaled, and their model is the base. The command samples nothing and needs no GPU. If it is interrupted,
    run it again to continue.

    Parameters
    ----------
    series
        A directory of checkpoints, several checkpoint directories, or a quoted glob, as for an audit.
    out
        Directory to write into: a new one, or one with points of the same checkpoint.
    base
        The base model. Default: the lowest step; for LoRA adapters, their model.
    checkpoint
        Step of the checkpoint. Default: the last.
    lambdas
        Distances from the base, above 0 and at most 1.5, in steps of 0.01: 0 is the base, 1 the checkpoint.
    average
        Replace the checkpoint by the mean of this many checkpoints, up to it. The mean of adapters of one rank has the
        sum of their ranks.
    float32
        Write float32 instead of the checkpoint's dtype. bfloat16 has few numbers between a base and a checkpoint that
        was trained with a small learning rate; the result reports the λ of each point after rounding.

    Examples
    --------
    ::

        repaired = oversharp.repair("runs/grpo", "runs/repaired", lambdas=[0.5, 0.75])
        oversharp.audit(repaired.out, oversharp.AuditConfig(task="countdown", n=64, out="audit"))
    """
    from oversharp.diagnostics.repair.repair import repair as run

    return run(
        [series] if isinstance(series, str | Path) else list(series),
        Path(out),
        base=None if base is None else Path(base),
        checkpoint=checkpoint,
        lambdas=lambdas,
        average=average,
        float32=float32,
        progress=progress,
    )
