"""A store of TRL completions with tool calls: failed, invalid, parallel and very many."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from oversharp.diagnostics.app.cli import main

N_TURNS = 10_000
PROMPT, LONG_PROMPT = "How many lines has notes.txt?", "Walk the maze."
REASONING = "Perhaps a hidden thought."
HOSTILE = "<img src=x onerror=\"document.title='owned'\">"


def call(name: str, **arguments: str) -> dict[str, Any]:
    """Return a tool call in the form of TRL."""
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def model(content: str = "", *calls: dict[str, Any], reasoning: str | None = None) -> dict[str, Any]:
    """Return a message of the model."""
    return {"role": "assistant", "content": content, "tool_calls": list(calls) or None, "reasoning_content": reasoning}


def tool(name: str, content: str) -> dict[str, Any]:
    """Return an observation."""
    return {"role": "tool", "name": name, "content": content}


OPENING = (
    model("I list the files.", call("list_files", path="."), reasoning=REASONING),
    tool("list_files", f"notes.txt\nzebra.md {HOSTILE}"),
)
#: Step → completions of ``PROMPT`` with their reward. The first call is equal, the second is not.
SHORT = {
    1: [
        ([*OPENING, model("", call("count", path="notes.txt", code="x = 1\nprint(x)")), tool("count", "12"),
          model("It has 12 lines: \\boxed{12}")], 1.0),
        ([model("I say \\boxed{13}")], 0.0),
    ],
    2: [
        ([*OPENING, model("", call("count", path="zebra.md"), call("look", path="none")),
          tool("look", "{'error': 'no such file'}"), tool("count", "7"),
          model('I try <tool_call>\n{"name": "count", "arguments": {path}}\n</tool_call>'),
          model("It has 7 lines: \\boxed{7}")], 0.0),
        ([model("I say \\boxed{13}")], 0.0),
    ],
}  # fmt: skip


def long_walk(last: str, turn_of_needle: int) -> list[dict[str, Any]]:
    """Return a completion of ``N_TURNS`` turns."""
    messages = []
    for turn in range(1, N_TURNS):
        messages.append(model(f"I go on, {turn}.", call("go", path=f"{turn % 7}")))
        messages.append(tool("go", f"a room with a {'needle' if turn == turn_of_needle else 'door'}"))
    return [*messages, model(f"Out: \\boxed{{{last}}}")]


def write_agents(folder: Path, steps: dict[int, list[tuple[str, list[dict[str, Any]], float]]]) -> Path:
    """Write completions of TRL: step → (prompt, completion, reward), and import them. Returns the store."""
    for step, rows in steps.items():
        arguments = pa.struct([("path", pa.string()), ("code", pa.string())])
        function = pa.struct([("name", pa.string()), ("arguments", arguments)])
        tool_calls = pa.list_(pa.struct([("type", pa.string()), ("function", function)]))
        texts = [(name, pa.string()) for name in ("role", "content", "name", "reasoning_content")]
        message = pa.struct([*texts, ("tool_calls", tool_calls)])
        table = pa.table(
            {
                "step": pa.array([step] * len(rows), pa.int64()),
                "prompt": pa.array([prompt for prompt, _, _ in rows]),
                "completion": pa.array([completion for _, completion, _ in rows], pa.list_(message)),
                "reward": pa.array([reward for _, _, reward in rows]),
                "advantage": pa.array([0.0] * len(rows)),
            }
        )
        path = folder / "agent" / "completions" / f"completions_{step:05d}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(table, path)
    store = folder / "agents.duckdb"
    with pytest.raises(SystemExit) as ended:
        main(["import", str(folder / "agent"), "--store", str(store), "--reward", "reward", "--quiet"])
    assert ended.value.code == 0
    return store


def write_small_agents(folder: Path) -> Path:
    """Write a store with two problems: short trajectories, and one of ``N_TURNS`` turns."""
    walks = {1: (long_walk("1", 5_000), 1.0), 2: (long_walk("2", 0), 0.0)}
    return write_agents(
        folder,
        {
            step: [
                *((PROMPT, completion, reward) for completion, reward in SHORT[step]),
                *((LONG_PROMPT, *walks[step]) for _ in range(2)),
            ]
            for step in SHORT
        },
    )
