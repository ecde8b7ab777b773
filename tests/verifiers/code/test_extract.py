"""Programs are found in the forms in which models write them."""

import time
from typing import Any

import pytest

from oversharp.diagnostics.verifiers.code.extract import extract_program
from oversharp.diagnostics.verifiers.code.task import CodeTask

PREFIX = 'def f(n):\n    """Add one."""\n'
COMPLETION = CodeTask(form="script", entry="f", prefix=PREFIX)
FUNCTION = CodeTask(form="script", entry="f")
SCRIPT = CodeTask(form="stdio")
DEFINED = "def f(n):\n    return n + 1\n"
FENCE = "`" * 3
WITH_EXAMPLE = f'def f(n):\n    """Add one.\n\n    {FENCE}\n    f(1)\n    {FENCE}\n    """\n    return n + 1\n'


def result_of(program: str | None) -> Any:
    """Run a program of this file, and return f(1)."""
    assert program is not None
    space: dict[str, Any] = {}
    exec(program, space)
    return space["f"](1)


@pytest.mark.parametrize(
    ("task", "text"),
    [
        (COMPLETION, f"    return n + 1\n{FENCE}\n\nExplain"),
        (COMPLETION, f"    return n + 1\n{FENCE}\n\nBetter:\n{FENCE}python\ndef f(n):\n    return 0\n{FENCE}\n"),
        (COMPLETION, f"\n    return n + 1\n{FENCE}"),
        (COMPLETION, f"{FENCE}python\n    m = n\n    return m + 1\n{FENCE}"),
        (COMPLETION, f"Sure:\n{FENCE}\nm = n\nreturn m + 1\n{FENCE}"),
        (COMPLETION, "\tm = n\n\treturn m + 1\n"),
        (COMPLETION, f"{FENCE}python\n\tif n:\n\t\treturn n + 1\n{FENCE}\nThat is all."),
        (COMPLETION, "    return n + 1\n\nThis returns the next one."),
        (FUNCTION, f"{FENCE}python\n{DEFINED.rstrip()}{FENCE}\nIt adds one."),
        (FUNCTION, f"{DEFINED}{FENCE}\nIt adds one."),
        (FUNCTION, f"[BEGIN]\n{DEFINED}[DONE]\n\nNext task:\n[BEGIN]\ndef f(n): return 0\n[DONE]"),
        (FUNCTION, f"{DEFINED}[DONE]\nYou are an expert."),
        (FUNCTION, f"[BEGIN]\n{FENCE}python\n{DEFINED}{FENCE}\n[DONE]"),
        (FUNCTION, f"Here:\n{FENCE}python\n{WITH_EXAMPLE}{FENCE}\nDone."),
        (FUNCTION, f"{FENCE}python\n{DEFINED}{FENCE}\nUse it:\n{FENCE}python\nprint(f(1))\n{FENCE}\n"),
        (FUNCTION, f"{FENCE}\n{DEFINED}{FENCE}\nUse it:\n{FENCE}python\nprint(f(1))\n{FENCE}\n"),
        (FUNCTION, f"{FENCE}python\ndef f(n): return 0\n{FENCE}\nNo:\n{FENCE}python\n{DEFINED}{FENCE}\n"),
        (FUNCTION, f"1. Add:\n   {FENCE}python\n   def f(n):\n       return n + 1\n   {FENCE}\n"),
        (FUNCTION, f"{FENCE}python\n{DEFINED}"),
    ],
)
def test_a_right_program_is_found(task: CodeTask, text: str) -> None:
    assert result_of(extract_program(task, text, prompt="")) == 2


@pytest.mark.parametrize(
    ("text", "program"),
    [
        (f"{FENCE}python\nprint(1)\n{FENCE}\nor\n{FENCE}python\nprint(2)\n{FENCE}\n", "print(2)\n"),
        (f"{FENCE}python\nprint(1)\n{FENCE}\nOutput:\n{FENCE}\n1\n{FENCE}\n", "print(1)\n"),
        (f"{FENCE}python\nprint(1{FENCE}\n", None),
        (f"{FENCE}python\nprint(\n{FENCE}\nNo.", "print(\n"),
        (f"{FENCE}bash\nls\n{FENCE}\n", None),
    ],
)
def test_without_an_entry_point_the_last_block_counts(text: str, program: str | None) -> None:
    found = extract_program(SCRIPT, text, prompt="")
    assert found == program if program is not None else found is None or found.startswith("print(1")


def test_prose_does_not_continue_the_prompt() -> None:
    program = extract_program(COMPLETION, "I cannot write that.", prompt="")
    assert program is not None
    with pytest.raises(SyntaxError):
        compile(program, "program.py", "exec")


@pytest.mark.parametrize("block", [f"{FENCE}\nfoo bar\n{FENCE}\n", f"{FENCE}\nfoo bar x{FENCE}\n"])
def test_a_response_of_thousands_of_blocks_is_read_in_linear_time(block: str) -> None:
    start = time.process_time()
    extract_program(COMPLETION, block * 4000, prompt="")
    assert time.process_time() - start < 2.0
