"""What an audit of a given size does, in tokens: the same counts that the audit itself will make. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from diagnostics.audit.config import AuditConfig
from diagnostics.audit.controls import ControlsConfig, plan_controls
from diagnostics.records.errors import ConfigError
from diagnostics.records.types import SamplingSettings


@dataclass(frozen=True, kw_only=True)
class AuditSize:
    """An audit with the default settings: ``checkpoints`` trained ones beside the base, ``n`` samples per problem.

    ``tokens`` is the mean length of a response, ``prompt_tokens`` that of a prompt. Raises ``ConfigError`` for a number
    below 1.
    """

    problems: int
    checkpoints: int
    n: int
    tokens: int
    prompt_tokens: int

    def __post_init__(self) -> None:
        for flag in ("problems", "checkpoints", "n", "tokens", "prompt_tokens"):
            if getattr(self, flag) < 1:
                raise ConfigError(f"--{flag.replace('_', '-')} {getattr(self, flag)}: must be at least 1")

    @property
    def sampled(self) -> int:
        """Responses that are drawn: n of every checkpoint, 2n of the base, a greedy one of each, panel and controls."""
        own = self.problems * (self.checkpoints * (self.n + 1) + 2 * self.n + 1 + AuditConfig.panel)
        return own + self.problems * self.controls

    @property
    def controls(self) -> int:
        """Responses per problem at other temperatures, those of all checkpoints together; 0 where none fit."""
        planned, _ = plan_controls(
            ControlsConfig(),
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
        return self.problems * AuditConfig.panel * (2 * (self.checkpoints + 1) + self.checkpoints)

    @property
    def kernel_rows(self) -> int:
        """Rows in the kernels of all checkpoints: as many of the panel as of each checkpoint's own."""
        problems = min(self.problems, AuditConfig.kernel_problems)
        return problems * 2 * AuditConfig.kernel_responses * (self.checkpoints + 1)
