"""Commands as pages show them: code blocks, and the commands of a shell block one by one."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

_BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_HERE_DOCUMENT = re.compile(r"<<'(\w+)'")


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and text of every code block of the page."""
    return _BLOCK.findall(page.read_text(encoding="utf-8"))


def commands(block: str) -> Iterator[str]:
    """The commands of a shell block, each with its here-document and the lines that it goes on in.

    >>> list(commands("ls a \\\\\\n  b\\ncat <<'END'\\nx\\nEND\\necho 'c\\nd'  # two lines\\n"))
    ['ls a \\\\\\n  b', "cat <<'END'\\nx\\nEND", "echo 'c\\nd'  # two lines"]
    """
    held: list[str] = []
    for line in block.splitlines():
        held.append(line)
        if _is_whole("\n".join(held)):
            yield "\n".join(held)
            held = []
    assert not held, f"a command that does not end: {held}"


def _is_whole(text: str) -> bool:
    if found := _HERE_DOCUMENT.search(text):
        return text.endswith(f"\n{found.group(1)}")
    try:
        shlex.split(text, comments=True)
    except ValueError:  # an open quotation
        return False
    return not text.endswith("\\")


def words(command: str) -> list[str]:
    """The words of a simple command, without its comment."""
    return shlex.split(command.replace("\\\n", " "), comments=True)
