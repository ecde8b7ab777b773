"""Process that runs vLLM.

It receives orders through a socket, and ends when its parent process ends. vLLM pins threads to cores, replaces
functions of torch and writes to the terminal. In a separate process this does not affect the audit.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
import traceback
import warnings
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Thread
from typing import Any, NoReturn

import numpy as np

from oversharp.diagnostics.samplers.vllm_messages import (
    WHILE_READING_WEIGHTS,
    Abort,
    Adapter,
    AddAdapter,
    Answer,
    Draw,
    Drawn,
    DrawnRow,
    Draws,
    EngineCall,
    Failed,
    Reply,
    Start,
    Stop,
    WorkerCall,
)


class Server:
    """Executes orders, and runs engine steps while draws are unfinished."""

    def __init__(self, connection: Connection, outbox: SimpleQueue[Reply | None]) -> None:
        self._connection = connection
        self._outbox = outbox
        self._llm: Any = None
        self._draws: dict[str, Draw] = {}
        self._inner_ids: dict[str, str] = {}  # vLLM's request ids, which abort needs

    def run(self) -> None:
        """Execute orders until a ``Stop`` order arrives or the parent process ends."""
        while True:
            # an idle engine waits for an order; a busy engine polls for orders between steps
            while not self._draws or self._connection.poll(0):
                try:
                    order = self._connection.recv()
                except EOFError:
                    return
                if isinstance(order, Stop):
                    return
                self._execute(order)
            self._step()

    def shut_down(self) -> None:
        """End the engine's child processes, if there are any. This takes about a second."""
        if self._llm is not None and self._llm.llm_engine.vllm_config.parallel_config.world_size > 1:
            self._llm.llm_engine.engine_core.shutdown()

    def _execute(self, order: Any) -> None:
        if isinstance(order, Draws):
            for draw in order.draws:
                self._add(draw)
        elif isinstance(order, Start):
            self._start(order)
            self._outbox.put(Answer(value=None))
        elif isinstance(order, EngineCall):
            self._outbox.put(Answer(value=getattr(self._llm, order.method)(**order.arguments)))
        elif isinstance(order, WorkerCall):
            self._outbox.put(Answer(value=self._llm.collective_rpc(order.method, kwargs=order.arguments)))
        elif isinstance(order, AddAdapter):
            self._outbox.put(Answer(value=self._llm.llm_engine.add_lora(_lora_request(order.adapter))))
        elif isinstance(order, Abort):
            self._llm.llm_engine.abort_request(list(self._inner_ids.values()), internal=True)
            self._draws, self._inner_ids = {}, {}

    def _start(self, order: Start) -> None:
        import torch
        from vllm import LLM

        if order.eager:
            os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # vLLM would compile a helper for 5 seconds
        if order.threads is not None and "OMP_NUM_THREADS" not in os.environ:
            os.environ["OMP_NUM_THREADS"] = str(order.threads)  # for vLLM's child processes
            torch.set_num_threads(order.threads)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._llm = LLM(**order.arguments)

    def _add(self, draw: Draw) -> None:
        from vllm import SamplingParams
        from vllm.inputs import TokensPrompt
        from vllm.sampling_params import RequestOutputKind

        parameters = SamplingParams(
            n=draw.n,
            seed=draw.seed,
            temperature=draw.temperature,
            top_p=draw.top_p,
            top_k=draw.top_k,
            max_tokens=draw.max_tokens,
            # stop_token_ids contains all end tokens, so vLLM must not add its own
            stop_token_ids=list(draw.end_ids),
            ignore_eos=True,
            logprobs=int(draw.entropy),
            flat_logprobs=True,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        outer_id = str(draw.ticket)
        self._inner_ids[outer_id] = self._llm.llm_engine.add_request(
            outer_id,
            TokensPrompt(prompt_token_ids=list(draw.prompt_ids)),
            parameters,
            lora_request=None if draw.adapter is None else _lora_request(draw.adapter),
        )
        self._draws[outer_id] = draw

    def _step(self) -> None:
        for output in self._llm.llm_engine.step():
            draw = self._draws.pop(output.request_id, None)
            if draw is not None:
                del self._inner_ids[output.request_id]
                rows = tuple(_make_row(completion, entropy=draw.entropy) for completion in output.outputs)
                self._outbox.put(Drawn(ticket=draw.ticket, rows=rows))


def _make_row(completion: Any, *, entropy: bool) -> DrawnRow:
    token_ids = tuple(map(int, completion.token_ids))
    logp_TC = np.array(completion.logprobs.logprobs, dtype=np.float32).reshape(len(token_ids), -1)
    return DrawnRow(token_ids=token_ids, logp_T=logp_TC[:, 0], entropy_T=-logp_TC[:, 1] if entropy else None)


def error_message(error: Exception) -> str:
    """Return an error's message, with a prefix if memory ran out while weights were loaded."""
    message = f"{type(error).__name__}: {error}"
    is_reading = any(frame.f_code.co_name == "load_model" for frame, _ in traceback.walk_tb(error.__traceback__))
    return f"{WHILE_READING_WEIGHTS}: {message}" if is_reading and "memory" in message.lower() else message


def _lora_request(adapter: Adapter) -> Any:
    from vllm.lora.request import LoRARequest

    return LoRARequest(f"adapter-{adapter.number}", adapter.number, str(adapter.path))


def _send_all(connection: Connection, outbox: SimpleQueue[Reply | None]) -> None:
    """Send replies to the parent process.

    Runs in a separate thread: if both processes sent at once, both could block forever.
    """
    while (reply := outbox.get()) is not None:
        try:
            connection.send(reply)
        except OSError:
            return


def _end_with(parent: int) -> None:
    """Kill this process group when the parent ends.

    The parent's other children may keep the socket open.
    """
    while os.getppid() == parent:
        time.sleep(0.5)
    os.killpg(os.getpgid(0), signal.SIGKILL)  # includes all vLLM workers


def _import_vllm() -> None:
    """Import vLLM before the first order, and exclude its objects from garbage collection."""
    gc.disable()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from vllm import LLM  # noqa: F401
    gc.freeze()
    gc.enable()


def main() -> NoReturn:
    """Execute orders until the end, then exit this process.

    ``argv[1]`` is the file descriptor of the socket, ``argv[2]`` the id of the parent process. The process exits
    without Python's cleanup, which would take seconds: vLLM collects garbage several times when its engine ends, and
    Python unloads the libraries.
    """
    connection = Connection(int(sys.argv[1]))
    Thread(target=_end_with, args=(int(sys.argv[2]),), daemon=True).start()
    outbox: SimpleQueue[Reply | None] = SimpleQueue()
    sender = Thread(target=_send_all, args=(connection, outbox), daemon=True)
    sender.start()
    server = Server(connection, outbox)
    try:
        _import_vllm()
        server.run()
    except Exception as error:
        outbox.put(Failed(error=error_message(error)))
        raise
    finally:
        outbox.put(None)
        sender.join(timeout=5.0)
        server.shut_down()
        os._exit(0)


if __name__ == "__main__":
    main()
