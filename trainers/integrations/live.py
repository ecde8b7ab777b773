"""Live audit: audit the checkpoints of a run during training, and report when it over-sharpens.

    live = LiveAudit("runs/grpo", live_config("runs/grpo", {"base": "Qwen/Qwen3-0.6B", "problems": "held_out.jsonl"}))
    for findings in live.audit_step(step=40):  # after every checkpoint; also live.poll(), and live.finish() at the end
        logger.log(findings.values, step=findings.step)

``oversharp.trainers.integrations.callback`` and ``oversharp.trainers.integrations.verl_live`` do this in
transformers, TRL and verl.

Each audit runs ``oversharp audit RUN_DIR …`` in a separate process. All audits use the same store, so no response is
sampled twice. One audit runs at a time, and the next covers all checkpoints that were saved in the meantime. An audit
that exceeds its budget is stopped, and the next continues from the store. A failed audit never stops the training: the
logger ``oversharp.live`` logs one warning, and the output of the audit is in ``live.log``.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from oversharp.diagnostics.audit.config import AuditConfig
from oversharp.diagnostics.records.errors import LEFT_OUT_EXIT_CODE, ConfigError, OversharpError
from oversharp.diagnostics.tasks import load_problems
from oversharp.diagnostics.verdict.record import Verdict
from oversharp.trainers.integrations.live_config import arguments
from oversharp.trainers.integrations.live_findings import LiveFindings, read_findings

logger = logging.getLogger("oversharp.live")

DEFAULT_BUDGET_S = 600.0
#: Seconds that an audit may run after its budget before it is killed.
_GRACE_S = 15.0
#: Environment variables of distributed launchers. They are removed from the environment of the audit.
_LAUNCHER_VARIABLES = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "NODE_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
)
_LAUNCHER_PREFIXES = ("TORCHELASTIC_", "ACCELERATE_", "GROUP_", "ROLE_", "SLURM_", "OMPI_", "PMI_", "PMIX_")


@dataclass(frozen=True, kw_only=True)
class _Running:
    """Running audit: its process, newest step, start of its output in the log, and deadline."""

    process: subprocess.Popen[bytes]
    step: int
    log_start: int
    deadline: float


class LiveAudit:
    """Audit a run directory during training.

    It is not thread-safe. In a distributed run, use it in one process only.
    """

    def __init__(
        self,
        run_dir: Path | str,
        config: AuditConfig,
        *,
        budget_s: float = DEFAULT_BUDGET_S,
        wait: bool | None = None,
        gpus: str | None = None,
        python: Path | str | None = None,
    ) -> None:
        """Check the settings before training, without starting an audit.

        Args:
            config: Settings, usually from ``live_config``.
            budget_s: Time limit of each audit in seconds, and of the wait for the last audit.
            wait: Block in ``audit_step`` until the audit ends, so that training pauses. By default true if audit and
                training share a GPU, because neither ``gpus`` nor ``config.device`` is given.
            gpus: GPUs of the audit, as in ``CUDA_VISIBLE_DEVICES``.
            python: Interpreter of another environment with oversharp, for trainers with incompatible packages.

        Raises:
            ConfigError: a setting is invalid.
            ProblemError: the problems cannot be loaded. This is not checked if ``python`` is given.
        """
        if not 0 < budget_s < math.inf:
            raise ConfigError(f"budget_s {budget_s}: must be a number of seconds above 0")
        interpreter = shutil.which(str(python or sys.executable))
        if interpreter is None:
            raise ConfigError(f"python {python}: no such interpreter; pass the bin/python of an environment")
        if python is None:
            load_problems(
                config.problems,
                config.task,
                limit=config.limit,
                seed=config.seed,
                verifier=config.verifier,
                limits=config.grader_limits,
                gold=config.gold,
                answer_in_thoughts=config.answer_in_thoughts,
            )
        self.config = config
        self.budget_s = float(budget_s)
        self.wait = _share_a_gpu(config, gpus) if wait is None else wait
        self._series = config.name or Path(run_dir).expanduser().resolve().name
        self._arguments = arguments(run_dir, config)
        self._interpreter = interpreter
        self._environment = _environment(os.environ, gpus, own=python is None)
        self._running: _Running | None = None
        self._waiting: int | None = None
        self._due: set[int] = set()
        self._label: str | None = None
        self._warned: set[str] = set()

    @property
    def store_path(self) -> Path:
        """Path of the store, which all audits use."""
        return self.config.out / "audit.duckdb"

    @property
    def log_path(self) -> Path:
        """Path of the file with the output of all audits."""
        return self.config.out / "live.log"

    @property
    def process_id(self) -> int | None:
        """Process id of the running audit; None if no audit is running."""
        return None if self._running is None else self._running.process.pid

    def audit_step(self, step: int) -> list[LiveFindings]:
        """Audit the checkpoint at ``step``, which must be complete. Return the findings since the last call."""
        self._due.add(step)
        self._waiting = step
        all_findings = self.poll()
        if self.wait and self._running is not None:
            all_findings += self._wait_and_collect(self._running.deadline + _GRACE_S, "it exceeded its budget")
        return all_findings

    def poll(self) -> list[LiveFindings]:
        """Return the findings since the last call. If no audit is running, start that of waiting checkpoints."""
        new_findings: list[LiveFindings] = []
        if self._running is not None and self._running.process.poll() is not None:
            new_findings = self._collect(self._running)
        if self._running is None and self._waiting is not None:
            self._start(self._waiting)
        return new_findings

    def finish(self) -> list[LiveFindings]:
        """Wait at most ``budget_s`` seconds for remaining audits, and return the findings since the last call.

        No audit is running afterwards. A warning lists checkpoints without an audit, with the command that audits them.
        """
        end = time.monotonic() + self.budget_s
        if self._due and self._running is None:
            self._waiting = max(self._due)  # the last audit did not finish
        all_findings = self.poll()
        while self._running is not None:
            deadline = min(end, self._running.deadline + _GRACE_S)
            all_findings += self._wait_and_collect(
                deadline, f"training ended and the wait of {self.budget_s:g} s (budget_s) is over"
            )
            if self._waiting is not None and time.monotonic() < end:
                self._start(self._waiting)
        if self._due:
            steps = ", ".join(map(str, sorted(self._due)))
            self.warn(f"no findings on step {steps}; continue with: {shlex.join(['oversharp', *self._arguments])}")
        return all_findings

    def warn(self, message: str) -> None:
        """Log a warning. Each distinct message is logged once."""
        if message not in self._warned:
            self._warned.add(message)
            logger.warning("live audit: %s", " ".join(message.split()))

    def _start(self, step: int) -> None:
        self._waiting = None
        process_module = "oversharp.trainers.integrations.live_process"
        command = [self._interpreter, "-P", "-m", process_module, str(os.getpid()), f"{self.budget_s:g}"]
        try:
            self.config.out.mkdir(parents=True, exist_ok=True)
            with self.log_path.open("ab") as log:
                log.write(f"\n# up to step {step}: {shlex.join(['oversharp', *self._arguments])}\n".encode())
                log.flush()
                self._running = _Running(
                    process=subprocess.Popen(
                        [*command, *self._arguments],
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        env=self._environment,
                        start_new_session=True,  # a separate process group, to kill all processes of the audit
                    ),
                    step=step,
                    log_start=log.tell(),
                    deadline=time.monotonic() + self.budget_s,
                )
        except OSError as error:
            self.warn(f"cannot be started ({error}); the training continues without it")

    def _wait_and_collect(self, deadline: float, why: str) -> list[LiveFindings]:
        """Wait until the running audit ends, and return its findings. At ``deadline``, kill it and log ``why``."""
        running = self._running
        assert running is not None
        try:
            running.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            _end_group(running.process.pid)
            running.process.wait()
            with contextlib.suppress(OSError), self.log_path.open("a", encoding="utf-8") as log:
                log.write(f"error: {why}\n")
        return self._collect(running)

    def _collect(self, running: _Running) -> list[LiveFindings]:
        self._running = None
        _end_group(running.process.pid)  # end processes that the audit left running
        lines = self._log_lines_since(running.log_start)
        if running.process.returncode not in (0, LEFT_OUT_EXIT_CODE):
            why = lines[-1].removeprefix("error: ") if lines else f"exit code {running.process.returncode}"
            self.warn(
                f"the audit up to step {running.step} did not finish: {why}. The training continues, and the next "
                f"audit resumes from the stored results. Log: {self.log_path}"
            )
            return []
        for line in lines:
            if line.startswith("warning: "):
                self.warn(line.removeprefix("warning: "))
        return self._findings(running.step)

    def _log_lines_since(self, start: int) -> list[str]:
        with contextlib.suppress(OSError), self.log_path.open("rb") as log:
            log.seek(start)
            text = log.read().decode(errors="replace")
            return [line.strip() for line in text.splitlines() if line.strip()]
        return []

    def _findings(self, step: int) -> list[LiveFindings]:
        audited = sorted(due for due in self._due if due <= step)
        try:
            findings = read_findings(self.store_path, self._series, audited)
        except OversharpError as error:
            self.warn(f"the findings up to step {step} cannot be read: {error}")
            return []
        self._due.difference_update(audited)  # the audit skips checkpoints that it cannot use, with a warning
        if findings:
            self._log_new_loss(findings[-1].verdict)
        return findings

    def _log_new_loss(self, verdict: Verdict | None) -> None:
        if verdict is None:
            return
        if verdict.positive and verdict.label != self._label:
            logger.warning("live audit: %s", verdict.sentence)
        self._label = verdict.label


def _share_a_gpu(config: AuditConfig, gpus: str | None) -> bool:
    if gpus is not None or config.device is not None:
        return False
    from torch import cuda

    return cuda.is_available()


def _environment(inherited: Mapping[str, str], gpus: str | None, *, own: bool) -> dict[str, str]:
    """Return the environment variables of the audit, without those of launchers.

    If ``own``, the audit imports modules from the same paths as this process.
    """
    kept = {
        name: value
        for name, value in inherited.items()
        if name not in (*_LAUNCHER_VARIABLES, "PYTHONPATH") and not name.startswith(_LAUNCHER_PREFIXES)
    }
    if own:
        kept["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    return kept if gpus is None else {**kept, "CUDA_VISIBLE_DEVICES": gpus}


def _end_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
