"""Extract the Python program from a response: from a fenced block, or from the continuation of a prompt."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from textwrap import dedent

from oversharp.diagnostics.verifiers.code.task import CodeTask
from oversharp.diagnostics.verifiers.reading.responses import final_part

#: Longest program in characters. A longer response contains a loop of the model.
MAX_CHARACTERS = 1 << 17
_FENCE = re.compile(r"^[ \t]*(?P<mark>`{3,}|~{3,})[ \t]*(?P<language>[\w+-]*)[^\n`]*\n", re.MULTILINE)
_PYTHON = frozenset({"python", "python3", "py", "py3"})
#: Number of places at which a completion may be truncated, from its end.
_MOST_CUTS = 64


def extract_program(task: CodeTask, text: str, *, prompt: str) -> str | None:
    r"""Return the program in a response; None if it contains none.

    Only the text after the model's thinking counts. The program is the last fenced block with the language Python, else
    the last one without a language, else the response itself. A function's body alone continues ``task.prefix``. Text
    after a completion is left out: the longest start that is Python counts.

    >>> task = CodeTask(form="calls", entry="f", prefix="def f(x):\n")
    >>> extract_program(task, "Here:\n```python\ndef f(x):\n    return 1\n```\nIt returns 1.", prompt="")
    'def f(x):\n    return 1\n'
    >>> extract_program(task, "    return 1\nprint(f(1)", prompt="")
    'def f(x):\n    return 1\n'
    """
    final = final_part(text, prompt=prompt)
    if final.is_unfinished and not final.text.strip():
        return None
    fenced = _last_block(final.text)
    content = final.text if fenced is None else fenced
    if not content.strip() or len(content) > MAX_CHARACTERS:
        return None
    if task.prefix and not _defines(task.entry, content):
        text = task.prefix + content
        return _longest_python(text, start=len(task.prefix)) or text
    if fenced is None and task.entry and not _defines(task.entry, content):
        return None
    return content if fenced is not None else _longest_python(content, start=0)


def _last_block(text: str) -> str | None:
    """Return the content of the last Python block, else of the last block without a language; None if neither."""
    python, plain = None, None
    position = 0
    while (opening := _FENCE.search(text, position)) is not None:
        closing = re.compile(rf"^[ \t]*{opening['mark']}[ \t]*$", re.MULTILINE).search(text, opening.end())
        end = len(text) if closing is None else closing.start()  # a truncated response does not close its block
        content, language = dedent(text[opening.end() : end]), opening["language"].lower()
        if language in _PYTHON:
            python = content
        elif not language:
            plain = content
        position = len(text) if closing is None else closing.end()
    return python if python is not None else plain


def _defines(entry: str, content: str) -> bool:
    name = re.escape(entry)
    definition = rf"^[ \t]*(?:async[ \t]+)?def[ \t]+{name}\b|^(?:class[ \t]+Solution\b|{name}[ \t]*[=:])"
    return not entry or re.search(definition, content, re.MULTILINE) is not None


def _longest_python(text: str, *, start: int) -> str | None:
    """Return the longest start of ``text`` that is Python and ends at a line break after ``start``; None if none is."""
    return next((text[:end] for end in _cuts(text, start) if _is_python(text[:end])), None)


def _cuts(text: str, start: int) -> Iterator[int]:
    """Yield the ends of the text's starts, longest first: the whole text, and each line that begins a statement."""
    yield len(text)
    starts = [match.start() for match in re.finditer(r"^[^\s#)\]}]", text, re.MULTILINE) if match.start() > start]
    yield from reversed(starts[-_MOST_CUTS:])
    yield from starts[: max(0, len(starts) - _MOST_CUTS)][:_MOST_CUTS][::-1]


def _is_python(text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
