"""Client of SandboxFusion, a server that runs scripts in a sandbox.

Source: github.com/bytedance/SandboxFusion, ``POST /run_code`` of ``sandbox/server/sandbox_api.py``.
"""

from __future__ import annotations

import inspect
import json
import time
import urllib.error
import urllib.request
from functools import cache
from http.client import HTTPException
from typing import Any

from oversharp.diagnostics.verifiers.sandbox import guest, replay, wire
from oversharp.diagnostics.verifiers.sandbox.jail import JailLimits, SandboxError

SANDBOX_FUSION = "sandboxfusion"
#: Number of requests for one script. The server may restart, or be busy.
TRIES = 4
_FIRST_WAIT_S = 0.5
#: Largest reply: the program's output on both streams, as JSON.
_MOST_BYTES = 16 * wire.MOST_BYTES
#: Wall seconds that the server may need in addition to the program.
_OVERHEAD_S = 30.0
# a proxy must not get the programs
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class SandboxServer:
    """A SandboxFusion server at ``url``, such as http://localhost:8080. Threads may share it."""

    def __init__(self, url: str, limits: JailLimits) -> None:
        self.limits = limits
        self._address = f"{url.rstrip('/')}/run_code"

    def run(self, code: str, standard_input: str, limit_s: float, *, is_program: bool = False) -> str:
        """Return the output of a Python script.

        Raises ``CandidateError`` if it is late or prints too much, ``SandboxError`` if the server does not run it, and
        with ``is_program`` ``Raised`` if its exit code is not 0.
        """
        request = {
            "language": "python",
            "code": code,
            "stdin": standard_input,
            "run_timeout": limit_s,
            "compile_timeout": limit_s,
            "memory_limit_MB": self.limits.memory_bytes >> 20,
        }
        wait_s, fault = _FIRST_WAIT_S, ""
        for attempt in range(TRIES):
            if attempt:
                time.sleep(wait_s)
                wait_s *= 2
            try:
                return _read_output(self._post(request, limit_s + _OVERHEAD_S), is_program)
            except urllib.error.HTTPError as error:
                fault = f"status {error.code}"
                error.close()
                if error.code < 500 and error.code != 429:
                    break
            except (OSError, HTTPException, ValueError) as error:
                fault = " ".join(str(error).split())[:200] or type(error).__name__
        raise SandboxError(f"{self._address}: {fault}")

    def _post(self, request: object, limit_s: float) -> Any:
        content = json.dumps(request).encode()
        sent = urllib.request.Request(self._address, content, {"Content-Type": "application/json"})
        late_at = time.monotonic() + limit_s
        parts, n_bytes = list[bytes](), 0
        with _OPENER.open(sent, timeout=limit_s) as reply:
            while part := reply.read1(1 << 16):
                parts.append(part)
                n_bytes += len(part)
                if n_bytes > _MOST_BYTES or time.monotonic() > late_at:
                    raise ValueError("its reply is too long or too slow")
        return json.loads(b"".join(parts))


def _read_output(reply: Any, is_program: bool) -> str:
    """Return the output in a reply. Raises ``ValueError`` if the server did not run the script."""
    result = reply.get("run_result") if isinstance(reply, dict) else None
    if not isinstance(result, dict) or reply.get("status") not in ("Success", "Failed"):
        message = str(reply.get("message", "")) if isinstance(reply, dict) else ""
        raise ValueError(f"the server did not run the script {message[:100]}".rstrip())
    if result.get("status") == "TimeLimitExceeded":
        raise wire.CandidateError(wire.LATE)
    printed = result.get("stdout")
    if result.get("status") != "Finished" or not isinstance(printed, str):
        raise ValueError(f"the server replied with status {str(result.get('status'))[:40]!r} and no output")
    if len(printed) > wire.MOST_BYTES:
        raise wire.CandidateError("its output exceeds 1 MiB")
    if is_program and result.get("return_code"):
        *_, last = ["", *str(result.get("stderr") or "").strip().splitlines()]
        kind, _, text = last.partition(": ")
        raise wire.Raised(kind or f"exit code {result['return_code']}", text)
    return printed


@cache
def replay_code() -> str:
    """Return the script that runs a job of ``replay``: it contains the modules, so the server needs no oversharp."""
    sources = [(module.__name__, inspect.getsource(module)) for module in (wire, guest, replay)]
    return (
        f"import sys\nfor name, source in {sources!r}:\n    module = sys.modules[name] = type(sys)(name)\n"
        "    exec(compile(source, name, 'exec'), module.__dict__)\nmodule.main()\n"
    )
