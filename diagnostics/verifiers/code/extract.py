"""Extract the Python program from a response: from a fenced block, or from the continuation of a prompt."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from itertools import islice
from textwrap import dedent, indent

from oversharp.diagnostics.verifiers.code.task import CodeTask
from oversharp.diagnostics.verifiers.reading.responses import final_part

#: Longest program in characters. A longer response contains a loop of the model.
MAX_CHARACTERS = 1 << 17
_FENCE = re.compile(r"^[ \t]*(?P<mark>`{3,}|~{3,})[ \t]*(?P<language>[\w+-]*)[^\n`]*\n", re.MULTILINE)
#: Lines around the code in the prompts of MBPP.
_MARKER = re.compile(r"^[ \t]*\[(?P<word>BEGIN|DONE)\]", re.MULTILINE)
_PYTHON = frozenset({"python", "python3", "py", "py3"})
#: Number of places at which a completion may be truncated, from its end.
_MOST_CUTS = 64


def extract_program(task: CodeTask, text: str, *, prompt: str) -> str | None:
    r"""Return the program in a response; None if it contains none.

    Only the text after the model's thinking counts, and between MBPP's [BEGIN] and [DONE]. The program is the last
    fenced block that defines ``task.entry``, else the last block, else the response itself. Blocks with the language
    Python come before blocks without a language. A function's body alone continues ``task.prefix``. Text after a
    completion is left out: the longest start that is Python counts.

    >>> task = CodeTask(form="calls", entry="f", prefix="def f(x):\n")
    >>> extract_program(task, "Here:\n```python\ndef f(x):\n    return 1\n```\nIt returns 1.", prompt="")
    'def f(x):\n    return 1\n'
    >>> extract_program(task, "    return 1\nprint(f(1)", prompt="")
    'def f(x):\n    return 1\n'
    """
    final = final_part(text, prompt=prompt)
    if final.is_unfinished and not final.text.strip():
        return None
    answer = _between_markers(final.text)
    started = _before_closing_fence(task, answer)
    if started is not None:
        return started
    fenced = _choose_block(task, answer)
    content = answer if fenced is None else fenced
    if not content.strip() or len(content) > MAX_CHARACTERS:
        return None
    if task.prefix and not _defines(task.entry, content):
        return _continue_prompt(task.prefix, content) or task.prefix + content
    if fenced is None and task.entry and not _defines(task.entry, content):
        return None
    return dedent(content) if fenced is not None else _longest_python(content, start=0)


def _between_markers(text: str) -> str:
    """Return the text between the first markers of MBPP's prompts. The prompt may end with the first marker."""
    marker = _MARKER.search(text)
    if marker is not None and marker["word"] == "BEGIN":
        text = text[marker.end() :]
        marker = _MARKER.search(text)
    return text if marker is None else text[: marker.start()]


def _before_closing_fence(task: CodeTask, text: str) -> str | None:
    """Return the program before a fence that the prompt opened; None if the first fence opens a block."""
    fence = _FENCE.search(f"{text}\n")
    if fence is None or fence["language"] or fence.start() > MAX_CHARACTERS:
        return None
    content = text[: fence.start()]
    if task.entry and _defines(task.entry, content):
        return content if _is_python(content) else None
    if task.prefix and _is_indented(content):
        return _continue_prompt(task.prefix, content)
    return None


def _continue_prompt(prefix: str, content: str) -> str | None:
    """Return the prompt with a function's body, with another indentation if needed; None if it is not Python."""
    *_, last = [line for line in prefix.splitlines() if line.strip()] or [""]
    indentation = last[: len(last) - len(last.lstrip())] or "    "
    bodies = [content, content.expandtabs(4), indent(dedent(content.expandtabs(4)), indentation)]
    for body in bodies if _is_indented(content) else reversed(bodies):
        found = _longest_python(prefix + body, start=len(prefix))
        if found is not None and found[len(prefix) :].strip():
            return found
    return None


def _is_indented(content: str) -> bool:
    return content.lstrip("\r\n")[:1] in (" ", "\t")


def _choose_block(task: CodeTask, text: str) -> str | None:
    """Return the last block that defines the entry point, else the last block; None if there is none.

    Blocks in other languages do not count. Python blocks come before blocks without a language.
    """
    blocks = [(language, content) for language, content in _blocks(text) if language in _PYTHON or not language]
    python, plain = ([block for name, block in blocks if bool(name) == is_python] for is_python in (True, False))
    defining = [[block for block in group if _defines(task.entry, block)] for group in (python, plain)]
    return next((group[-1] for group in (*(defining if task.entry else ()), python, plain) if group), None)


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield the language and the content of each fenced block.

    A fence inside a docstring does not close a block, and a closing fence may follow the last line of code.
    """
    position = 0
    while (opening := _FENCE.search(text, position)) is not None:
        start = opening.end()
        closing = re.compile(rf"(?:^[ \t]*|(?<=[^\s`~])){opening['mark']}[ \t]*$", re.MULTILINE)
        closings = list(islice(closing.finditer(text, start), _MOST_CUTS))
        ends = (match for match in closings if _closes_block(text, start, match))
        # a truncated response does not close its block
        end = next(ends, next((match for match in closings if _begins_line(text, match)), None))
        content = text[start:] if end is None else text[start : end.start()]
        yield opening["language"].lower(), content
        position = len(text) if end is None else end.end()


def _closes_block(text: str, start: int, match: re.Match[str]) -> bool:
    content = text[start : match.start()]
    is_in_string = any(content.count(quotes) % 2 for quotes in ('"""', "'''"))
    return not is_in_string and (_begins_line(text, match) or _is_python(dedent(content)))


def _begins_line(text: str, match: re.Match[str]) -> bool:
    return match.start() == 0 or text[match.start() - 1] == "\n"


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
