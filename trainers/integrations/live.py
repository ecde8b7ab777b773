"""An audit beside the training: told of every saved checkpoint, it says when the run begins to over-sharpen.

    live = LiveAudit("runs/grpo", live_config("runs/grpo", {"base": "Qwen/Qwen3-0.6B", "problems": "held_out.jsonl"}))
    for found in live.saved(step=40):  # after every checkpoint; live.poll() now and then, live.finish() at the end
        logger.log(found.values, step=found.step)

``oversharp.trainers.integrations.callback`` and ``oversharp.trainers.integrations.verl_live`` do this in
transformers, TRL and verl.

Each audit is the command ``oversharp audit RUN_DIR …`` in a process of its own, on the same store, so that no sample is
drawn twice. One runs at a time; checkpoints saved meanwhile are all in the next one. An audit that has spent its budget
is ended: what it computed is in the store, and the next one continues. Nothing that happens to an audit stops the
training: it is said in one warning of the logger ``oversharp.live``, and what the audit printed is in ``live.log``.
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
#: Seconds that an audit has to end after its budget before it is ended from here.
_GRACE_S = 15.0
#: What a launcher tells its workers, and what would make the audit one of them.
_OF_A_LAUNCHER = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
_PREFIXES_OF_A_LAUNCHER = ("TORCHELASTIC_", "ACCELERATE_", "GROUP_", "ROLE_", "SLURM_", "OMPI_", "PMI_", "PMIX_")


@dataclass(frozen=True, kw_only=True)
class _Running:
    """An audit that was started: its process, the newest step it knows, where in the log it began, when it must end."""

    process: subprocess.Popen[bytes]
    step: int
    log_start: int
    deadline: float


class LiveAudit:
    """Audits a run directory while the run goes on. Not for several threads; in a distributed run for one process."""

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
        """Check everything that can be checked before the training; starts nothing.

        ``config`` is best made by ``live_config``. ``budget_s`` bounds each audit in seconds, also the wait for the
        last one. ``gpus`` are the audit's own, as in ``CUDA_VISIBLE_DEVICES``. ``wait``: let ``saved`` return when the
        audit has ended, so that the training stands still; by default where there is a GPU that both would share,
        which is where neither ``gpus`` nor ``config.device`` names the audit's. ``python`` is the interpreter of
        another environment that has oversharp, for trainers whose packages do not fit it.

        Raises:
            ConfigError: a setting that cannot work.
            ProblemError: problems that cannot be loaded; not looked for where ``python`` is another's.
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
        """The store that every audit continues."""
        return self.config.out / "audit.duckdb"

    @property
    def log_path(self) -> Path:
        """Where the audits print."""
        return self.config.out / "live.log"

    @property
    def process_id(self) -> int | None:
        """Of the audit that runs, if one does."""
        return None if self._running is None else self._running.process.pid

    def saved(self, step: int) -> list[LiveFindings]:
        """Tell of the checkpoint at ``step``, which is complete; what was found since the last call."""
        self._due.add(step)
        self._waiting = step
        found = self.poll()
        if self.wait and self._running is not None:
            found += self._ended(self._running.deadline + _GRACE_S, "it outlived its budget")
        return found

    def poll(self) -> list[LiveFindings]:
        """What was found since the last call. Starts the audit of checkpoints that waited for another one to end."""
        found: list[LiveFindings] = []
        if self._running is not None and self._running.process.poll() is not None:
            found = self._collect(self._running)
        if self._running is None and self._waiting is not None:
            self._start(self._waiting)
        return found

    def finish(self) -> list[LiveFindings]:
        """Wait for the audits that run or wait, ``budget_s`` seconds at the most; what was found since the last call.

        No process is left afterwards. What the budget did not suffice for is said, with the command that continues.
        """
        end = time.monotonic() + self.budget_s
        if self._due and self._running is None:
            self._waiting = max(self._due)  # the last audit did not end
        found = self.poll()
        while self._running is not None:
            deadline = min(end, self._running.deadline + _GRACE_S)
            found += self._ended(deadline, f"the training is over and {self.budget_s:g} s were waited (budget_s)")
            if self._waiting is not None and time.monotonic() < end:
                self._start(self._waiting)
        if self._due:
            steps = ", ".join(map(str, sorted(self._due)))
            self.warn(f"no findings on step {steps}; continue with: {shlex.join(['oversharp', *self._arguments])}")
        return found

    def warn(self, message: str) -> None:
        """Log one warning, and the same one never again."""
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
                        start_new_session=True,  # a group of its own, which ends as one
                    ),
                    step=step,
                    log_start=log.tell(),
                    deadline=time.monotonic() + self.budget_s,
                )
        except OSError as error:
            self.warn(f"cannot be started ({error}); the training goes on without it")

    def _ended(self, deadline: float, why: str) -> list[LiveFindings]:
        """What is found once the running audit has ended, which is no later than at ``deadline``."""
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
        _end_group(running.process.pid)  # what it started and left behind
        lines = self._said_since(running.log_start)
        if running.process.returncode not in (0, LEFT_OUT_EXIT_CODE):
            why = lines[-1].removeprefix("error: ") if lines else f"exit code {running.process.returncode}"
            self.warn(
                f"the audit up to step {running.step} did not finish: {why}. The training goes on, and the next audit "
                f"continues with what was computed. Log: {self.log_path}"
            )
            return []
        for line in lines:
            if line.startswith("warning: "):
                self.warn(line.removeprefix("warning: "))
        return self._findings(running.step)

    def _said_since(self, start: int) -> list[str]:
        with contextlib.suppress(OSError), self.log_path.open("rb") as log:
            log.seek(start)
            text = log.read().decode(errors="replace")
            return [line.strip() for line in text.splitlines() if line.strip()]
        return []

    def _findings(self, step: int) -> list[LiveFindings]:
        audited = sorted(due for due in self._due if due <= step)
        try:
            found = read_findings(self.store_path, self._series, audited)
        except OversharpError as error:
            self.warn(f"the findings up to step {step} cannot be read: {error}")
            return []
        self._due.difference_update(audited)  # those without findings were left out, and that was said
        if found:
            self._turn(found[-1].verdict)
        return found

    def _turn(self, verdict: Verdict | None) -> None:
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
    """What the audit inherits: nothing of the training's launcher, and the modules of this process if it is ``own``."""
    kept = {
        name: value
        for name, value in inherited.items()
        if name not in (*_OF_A_LAUNCHER, "PYTHONPATH") and not name.startswith(_PREFIXES_OF_A_LAUNCHER)
    }
    if own:
        kept["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    return kept if gpus is None else {**kept, "CUDA_VISIBLE_DEVICES": gpus}


def _end_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
