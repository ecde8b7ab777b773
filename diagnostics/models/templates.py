"""Render chat templates under limits of time, memory and output length.

Before this process renders a template for the first time, a separate process renders it once under limits
(``template_worker``). That takes a tenth of a second. A template can loop over the prompt, so another prompt may take
longer. Rendering in this process therefore has a time limit too.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oversharp.diagnostics.records.errors import SamplerError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

#: Time limits for rendering: CPU seconds in the separate process, and wakeups (one per second) of a timer thread in
#: this process.
MAX_CPU_S, MAX_TICKS = 5, 10
_MAX_WALL_S = 120.0
_MAX_MEMORY_BYTES = 1 << 30
#: A template may write at most ``_MAX_TIMES`` characters per character of its turns, plus ``_MAX_CHARACTERS``.
_MAX_TIMES, _MAX_CHARACTERS = 16, 1 << 20


class TemplateLimitError(SamplerError):
    """A chat template exceeds a limit of time, memory or output."""


def render_chat(tokenizer: PreTrainedTokenizerBase, turns: Sequence[dict[str, str]], more: Mapping[str, Any]) -> str:
    """Render ``turns`` with the tokenizer's chat template, ready for the assistant's answer.

    ``more`` are additional variables for the template. Raises ``TemplateLimitError`` if a limit is exceeded; the
    message contains the template's file. Errors of transformers and of the template are passed on.
    """
    n_given = sum(len(turn["content"]) for turn in turns)
    template = str(tokenizer.get_chat_template())
    variables = {
        **tokenizer.special_tokens_map, **more,
        "messages": list(turns), "tools": None, "documents": None, "add_generation_prompt": True,
    }  # fmt: skip
    fault = _find_fault(_TemplateInput(template, variables))
    if fault is None:
        try:
            with _WATCH.interrupting():
                written = str(
                    tokenizer.apply_chat_template(list(turns), tokenize=False, add_generation_prompt=True, **more)
                )
        except _EndlessError:
            fault = f"does not terminate within {MAX_TICKS} seconds"
        else:
            if len(written) <= _MAX_TIMES * n_given + _MAX_CHARACTERS:
                return written
            fault = f"writes {len(written):,} characters for a prompt of {n_given:,}"
    raise TemplateLimitError(
        f"--chat: {_place(tokenizer)}: the chat template {fault}; replace it with the template of the model's authors, "
        "or pass --no-chat and --prompt-template"
    )


def _place(tokenizer: PreTrainedTokenizerBase) -> str:
    folder = Path(str(tokenizer.name_or_path or "the tokenizer"))
    file = folder / "chat_template.jinja"
    return str(file if file.is_file() else folder)


# ---------------------------------------------------------------- first rendering, in a separate process


class _TemplateInput:
    """A template and its variables, as a cache key.

    Inputs that differ only in the turns' contents are equal.
    """

    def __init__(self, template: str, variables: Mapping[str, Any]) -> None:
        self.template, self.variables = template, variables
        others = {name: value for name, value in variables.items() if name != "messages"}
        roles = [turn["role"] for turn in variables["messages"]]
        self._identity = (template, json.dumps([roles, others], sort_keys=True, default=str))

    def __hash__(self) -> int:
        return hash(self._identity)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _TemplateInput) and self._identity == other._identity


@cache
def _find_fault(given: _TemplateInput) -> str | None:
    """Return which limit the template exceeds, or None.

    None also means that it fails for another reason.
    """
    job = {
        "template": given.template,
        "variables": given.variables,
        "memory_bytes": _MAX_MEMORY_BYTES,
        "cpu_s": MAX_CPU_S,
    }
    worker = Path(__file__).with_name("template_worker.py")
    try:
        ended = subprocess.run(
            [sys.executable, "-P", str(worker)],
            input=json.dumps(job, default=str).encode(),
            capture_output=True,
            timeout=_MAX_WALL_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"does not terminate within {_MAX_WALL_S:.0f} seconds"
    output = ended.stdout.decode(errors="replace").strip()
    if output == "memory":
        return f"needs more than {_MAX_MEMORY_BYTES >> 30} GiB of memory"
    if ended.returncode < 0:  # the system killed it at the limit of CPU time
        return f"does not terminate within {MAX_CPU_S} CPU seconds"
    n_given = sum(len(turn["content"]) for turn in given.variables["messages"])
    if output.isdecimal() and int(output) > _MAX_TIMES * n_given + _MAX_CHARACTERS:
        return f"writes {int(output):,} characters for a prompt of {n_given:,}"
    return None


# ---------------------------------------------------------------- each further rendering, in this process


class _EndlessError(BaseException):
    """A template takes too long.

    A ``BaseException``, so that ``except Exception`` does not catch it.
    """


class _Watch:
    """Timer thread that interrupts a rendering after ``MAX_TICKS`` wakeups, one per second.

    It counts wakeups instead of seconds, because a suspended process must not be interrupted when it resumes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ticks: dict[int, int] = {}  # by rendering thread
        self._thread: threading.Thread | None = None

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Raise ``_EndlessError`` inside the block when it takes too long."""
        own = threading.get_ident()
        with self._lock:
            self._ticks[own] = 0
            if self._thread is None or not self._thread.is_alive():  # not started, or this process was forked
                self._thread = threading.Thread(target=self._run, name="chat templates", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                self._ticks.pop(own, None)

    def _run(self) -> None:
        while True:
            time.sleep(1.0)
            with self._lock:
                for thread in self._ticks:
                    self._ticks[thread] += 1
                    if self._ticks[thread] == MAX_TICKS:
                        ctypes.pythonapi.PyThreadState_SetAsyncExc(
                            ctypes.c_ulong(thread), ctypes.py_object(_EndlessError)
                        )


_WATCH = _Watch()
