"""Client for a vLLM engine that runs in a separate process."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from oversharp.diagnostics.records.errors import SamplerError
from oversharp.diagnostics.records.memory import ONEDNN_CACHE_LIMIT
from oversharp.diagnostics.samplers.contract import EngineSettings
from oversharp.diagnostics.samplers.vllm_messages import (
    Abort,
    Adapter,
    AddAdapter,
    Answer,
    Draw,
    Drawn,
    Draws,
    EngineCall,
    Failed,
    Order,
    Reply,
    Start,
    Stop,
    WorkerCall,
)

WORKER_EXTENSION = "oversharp.diagnostics.samplers.vllm_worker.WorkerExtension"
#: Smallest ``max_num_batched_tokens``. Chunked prefill is disabled, because vLLM's CPU model runner fails on a seeded
#: request whose prefill is split.
LEAST_BATCHED_TOKENS = 16384
#: Tokens per block of the KV cache on a CPU. Responses to a prompt share only whole blocks, and most prompts are
#: shorter than vLLM's default of 128 tokens.
CPU_BLOCK_TOKENS = 32
#: Line of a log that contains an exception, with or without the prefix of vLLM's logger.
_EXCEPTION = re.compile(
    r"(?:(?:\([^()]*\) )?[A-Z]+ [-\d]+ [:\d]+ \[[^]]*\] )?(?P<line>(?:\w+\.)*[A-Z]\w*Error(?::.*)?)$"
)
#: Environment variables that configure torch's GPU memory allocator.
_ALLOCATOR_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
#: Seconds to wait for an engine's process to end.
_STOP_S = 10.0


class EngineLostError(Exception):
    """The engine's process ended or raised an error. The message is its last error.

    ``short_of_memory``: the process was killed or ran out of memory, so fewer concurrent responses may help.
    """

    def __init__(self, message: str, *, short_of_memory: bool) -> None:
        super().__init__(message)
        self.short_of_memory = short_of_memory


@dataclass(frozen=True, kw_only=True)
class EnginePlan:
    """Settings of an engine. They cannot change while it runs.

    Attributes:
        max_model_len: largest number of tokens of prompt and response together.
        row_tokens: number of tokens of the longest request. A probe may be longer.
        max_num_seqs: largest number of concurrent responses.
        max_lora_rank: largest rank of an adapter, 0 for no adapters.
        eager: whether compilation is disabled.
        threads: number of CPU threads, None for vLLM's default.
        token_bytes: bytes of the keys and values of one token, None if unknown.
    """

    model: Path
    dtype: str
    device: str
    max_model_len: int
    row_tokens: int
    max_num_seqs: int
    max_lora_rank: int
    eager: bool
    threads: int | None
    token_bytes: int | None
    settings: EngineSettings

    @property
    def on_cpu(self) -> bool:
        """Whether the engine computes without a GPU."""
        return self.device == "cpu"

    @property
    def sleeps(self) -> bool:
        """Whether the engine can release its GPU memory (vLLM's sleep mode).

        vLLM's memory pool does not support expandable segments of torch's allocator.
        """
        segments = any("expandable_segments:True" in os.environ.get(name, "") for name in _ALLOCATOR_VARIABLES)
        return not self.on_cpu and not segments

    @property
    def cache_bytes(self) -> int:
        """Size of the KV cache on a CPU, in bytes.

        The cache fits ``row_tokens`` tokens for each concurrent response, or ``max_model_len`` tokens for one response,
        but is at most the user's limit. It is not made larger, because vLLM first fills it with zeros, which takes
        seconds per GiB.
        """
        allowed = self.settings.cpu_cache_gib << 30
        if self.token_bytes is None:
            return allowed
        longest, asked = (-(-tokens // CPU_BLOCK_TOKENS) for tokens in (self.max_model_len, self.row_tokens))
        blocks = max(longest, self.max_num_seqs * asked) + 1  # vLLM reserves one block
        return min(allowed, blocks * CPU_BLOCK_TOKENS * self.token_bytes)

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of ``vllm.LLM``."""
        arguments: dict[str, Any] = {
            "model": str(self.model),
            "skip_tokenizer_init": True,
            "generation_config": "vllm",  # ignore the checkpoint's defaults, because only the audit's settings apply
            "dtype": self.dtype,
            "enforce_eager": self.eager,
            "max_model_len": self.max_model_len,
            "max_num_seqs": self.max_num_seqs,
            "max_num_batched_tokens": max(LEAST_BATCHED_TOKENS, self.max_model_len, self.max_num_seqs),
            "enable_chunked_prefill": False,
            "enable_prefix_caching": True,
            "gpu_memory_utilization": self.settings.gpu_memory_share,
            "tensor_parallel_size": self.settings.tensor_parallel,
            "logprobs_mode": "raw_logprobs",
            "max_logprobs": 1,
            "disable_log_stats": True,
            "worker_extension_cls": WORKER_EXTENSION,
        }
        if self.sleeps:
            arguments["enable_sleep_mode"] = True
        if self.on_cpu:
            arguments |= {"block_size": CPU_BLOCK_TOKENS, "kv_cache_memory_bytes": self.cache_bytes}
        if self.settings.trust_remote_code:
            from oversharp.diagnostics.models.files import needs_code

            arguments["trust_remote_code"] = needs_code(self.model)
        if self.max_lora_rank:
            arguments |= {
                "enable_lora": True,
                "max_lora_rank": self.max_lora_rank,
                "max_loras": 1,
                "max_cpu_loras": 2,
            }
        return arguments


def engine_environment(
    device: str | None, settings: EngineSettings, inherited: Mapping[str, str], *, dtype: str = "float32"
) -> dict[str, str]:
    """Return the environment variables of an engine's process.

    Variables that the user has set are kept.
    """
    defaults = {
        "HF_HUB_OFFLINE": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_USE_V2_MODEL_RUNNER": "0",  # the entropy hook does not support the V2 sampler
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine already has a separate process
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    }
    defaults |= dict((ONEDNN_CACHE_LIMIT,))
    if dtype == "float32":  # by default, GPU attention uses TF32, with errors of 3e-3 to 1.6e-2 nats
        defaults["TRITON_F32_DEFAULT"] = "ieee"
    # the child process must import modules from the same folders
    own = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return defaults | dict(inherited) | own | _visible_gpus(device, settings.tensor_parallel, inherited)


class EngineProcess:
    """Process of one engine. It imports vLLM while it waits for the ``Start`` order.

    ``send`` and ``receive`` raise ``EngineLostError`` if the process has ended or raised an error.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # closed together with the engine
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "oversharp.diagnostics.samplers.vllm_process",
                    str(theirs.fileno()),
                    str(os.getpid()),
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                env=environment,
                start_new_session=True,  # Ctrl-C must not reach the engine; this process handles it
            )
        self._connection = Connection(ours.detach())
        self._idle = True

    @property
    def process_id(self) -> int:
        """Process id, which is also the id of its process group."""
        return self._process.pid

    def send(self, order: Order) -> None:
        """Send an order to the engine's process."""
        self._idle = False
        try:
            self._connection.send(order)
        except OSError:  # the process ended; its last reply may not have been received yet
            raise self._ended_error(self._received_error()) from None

    def receive(self, timeout_s: float | None = None) -> Answer | Drawn | None:
        """Return the next reply, None if none arrives within ``timeout_s`` seconds."""
        try:
            if not self._connection.poll(timeout_s):
                return None
            reply: Reply = self._connection.recv()
        except (EOFError, OSError):
            raise self._ended_error() from None
        if isinstance(reply, Failed):
            raise self._ended_error(reply.error)
        return reply

    def close(self) -> None:
        """End the process and its children. Closing twice is allowed."""
        with contextlib.suppress(OSError):
            self._connection.send(Stop())
        self._connection.close()
        try:
            # before the first order there is no engine to shut down, and the process may still be importing vLLM
            self._process.wait(timeout=0.0 if self._idle else _STOP_S)
        except subprocess.TimeoutExpired:
            pass
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._log.close()

    def _ended_error(self, error: str | None = None) -> EngineLostError:
        """Return an error with the reason why the process ended, in one line."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=_STOP_S)
        code = self._process.returncode
        if error is None and code is not None and code < 0:
            return EngineLostError(f"killed by {signal.Signals(-code).name}", short_of_memory=True)
        if error is None:
            self._log.seek(0)
            error = _last_exception_line(self._log.read().decode(errors="replace")) or f"exit code {code}"
        line = _first_line(error)
        return EngineLostError(line, short_of_memory="memory" in error.lower())

    def _received_error(self) -> str | None:
        """Return the error in the process's pending replies, None if there is none."""
        with contextlib.suppress(EOFError, OSError):
            while self._connection.poll(0):
                reply: Reply = self._connection.recv()
                if isinstance(reply, Failed):
                    return reply.error
        return None


class VllmEngine:
    """A running engine.

    Each method raises ``EngineLostError`` if the process has ended or raised an error. While draws are unfinished, call
    only ``submit``, ``collect``, ``abort`` and ``close``.
    """

    def __init__(self, plan: EnginePlan, process: EngineProcess) -> None:
        """Build the engine in ``process``. If that fails, the process is closed."""
        self.plan = plan
        self._process = process
        try:
            self._ask(Start(arguments=plan.arguments(), threads=plan.threads, eager=plan.eager))
            if plan.on_cpu and plan.eager:
                self._ask(WorkerCall(method="oversharp_use_fused_norms"))
            if plan.on_cpu and plan.max_lora_rank:
                self._ask(WorkerCall(method="oversharp_replace_adapter_products"))
        except BaseException:
            self.close()
            raise

    @property
    def process_id(self) -> int:
        """Id of the engine's process, which is also the id of its process group."""
        return self._process.process_id

    def reload_weights(self, path: Path) -> None:
        """Load the weights in ``path`` into the running engine."""
        self._ask(WorkerCall(method="reload_weights", arguments={"weights_path": str(path)}))

    def repack_tied_heads(self) -> None:
        """Repack tied output heads. Needed after ``reload_weights`` (see ``WorkerExtension``)."""
        self._ask(WorkerCall(method="oversharp_repack_tied_heads"))

    def reset_prefix_cache(self) -> bool:
        """Drop the prefix cache, and return whether this succeeded.

        After ``reload_weights`` the prefix cache contains keys and values of the old weights.
        """
        return bool(self._ask(EngineCall(method="reset_prefix_cache")))

    def rest(self) -> None:
        """Release memory. All draws must be finished; call ``wake`` before the next draw.

        On a GPU the weights are moved to CPU memory and the KV cache is dropped. On a CPU only the KV cache is
        released; its memory is allocated again when it is used.
        """
        if self.plan.sleeps:
            self._ask(EngineCall(method="sleep", arguments={"level": 1}))
        elif self.plan.on_cpu and self.reset_prefix_cache():
            self._ask(WorkerCall(method="oversharp_empty_cache"))

    def wake(self) -> None:
        """Prepare the engine for draws after ``rest``."""
        if self.plan.sleeps:
            self._ask(EngineCall(method="wake_up"))

    def hook_entropy(self) -> None:
        """Install the entropy hook, so that draws may request entropies."""
        self._ask(WorkerCall(method="oversharp_hook_entropy"))

    def add_adapter(self, adapter: Adapter) -> None:
        """Load an adapter now, so that an invalid adapter raises here and not at its first draw."""
        self._ask(AddAdapter(adapter=adapter))

    def submit(self, *draws: Draw) -> None:
        """Queue draws. An idle engine starts all of them in one step."""
        self._process.send(Draws(draws=draws))

    def collect(self, *, timeout_s: float | None = None) -> Drawn | None:
        """Return the next finished draw, in order of completion.

        Returns None if none finishes within ``timeout_s`` seconds.
        """
        reply = self._process.receive(timeout_s)
        if isinstance(reply, Answer):
            raise TypeError(f"{reply} is not a draw")
        return reply

    def abort(self) -> None:
        """Drop unfinished draws. Draws that finished before may still be collected."""
        with contextlib.suppress(EngineLostError):
            self._process.send(Abort())

    def close(self) -> None:
        """End the process. Closing twice is allowed."""
        self._process.close()

    def _ask(self, order: Order) -> Any:
        self._process.send(order)
        while not isinstance(reply := self._process.receive(), Answer):
            pass  # skip draws that finished before an abort
        return reply.value


def _last_exception_line(log: str) -> str:
    """Return the line of the last exception in a log.

    If there is no exception, it is the log's last line.
    """
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    raised = filter(None, map(_EXCEPTION.match, reversed(lines)))
    return next((match["line"] for match in raised), lines[-1] if lines else "")


def _first_line(error: str) -> str:
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    if len(lines) > 1 and "validation error for" in lines[0]:  # the next line contains the cause
        return lines[1][:200]
    return lines[0][:200] if lines else "no reason given"


def _visible_gpus(device: str | None, tensor_parallel: int, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variable that makes ``device`` the first visible GPU.

    vLLM requires this.
    """
    kind, _, index = (device or "").partition(":")
    if kind == "cpu" or not index:
        return {}
    first = int(index)
    visible = inherited.get("CUDA_VISIBLE_DEVICES")
    names = [str(gpu) for gpu in range(first + tensor_parallel)] if visible is None else visible.split(",")
    if len(names) < first + tensor_parallel:
        raise SamplerError(
            f"--device {device} --tensor-parallel {tensor_parallel}: CUDA_VISIBLE_DEVICES={visible} has "
            f"{len(names)} GPUs; use --device cuda or fewer GPUs"
        )
    return {"CUDA_VISIBLE_DEVICES": ",".join(names[first : first + tensor_parallel])}
