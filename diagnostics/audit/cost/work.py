"""Work of an audit of a given size, in responses: the same counts as those of the audit itself. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from oversharp.diagnostics.audit.config import AuditConfig
from oversharp.diagnostics.audit.controls import ControlRequest, plan_controls
from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.types import SamplingSettings


@dataclass(frozen=True, kw_only=True)
class AuditSize:
    """An audit of ``checkpoints`` trained checkpoints and their base, with ``n`` samples per problem, 2n of the base.

    ``tokens`` is the mean length of a response, ``prompt_tokens`` that of a prompt. The others have the audit's
    defaults; with ``control_n`` None there are controls where they are cheap. Raises ``ConfigError`` for a number
    below 1.
    """

    problems: int
    checkpoints: int
    n: int
    tokens: float
    prompt_tokens: float
    panel: int = AuditConfig.panel
    kernel_problems: int = AuditConfig.kernel_problems
    kernel_responses: int = AuditConfig.kernel_responses
    control_n: int | None = None

    def __post_init__(self) -> None:
        for flag in ("problems", "checkpoints", "n", "tokens", "prompt_tokens"):
            if getattr(self, flag) < 1:
                raise ConfigError(f"--{flag.replace('_', '-')} {getattr(self, flag)}: must be at least 1")

    @property
    def sampled(self) -> int:
        """Responses that are sampled: n of every checkpoint, 2n of the base, a greedy one of each, panel and controls.

        >>> AuditSize(problems=10, checkpoints=3, n=4, tokens=9, prompt_tokens=9).sampled  # 3 · (4 + 1) + 8 + 1 + 4
        280
        """
        per_problem = self.checkpoints * (self.n + 1) + 2 * self.n + 1 + self.panel
        return self.problems * (per_problem + self.controls)

    @property
    def controls(self) -> int:
        """Responses per problem at all other temperatures; 0 where they would cost too much."""
        planned, _ = plan_controls(
            ControlRequest(n=self.control_n),
            SamplingSettings(sampler="vllm"),
            n=self.n,
            n_base=2 * self.n,
            n_checkpoints=self.checkpoints + 1,
        )
        if planned is None:
            return 0
        return planned.n * len(planned.colder) + planned.n_hot * len(planned.hotter) * min(2, self.checkpoints)

    @property
    def scored(self) -> int:
        """Responses that are teacher-forced: panel and own ones under each checkpoint, and its own under the base."""
        return self.problems * self.panel * (2 * (self.checkpoints + 1) + self.checkpoints)

    def scored_prompts(self, rows_at_a_time: int) -> float:
        """Return the prompts that are computed, where responses share their prompt in batches of that many rows.

        Every checkpoint scores the panel and its own responses; at the end the base scores those of all others. Batches
        do not end where problems do, so that ``r`` responses to one problem are in (r + b - 1) / b batches of b.

        >>> size = AuditSize(problems=10, checkpoints=3, n=4, tokens=9, prompt_tokens=9)
        >>> size.scored, size.scored_prompts(1), round(size.scored_prompts(10_000), 3)  # 10 · (4 · 8 + 12) responses
        (440, 440.0, 50.039)
        """
        passes = [*[2 * self.panel] * (self.checkpoints + 1), self.checkpoints * self.panel]
        batches = sum((rows + rows_at_a_time - 1) / rows_at_a_time for rows in passes)
        return self.problems * batches

    @property
    def kernel_rows(self) -> int:
        """Rows in the kernels of all checkpoints: as many of the panel as of each checkpoint's own."""
        return min(self.problems, self.kernel_problems) * 2 * self.kernel_responses * (self.checkpoints + 1)
