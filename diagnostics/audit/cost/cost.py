"""Estimate the cost of an audit of a model: hours, disk and memory of each stage.

CPU rates were measured (``machines.MEASURED``). They are scaled by the speed of this CPU on a small transformer
(``core_speed``). GPU rates were not measured. The time of a stage is the larger of two quotients: operations by the
data sheet's operations per second, and bytes by its bytes per second (roofline model; Williams et al. 2009, Commun. ACM
52(4)). That is a lower bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from oversharp.diagnostics.audit.config import DEFAULT_KERNEL_PROBLEMS, DEFAULT_PANEL, AuditConfig
from oversharp.diagnostics.audit.controls import ControlRequest, plan_controls
from oversharp.diagnostics.audit.cost.machines import (
    ENGINE_BYTES,
    GPUS,
    MEASURED,
    STORE_BYTES,
    TOKEN_BYTES,
    Gpu,
    MeasuredCpu,
)
from oversharp.diagnostics.audit.cost.shapes import ModelShape, read_shape
from oversharp.diagnostics.http.pace import ROWS_PER_REQUEST
from oversharp.diagnostics.http.prices import TokenPrices
from oversharp.diagnostics.models.batch_sizes import MAX_ROWS, default_rows, tokens_per_batch
from oversharp.diagnostics.models.core_speed import CoreSpeed, measure_core
from oversharp.diagnostics.records.amounts import plural, short_count, two_digits
from oversharp.diagnostics.records.cells import short_repr
from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.names import nearest_names
from oversharp.diagnostics.records.types import SamplingSettings

if TYPE_CHECKING:
    from oversharp.diagnostics.models.load import Dtype


@dataclass(frozen=True, kw_only=True)
class AuditSize:
    """Size of an audit: trained ``checkpoints`` with ``n`` samples per problem, base with 2n.

    With ``enough``, these are the largest numbers: a problem stops after the round that leaves it with ``enough``
    correct samples, and the first round has ``first`` samples. Both are None without a stopping rule.
    ``tokens`` is the mean length of a response, ``prompt_tokens`` that of a prompt. The other fields have the defaults
    of an audit. If ``control_n`` is None, there are controls if they are cheap. Raises ``ConfigError`` for a number
    below 1.
    """

    problems: int
    checkpoints: int
    n: int
    tokens: float
    prompt_tokens: float
    panel: int = DEFAULT_PANEL
    kernel_problems: int = DEFAULT_KERNEL_PROBLEMS
    kernel_responses: int = AuditConfig.kernel_responses
    control_n: int | None = None
    first: int | None = None
    enough: int | None = None

    def __post_init__(self) -> None:
        for flag in ("problems", "checkpoints", "n", "tokens", "prompt_tokens"):
            if getattr(self, flag) < 1:
                raise ConfigError(f"--{flag.replace('_', '-')} {getattr(self, flag)}: must be at least 1")

    @property
    def sampled(self) -> int:
        """Number of sampled responses: own samples, greedy responses, panel and controls.

        With a stopping rule, it is the largest possible number.

        >>> AuditSize(problems=10, checkpoints=3, n=4, tokens=9, prompt_tokens=9).sampled  # 3 · (4 + 1) + 8 + 1 + 4
        280
        """
        return self._sampled_up_to(2 * self.n)

    @property
    def least_sampled(self) -> int:
        """Number of sampled responses if every problem stops after its first round.

        >>> AuditSize(problems=1, checkpoints=3, n=4, tokens=9, prompt_tokens=9, first=2, enough=1).least_sampled
        16
        """
        return self._sampled_up_to(2 * self.n if self.first is None else self.first)

    def money(self, prices: TokenPrices) -> float:
        """Return the price of all sampled responses at a hosted service.

        A request has up to 32 responses, and its prompt is billed once. Each checkpoint has a smaller request for the
        rest of a problem's responses, and one for the greedy response.

        >>> size = AuditSize(problems=1, checkpoints=1, n=32, tokens=10, prompt_tokens=100, panel=0, control_n=0)
        >>> size.money(TokenPrices(prompt=1e4, response=1e5))  # 258 responses of 10 tokens, 12 prompts of 100
        270.0
        """
        n_prompts = self.sampled // ROWS_PER_REQUEST + 2 * self.problems * (self.checkpoints + 1)
        return prices.money(n_prompts * self.prompt_tokens, self.sampled * self.tokens)

    def _sampled_up_to(self, most: int) -> int:
        """Return the number of sampled responses with at most ``most`` samples of a problem."""
        per_problem = self.checkpoints * (min(self.n, most) + 1) + min(2 * self.n, most) + 1 + self.panel
        return self.problems * (per_problem + self._controls_up_to(most))

    def _controls_up_to(self, most: int) -> int:
        """Return the responses per problem at all other temperatures; 0 if they would cost too much."""
        planned, _ = plan_controls(
            ControlRequest(n=self.control_n),
            SamplingSettings(sampler="vllm"),
            n=self.n,
            n_base=2 * self.n,
            n_checkpoints=self.checkpoints + 1,
        )
        if planned is None:
            return 0
        n_lower, n_higher = min(most, planned.n), min(most, planned.n_higher)
        return n_lower * len(planned.lower) + n_higher * len(planned.higher) * min(2, self.checkpoints)

    @property
    def scored(self) -> int:
        """Number of teacher-forced responses.

        Each checkpoint scores the panel and its own responses. The base also scores the responses of all others.
        """
        return self.problems * self.panel * (2 * (self.checkpoints + 1) + self.checkpoints)

    def scored_prompts(self, rows_at_a_time: int) -> float:
        """Return how many prompts are computed if responses in a batch share their prompt's cache.

        ``b`` is the number of rows in a batch. A batch may contain several problems, so the ``r`` responses to a
        problem are in (r + b - 1) / b batches on average.

        >>> size = AuditSize(problems=10, checkpoints=3, n=4, tokens=9, prompt_tokens=9)
        >>> size.scored, size.scored_prompts(1), round(size.scored_prompts(10_000), 3)  # 10 · (4 · 8 + 12) responses
        (440, 440.0, 50.039)
        """
        passes = [*[2 * self.panel] * (self.checkpoints + 1), self.checkpoints * self.panel]
        batches = sum((rows + rows_at_a_time - 1) / rows_at_a_time for rows in passes)
        return self.problems * batches

    @property
    def kernel_rows(self) -> int:
        """Number of rows in all kernels: panel responses, and as many own samples."""
        return min(self.problems, self.kernel_problems) * 2 * self.kernel_responses * (self.checkpoints + 1)


Basis = Literal["measured rate", "roofline"]

#: Share of a GPU's memory that ``oversharp audit`` assigns to the sampling engine.
ENGINE_SHARE = 0.6
#: Bytes that a kernel needs in addition to the float32 gradient of all weights.
KERNEL_BYTES = 1 << 30
#: Cost of a kernel, in forward passes over its rows: one forward pass, and a backward pass that costs two.
KERNEL_FORWARDS = 3.0


@dataclass(frozen=True, kw_only=True)
class StageCost:
    """Cost of one stage: ``amount`` of work as text, and ``hours`` on one CPU core or one GPU."""

    name: str
    amount: str
    hours: float
    basis: Basis


@dataclass(frozen=True, kw_only=True)
class MemoryNeed:
    """Bytes that a process needs, and whether they fit.

    ``fits`` is None on a CPU, whose memory is unknown.
    """

    what: str
    needed_bytes: float
    fits: bool | None


@dataclass(frozen=True, kw_only=True)
class CostPlan:
    """Cost of an audit of ``model`` on ``machine``, in hours of one CPU core or one GPU.

    ``weights_bytes`` is the size of all checkpoints, which the audit reads. ``disk_bytes`` is the size of its output.
    With a stopping rule, all amounts are for problems that are never solved. ``least_hours`` are the hours if every
    problem stops after its first round; None without a rule. ``money`` is the price of the responses at a hosted
    service; None without prices.
    """

    model: ModelShape
    size: AuditSize
    machine: str
    per_core: bool
    stages: tuple[StageCost, ...]
    memory: tuple[MemoryNeed, ...]
    disk_bytes: float
    weights_bytes: float
    remarks: tuple[str, ...]
    least_hours: float | None = None
    money: float | None = None

    __repr__ = short_repr

    @property
    def hours(self) -> float:
        """Hours of all stages."""
        return sum(stage.hours for stage in self.stages)


def plan_cost(model: str, size: AuditSize, *, gpu: str | None = None, prices: TokenPrices | None = None) -> CostPlan:
    """Return the cost of ``oversharp audit`` with default settings, for a series of ``model``.

    Raises ``ConfigError`` for an unlisted GPU or a sequence longer than the model's context, ``CheckpointError`` if
    ``model`` is no model.
    """
    if gpu is not None and gpu.lower() not in GPUS:
        raise ConfigError(f"--gpu {gpu}: not among the data sheets; {nearest_names(gpu.lower(), GPUS)}")
    shape = read_shape(model)
    if shape.context is not None and size.prompt_tokens + size.tokens > shape.context:
        raise ConfigError(
            f"--tokens {size.tokens}: plus {size.prompt_tokens} prompt tokens is more than the model's context of "
            f"{shape.context:,}; lower it"
        )
    if gpu is not None:
        plan = cost_on_gpu(shape, size, GPUS[gpu.lower()])
    else:
        plan = cost_on_cpu(shape, size, measure_core(dtype_on_cpu(shape)))
    return plan if prices is None else replace(plan, money=size.money(prices))


def dtype_on_cpu(shape: ModelShape) -> Dtype:
    """Return the floating-point type of a bfloat16 model on this CPU, as in ``choose_dtype``."""
    from oversharp.diagnostics.models.devices import ONE_THREAD_BELOW_PARAMETERS, has_products_of  # loads torch

    large = shape.parameters >= ONE_THREAD_BELOW_PARAMETERS
    return "bfloat16" if large and has_products_of("bfloat16") else "float32"


def cost_on_cpu(shape: ModelShape, size: AuditSize, speed: CoreSpeed, measured: MeasuredCpu = MEASURED) -> CostPlan:
    """Return the cost on one core of that speed, in proportion to each stage's operations."""
    cpu = measured.scaled_to(speed)
    kinds = ("decoding", "reading", "gradients")
    ratios = [two_digits(getattr(speed, kind) / getattr(measured.speed, kind)) for kind in kinds]

    def stages_of(work: _Work) -> tuple[tuple[str, str, float], ...]:
        return (
            ("sample", work.sampled_text, work.sampled_flop / cpu.sampling_flop),
            ("teacher-force", work.scored_text, work.scored_flop / cpu.scoring_flop),
            ("kernel", work.kernel_text, work.kernel_flop / cpu.kernel_flop),
            ("grade to report", work.graded_text, cpu.end_s + cpu.sample_s * work.n_sampled),
        )

    machine = (
        f"one core of this CPU in {speed.dtype}; compared with the reference core ({cpu.hardware}; {cpu.model}), "
        f"decoding is {ratios[0]} times as fast, prompt processing {ratios[1]} times and gradients {ratios[2]} times"
    )
    return _plan_of(shape, size, None, machine, stages_of)


def cost_on_gpu(shape: ModelShape, size: AuditSize, gpu: Gpu) -> CostPlan:
    """Return a lower bound of the cost on one GPU from its data sheet, without CPU stages."""
    rows = rows_at_a_time(shape, size.prompt_tokens + size.tokens, gpu)

    def stages_of(work: _Work) -> tuple[tuple[str, str, float], ...]:
        step_s = decoding_step_s(shape, work.seen, rows, gpu)
        return (
            ("sample", f"{work.sampled_text}, {rows} at a time", work.n_sampled * size.tokens / rows * step_s),
            ("teacher-force", work.scored_text, work.scored_flop / gpu.bfloat16_flop),
            ("kernel", work.kernel_text, work.kernel_flop / gpu.float32_flop),
        )

    return _plan_of(shape, size, gpu, f"one {gpu.name}, by its data sheet", stages_of)


def _plan_of(
    shape: ModelShape,
    size: AuditSize,
    gpu: Gpu | None,
    machine: str,
    stages_of: Callable[[_Work], tuple[tuple[str, str, float], ...]],
) -> CostPlan:
    """Return the cost plan. ``stages_of`` returns the name, amount of work and seconds of each stage."""
    work = _Work(shape, size, gpu)
    made = work.plan(machine, stages_of(work))
    if size.first is None:
        return made
    least = stages_of(_Work(shape, size, gpu, n_sampled=size.least_sampled))
    return replace(made, least_hours=sum(seconds for _, _, seconds in least) / 3600)


class _Work:
    """Operations and bytes of each stage, with ``n_sampled`` responses (by default the largest number)."""

    def __init__(
        self, shape: ModelShape, size: AuditSize, gpu: Gpu | None = None, n_sampled: int | None = None
    ) -> None:
        self._shape, self._size, self._gpu = shape, size, gpu
        self.n_sampled = size.sampled if n_sampled is None else n_sampled
        #: Mean number of tokens that a response token attends to.
        self.seen = size.prompt_tokens + size.tokens / 2
        self._row_tokens = size.prompt_tokens + size.tokens
        self.sampled_text = f"{self.n_sampled:,} responses, {short_count(self.n_sampled * size.tokens)} tokens"
        # responses to a prompt share its KV cache
        prompts = size.problems * (size.checkpoints + 1) * size.prompt_tokens
        self.sampled_flop = (self.n_sampled * size.tokens + prompts) * shape.token_flop(self.seen)
        self.scored_text = f"{size.scored:,} responses with their prompts"
        scored_at_once = tokens_per_batch(shape.hidden_size, on_cpu=gpu is None) / self._row_tokens
        read = size.scored_prompts(max(1, int(scored_at_once))) if shape.shares_prompts else size.scored
        scored_tokens = size.scored * size.tokens + read * size.prompt_tokens
        self.scored_flop = scored_tokens * shape.token_flop(self.seen)
        self.kernel_text = f"{size.kernel_rows:,} rows at {size.checkpoints + 1} checkpoints"
        row_flop = self._row_tokens * shape.token_flop(self._row_tokens / 2)
        self.kernel_flop = KERNEL_FORWARDS * size.kernel_rows * row_flop
        self.graded_text = f"{self.n_sampled:,} responses"

    def plan(self, machine: str, stages: Iterable[tuple[str, str, float]]) -> CostPlan:
        """Return the cost plan. A stage is given as name, amount of work, and seconds."""
        shape, size, gpu = self._shape, self._size, self._gpu
        basis: Basis = "measured rate" if gpu is None else "roofline"
        return CostPlan(
            model=shape,
            size=size,
            machine=machine,
            per_core=gpu is None,
            stages=tuple(
                StageCost(name=name, amount=amount, hours=seconds / 3600, basis=basis)
                for name, amount, seconds in stages
            ),
            memory=tuple(
                MemoryNeed(what=process, needed_bytes=needed, fits=None if gpu is None else needed <= gpu.memory_bytes)
                for process, needed in self._memory()
            ),
            disk_bytes=STORE_BYTES + size.sampled * size.tokens * TOKEN_BYTES,
            weights_bytes=float((size.checkpoints + 1) * shape.weight_bytes),
            remarks=_remarks(shape),
        )

    def _memory(self) -> list[tuple[str, float]]:
        """Return the memory needs of the engine, and of the scoring model with a kernel."""
        shape, gpu = self._shape, self._gpu
        if gpu is None:
            rows = default_rows("cpu", shape.parameters, n_threads=1)
        else:
            rows = rows_at_a_time(shape, self._row_tokens, gpu)
        cache = rows * (shape.kv_bytes or 0) * self._row_tokens
        # on a CPU the engine keeps the weights twice (loaded, and packed for matrix products), and at most 2 GiB of
        # cache
        engine = shape.weight_bytes + cache
        if gpu is None:
            engine = 2 * shape.weight_bytes + min(cache, 2 << 30) + ENGINE_BYTES
        kernel = 2 * 4 * shape.parameters + KERNEL_BYTES
        at_once = f"engine, {plural(rows, 'response')} at a time"
        return [(at_once, float(engine)), ("teacher forcing and kernel", float(kernel))]


def rows_at_a_time(shape: ModelShape, row_tokens: float, gpu: Gpu) -> int:
    """Return how many prompts with response fit the engine's memory, from 1 to ``MAX_ROWS``."""
    room = ENGINE_SHARE * gpu.memory_bytes - shape.weight_bytes
    per_row = (shape.kv_bytes or 0) * row_tokens
    return max(1, min(MAX_ROWS, int(room // per_row))) if per_row else MAX_ROWS


def decoding_step_s(shape: ModelShape, seen: float, rows: int, gpu: Gpu) -> float:
    """Return a lower bound of the seconds of a decoding step of ``rows`` responses.

    Each response attends to ``seen`` tokens. A decoding step reads all weights once, and the keys and values of each
    row.
    """
    step_bytes = shape.weight_bytes + rows * (shape.kv_bytes or 0) * seen
    return max(step_bytes / gpu.bytes_per_s, rows * shape.token_flop(seen) / gpu.bfloat16_flop)


def _remarks(shape: ModelShape) -> tuple[str, ...]:
    remarks = []
    if shape.experts:
        remarks.append("mixture of experts: all weights are counted for every token, which is an overestimate")
    if shape.kv_bytes is None:
        remarks.append("the model's configuration lacks the size of keys and values, so they are not counted")
    return tuple(remarks)
