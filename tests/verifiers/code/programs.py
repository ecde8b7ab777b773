"""Programs in text files: each section has a name after ``####``. They are no modules, so that nothing imports them."""

from pathlib import Path

from oversharp.diagnostics.records.types import Problem
from oversharp.diagnostics.verifiers.code.fields import read_code_fields


def load_programs(name: str) -> dict[str, str]:
    """Return the programs of ``NAME.txt`` by the names of their sections."""
    sections = (Path(__file__).parent / f"{name}.txt").read_text(encoding="utf-8").split("#### ")[1:]
    programs = {title: code for title, _, code in (section.partition("\n") for section in sections)}
    assert len(programs) == len(sections)
    return programs


def code_problem(**fields: object) -> Problem:
    """Return the problem of a row."""
    read = read_code_fields({"prompt": "?", "verifier": "code", **fields})
    assert read is not None
    return Problem(
        task="t", prompt=read["prompt"], gold=read["answer"] or "?", verifier="code", meta={"code": read["code"]}
    )


def fenced(program: str) -> str:
    """Return a response with the program."""
    return f"```python\n{program}\n```"
