"""Render chat templates under limits of time, memory and output.

Before a template is rendered in this process, another process renders it once under limits (``template_worker``), which
takes a tenth of a second. A loop over a prompt may take longer for another prompt, so this process has a time limit
too.
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

#: Limits of a template, in CPU seconds and in wakeups of one second each.
MAX_CPU_S, MAX_TICKS = 5, 10
_MAX_WALL_S = 120.0
_MAX_MEMORY_BYTES = 1 << 30
#: Limit on the characters that a template may write: per character of its turns, and in addition.
_MAX_TIMES, _MAX_CHARACTERS = 16, 1 << 20


class TemplateLimitError(SamplerError):
    """A chat template exceeds a limit of time, memory or output."""


def render_chat(tokenizer: PreTrainedTokenizerBase, turns: Sequence[dict[str, str]], more: Mapping[str, Any]) -> str:
    """Render ``turns`` in the tokenizer's chat template, up to the start of the answer.

    ``more`` are further variables of the template. Raises ``TemplateLimitError`` in one line with the template's file,
    and the errors of transformers and the template.
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
            fault = f"does not end within {MAX_TICKS} seconds"
        else:
            if len(written) <= _MAX_TIMES * n_given + _MAX_CHARACTERS:
                return written
            fault = f"writes {len(written):,} characters for a prompt of {n_given:,}"
    raise TemplateLimitError(
        f"--chat: {_place(tokenizer)}: the chat template {fault}; replace it with that of the model's authors, or pass "
        "--no-chat and --prompt-template instead"
    )


def _place(tokenizer: PreTrainedTokenizerBase) -> str:
    folder = Path(str(tokenizer.name_or_path or "the tokenizer"))
    file = folder / "chat_template.jinja"
    return str(file if file.is_file() else folder)


# ---------------------------------------------------------------- once in another process


class _TemplateInput:
    """A template and its variables; inputs that differ only in the turns' contents are equal."""

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
    """Return why the template exceeds the limits, None if it does not or fails for other reasons."""
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
        return f"does not end within {_MAX_WALL_S:.0f} seconds"
    output = ended.stdout.decode(errors="replace").strip()
    if output == "memory":
        return f"takes more than {_MAX_MEMORY_BYTES >> 30} GiB of memory"
    if ended.returncode < 0:  # killed by the signal of its limit
        return f"does not end within {MAX_CPU_S} seconds of computing"
    n_given = sum(len(turn["content"]) for turn in given.variables["messages"])
    if output.isdecimal() and int(output) > _MAX_TIMES * n_given + _MAX_CHARACTERS:
        return f"writes {int(output):,} characters for a prompt of {n_given:,}"
    return None


# ---------------------------------------------------------------- each time in this process


class _EndlessError(BaseException):
    """Raised in a template that takes too long; ``except Exception`` must not catch it."""


class _Watch:
    """Interrupt the thread that renders a template for ``MAX_TICKS`` wakeups in a row.

    Counts wakeups, not seconds, so that a process that was suspended is not interrupted.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ticks: dict[int, int] = {}  # by rendering thread
        self._thread: threading.Thread | None = None

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Raise ``_EndlessError`` inside the block once it takes too long."""
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
