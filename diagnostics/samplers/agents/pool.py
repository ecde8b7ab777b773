"""Processes of an environment, shared by concurrent trajectories.

A process has instances of several trajectories, and runs one call at a time. A call that cannot be interrupted, or that
ends its process, takes the instances of other trajectories with it. Those raise ``LostInstanceError``. They are
repeated, each alone in a process.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Any

from oversharp.diagnostics.records.errors import SamplerError
from oversharp.diagnostics.samplers.agents.environment import FLAG, Environment
from oversharp.diagnostics.samplers.agents.process import EnvironmentProcess
from oversharp.diagnostics.trajectories.record import Call
from oversharp.diagnostics.verifiers.killable import Outcome
from oversharp.diagnostics.verifiers.own_workers.round import Reward


class LostInstanceError(Exception):
    """The process ended in a call of another trajectory."""


class _HostThread:
    """A process and the thread that waits for it. ``generation`` counts its starts."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._process = EnvironmentProcess(environment.task, environment.limits)
        self._thread = ThreadPoolExecutor(1, "oversharp-environment")  # the process ends with its thread
        self.generation = 0
        self.n_instances = 0

    async def ask(self, request: Mapping[str, Any], generation: int | None = None) -> tuple[Mapping[str, Any], int]:
        """Return the reply to a request and the generation that answered.

        Raises ``LostInstanceError`` if ``generation``, that of the instance, has ended.
        """
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._ask, request, generation)

    def drop(self, number: int, generation: int) -> None:
        """Forget an instance, without waiting. After ``close`` there is none."""
        with suppress(RuntimeError):  # the thread has ended
            self._thread.submit(self._drop, number, generation)

    def close(self) -> None:
        """End process and thread, and the request that is running."""
        self._process.is_interrupted = True
        self._thread.submit(self._process.end)
        self._thread.shutdown(cancel_futures=False)

    def _ask(self, request: Mapping[str, Any], generation: int | None) -> tuple[Mapping[str, Any], int]:
        if generation is not None and (generation != self.generation or not self._process.is_running):
            raise LostInstanceError
        if not self._process.is_running:
            self.generation += 1
            loaded = self._process.start()
            if "fault" in loaded:
                self._process.end()
                raise SamplerError(
                    f"{FLAG} {self._environment.given}: {loaded['fault']}, although it was loaded before"
                )
        return self._process.ask(request), self.generation

    def _drop(self, number: int, generation: int) -> None:
        if generation == self.generation and self._process.is_running:
            self._process.ask({"do": "drop", "instance": number})


class Instance:
    """An instance of the environment for one trajectory. After a fault that lost it, calls return that fault."""

    def __init__(self, environment: Environment, host: _HostThread, number: int) -> None:
        self._environment, self._host, self._number = environment, host, number
        self.generation: int | None = None
        self._lost: Mapping[str, Any] | None = None

    async def reset(self, fields: Mapping[str, Any]) -> str:
        """Start, and return the text to append to the prompt. Raises ``SamplerError`` if ``reset`` fails."""
        reply = await self._ask({"do": "reset", "fields": fields})
        if "fault" in reply:
            raise SamplerError(
                f"{FLAG} {self._environment.given}: reset fails for the problem {str(fields['prompt'])[:80]!r} "
                f"({reply['fault']}); correct it, and run the same command again"
            )
        return str(reply["text"])

    async def call(self, call: Call, arguments: object) -> tuple[str, bool]:
        """Run a tool call. Returns the observation, and whether the call failed. ``arguments`` is parsed JSON."""
        if not call.is_valid or not isinstance(arguments, dict):
            return "error: the call is not a name and a JSON object of arguments", True
        if call.name not in self._environment.tool_names:
            return f"error: no tool {call.name!r}; the tools are {', '.join(self._environment.tool_names)}", True
        reply = await self._ask({"do": "call", "name": call.name, "arguments": arguments})
        return (f"error: {reply['fault']}", True) if "fault" in reply else (str(reply["text"]), False)

    async def reward(self) -> Outcome[Reward]:
        """Return the reward, or why there is none."""
        reply = await self._ask({"do": "reward"})
        if "fault" in reply:
            return Outcome(value=None, state="timeout" if reply.get("is_late") else "error", reason=reply["fault"])
        return Outcome(value=(float(reply["reward"]), reply["answer"]), state="ok")

    async def _ask(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._lost is not None:
            return self._lost
        reply, self.generation = await self._host.ask({**request, "instance": self._number}, self.generation)
        if reply.get("has_ended"):
            self._lost = reply
        return reply


class EnvironmentPool:
    """At most ``limits.workers`` processes, at most one per CPU core. They start when a trajectory needs them."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.n_processes = min(environment.limits.workers, len(os.sched_getaffinity(0)))
        self._hosts: list[_HostThread] = []
        self._numbers = itertools.count()

    @asynccontextmanager
    async def open(self, *, is_alone: bool = False) -> AsyncIterator[Instance]:
        """Yield an instance that was not reset, with ``is_alone`` alone in a process."""
        if is_alone or len(self._hosts) < self.n_processes:
            host = _HostThread(self.environment)
            if not is_alone:
                self._hosts.append(host)
        else:
            host = min(self._hosts, key=lambda one: one.n_instances)
        number = next(self._numbers)
        instance = Instance(self.environment, host, number)
        host.n_instances += 1
        try:
            yield instance
        finally:
            host.n_instances -= 1
            if is_alone:
                await asyncio.get_running_loop().run_in_executor(None, host.close)
            elif instance.generation is not None:
                host.drop(number, instance.generation)

    def close(self) -> None:
        """End the processes. Closing twice is allowed."""
        for host in self._hosts:
            host.close()
        self._hosts.clear()
