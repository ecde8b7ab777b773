"""Write trajectories as each tool writes them. The readers are tested with these files.

The record of each tool has the fields that its source writes, see the modules in ``diagnostics/ingest/formats``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from oversharp.diagnostics.ingest.formats import (
    every_eval_ever,
    inspect_eval,
    mapped,
    nemo_gym,
    prime_rl,
    skyrl,
    trl_completions,
    verl,
)
from tests.ingest.formats.reading import write_lines


@dataclass(frozen=True, kw_only=True)
class MadeCall:
    """A call with its result; ``result`` is None without one."""

    id: str
    name: str
    arguments: dict[str, Any]
    result: str | None


@dataclass(frozen=True, kw_only=True)
class MadeTurn:
    """A turn of the model. ``order`` has the indices of the calls in the order of their results."""

    text: str
    calls: tuple[MadeCall, ...] = ()
    order: tuple[int, ...] = ()

    def results(self) -> Iterator[MadeCall]:
        for index in self.order:
            if self.calls[index].result is not None:
                yield self.calls[index]


Made = Sequence[MadeTurn]

WORDS = ("so", "add", "7", "né", "{", "}", '"', "\\", "\n", "\t", "…", "🙂", "null", "[1]", "<b>", "user", "assistant")
TAGS = ("</tool_call>", "<tool_call>", "</tool_response>", "<|im_end|>")


def _text(random: Random, words: Sequence[str] = WORDS, least: int = 0) -> str:
    return " ".join(random.choice(words) for _ in range(random.randint(least, 6))).strip()


def _value(random: Random, depth: int = 2) -> Any:
    kind = random.randrange(8 if depth else 6)
    match kind:
        case 0:
            return None
        case 1:
            return random.random() < 0.5
        case 2:
            return random.choice((0, -1, 7, 2**40, -(10**17)))
        case 3:
            return random.choice((0.5, -1e-9, 1e300))
        case 6:
            return [_value(random, depth - 1) for _ in range(random.randrange(3))]
        case 7:
            return {_text(random): _value(random, depth - 1) for _ in range(random.randrange(3))}
        case _:
            return _text(random, (*WORDS, *TAGS))


# ---------------------------------------------------------------- messages


def openai(made: Made, *, as_text: bool = True) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for turn in made:
        message: dict[str, Any] = {"role": "assistant", "content": turn.text or None}
        if turn.calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {
                    "name": call.name, "arguments": json.dumps(call.arguments) if as_text else call.arguments}}
                for call in turn.calls
            ]  # fmt: skip
        messages.append(message)
        messages += [{"role": "tool", "tool_call_id": call.id, "content": call.result} for call in turn.results()]
    return messages


def sharegpt(made: Made) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for turn in made:
        calls = [json.dumps({"name": call.name, "arguments": call.arguments}) for call in turn.calls]
        messages += [{"from": "function_call", "value": call} for call in calls]
        if not calls:
            messages.append({"from": "gpt", "value": turn.text})
        messages += [{"from": "observation", "value": call.result} for call in turn.results()]
    return messages


def anthropic(made: Made) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for turn in made:
        parts: list[dict[str, Any]] = [{"type": "text", "text": turn.text}] if turn.text else []
        parts += [
            {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments} for call in turn.calls
        ]
        messages.append({"role": "assistant", "content": parts})
        results = [
            {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": call.result}]}
            for call in turn.results()
        ]
        messages += [{"role": "user", "content": results}] if results else []
    return messages


def responses(made: Made) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    for number, turn in enumerate(made):
        if turn.text:
            content = [{"type": "output_text", "text": turn.text, "annotations": []}]
            items.append({"type": "message", "id": f"msg_{number}", "role": "assistant", "content": content})
        items += [
            {"type": "function_call", "id": f"fc_{call.id}", "call_id": call.id, "name": call.name,
             "arguments": json.dumps(call.arguments), "status": "completed"}
            for call in turn.calls
        ]  # fmt: skip
        items += [
            {"type": "function_call_output", "call_id": call.id, "output": call.result} for call in turn.results()
        ]
    return items


def transcript(made: Made, *, special: bool) -> str:
    """Join the turns as the template of Qwen 2.5, without special tokens unless ``special``."""
    start, end = ("<|im_start|>", "<|im_end|>") if special else ("", "")
    parts: list[str] = []
    for turn in made:
        calls = [
            json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False) for call in turn.calls
        ]
        parts.append(
            "\n".join([*([turn.text] if turn.text else []), *(f"<tool_call>\n{c}\n</tool_call>" for c in calls)])
        )
        results = [f"<tool_response>\n{call.result}\n</tool_response>" for call in turn.results()]
        if results:
            parts.append(f"{end}\n{start}user\n" + "\n".join(results) + f"{end}\n{start}assistant\n")
    return "".join(parts) + end


# ---------------------------------------------------------------- files


def _mapped_file(
    path: Path, made: Sequence[Made], form: Callable[[Made], list[dict[str, Any]]], user: dict[str, str]
) -> Path:
    return write_lines(path, *({"chat": [user, *form(one)], "ok": 1.0} for one in made))


ASKED = {"role": "user", "content": "2+2?"}
CHAT = {"messages": "chat", "reward": "ok"}


def _write_openai(folder: Path, made: Sequence[Made]) -> Path:
    return _mapped_file(folder / "any.jsonl", made, openai, ASKED)


def _write_objects(folder: Path, made: Sequence[Made]) -> Path:
    return write_lines(
        folder / "any.jsonl", *({"q": "2+2?", "out": openai(one, as_text=False), "ok": 1.0} for one in made)
    )


def _write_sharegpt(folder: Path, made: Sequence[Made]) -> Path:
    return _mapped_file(folder / "any.jsonl", made, sharegpt, {"from": "human", "value": "2+2?"})


def _write_anthropic(folder: Path, made: Sequence[Made]) -> Path:
    return _mapped_file(folder / "any.jsonl", made, anthropic, ASKED)


def _write_responses(folder: Path, made: Sequence[Made]) -> Path:
    return write_lines(folder / "any.jsonl", *({"q": "2+2?", "out": responses(one), "ok": 1.0} for one in made))


def _write_verl(folder: Path, made: Sequence[Made]) -> Path:
    lines = (
        {"input": "q", "output": transcript(one, special=False), "gts": "4", "score": 1.0, "step": 4} for one in made
    )
    return write_lines(folder / "4.jsonl", *lines)


def _write_skyrl(folder: Path, made: Sequence[Made]) -> Path:
    lines = (
        {"input_prompt": "q", "output_response": transcript(one, special=True) + "\n", "score": [0.0, 1.0],
         "stop_reason": "stop", "env_class": "calc", "env_extras": {}, "data_source": "calc"}
        for one in made
    )  # fmt: skip
    return write_lines(folder / "global_step_4_evals" / "calc.jsonl", *lines)


def _write_nemo_gym(folder: Path, made: Sequence[Made]) -> Path:
    asked = {"input": [{"role": "user", "content": "2+2?", "type": "message"}]}
    lines = (
        {"responses_create_params": asked, "response": {"output": responses(one), "status": "completed"}, "reward": 1.0}
        for one in made
    )
    return write_lines(folder / "step_4.jsonl", *lines)


def _write_prime_rl(folder: Path, made: Sequence[Made]) -> Path:
    def episode(one: Made) -> dict[str, Any]:
        nodes: list[dict[str, Any]] = [{"message": ASKED, "sampled": False, "token_ids": [1], "mask": [False]}]
        for message in openai(one):
            calls = [
                {"id": call["id"], "type": "function", **call["function"]} for call in message.get("tool_calls", ())
            ]
            kept = {name: value for name, value in message.items() if value is not None and name != "tool_calls"}
            sampled = message["role"] == "assistant"
            nodes.append(
                {
                    "parent": len(nodes) - 1,
                    "message": kept | ({"tool_calls": calls} if calls else {}),
                    "sampled": sampled,
                    "token_ids": [5, 6, 7],
                    "mask": [False, sampled, sampled],
                    "logprobs": [-0.5, -0.25] if sampled else [],
                }
            )
        call = {"sampling": {"temperature": 1.0}, "finish_reason": "stop"}
        return {
            "env": {"id": "calc"},
            "task": {"data": {"idx": 0}},
            "ok": True,
            "errors": [],
            "traces": [
                {
                    "agent": {"trainable": True},
                    "task": {"data": {"idx": 0, "answer": "4"}},
                    "nodes": nodes,
                    "ok": True,
                    "calls": [call],
                    "rewards": {"right": {"score": 1.0, "weight": 1.0}},
                    "errors": [],
                }
            ],
        }

    return write_lines(folder / "traces.jsonl", *map(episode, made))


def _write_inspect(folder: Path, made: Sequence[Made]) -> Path:
    def sample(epoch: int, one: Made) -> dict[str, Any]:
        messages: list[dict[str, Any]] = [
            {"id": "s", "role": "system", "content": "Add."}, {**ASKED, "id": "q", "source": "input"}]  # fmt: skip
        for number, message in enumerate(openai(one, as_text=False)):
            calls = [
                {"id": call["id"], "type": "function", "function": call["function"]["name"],
                 "arguments": call["function"]["arguments"]}
                for call in message.pop("tool_calls", ())
            ]  # fmt: skip
            source = {"source": "generate"} if message["role"] == "assistant" else {}
            messages.append({"id": f"{epoch}_{number}", **message, "content": message["content"] or "", **source}
                            | ({"tool_calls": calls} if calls else {}))  # fmt: skip
        last = next(message for message in reversed(messages) if message["role"] == "assistant")
        return {
            "id": "p", "epoch": epoch, "input": "2+2?", "target": "4", "messages": messages,
            "output": {"choices": [{"message": last, "stop_reason": "stop"}], "completion": last["content"]},
            "scores": {"match": {"value": "C", "answer": "4"}}, "attachments": {},
        }  # fmt: skip

    log = {
        "version": 2, "status": "success", "eval": {"model": "m/step_4", "scorers": [{"name": "match"}]},
        "samples": [sample(epoch, one) for epoch, one in enumerate(made, start=1)],
    }  # fmt: skip
    path = folder / "log.json"
    path.write_text(json.dumps(log))
    return path


def _write_every_eval_ever(folder: Path, made: Sequence[Made]) -> Path:
    def line(one: Made) -> dict[str, Any]:
        messages: list[dict[str, Any]] = [{"turn_idx": 0, **ASKED}]
        for message in openai(one, as_text=False):
            calls = [
                {
                    "id": call["id"],
                    "name": call["function"]["name"],
                    "arguments": texts_of(call["function"]["arguments"]) or None,
                }
                for call in message.pop("tool_calls", ())
            ]
            id = message.pop("tool_call_id", None)
            messages.append({"turn_idx": len(messages), **message, "tool_calls": calls, "tool_call_id": id and [id]})
        return {
            "schema_version": "0.3.0", "evaluation_id": "e", "sample_id": "p", "interaction_type": "agentic",
            "input": {"raw": "2+2?", "reference": ["4"]}, "output": None, "messages": messages,
            "evaluation": {"score": 1.0, "is_correct": True}, "metadata": {"step": "4"},
        }  # fmt: skip

    return write_lines(folder / "x_samples.jsonl", *map(line, made))


def texts_of(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return arguments as Every Eval Ever's converter writes them."""
    return {name: json.dumps(value) for name, value in arguments.items()}


def _write_trl(folder: Path, made: Sequence[Made]) -> Path:
    def message(row: dict[str, Any]) -> dict[str, Any]:
        calls = [{"type": "function", "function": call["function"]} for call in row.get("tool_calls", ())]
        named = {call["id"]: call["function"]["name"] for call in row.get("tool_calls", ())}
        names.update(named)
        name = names.get(row.get("tool_call_id", ""))
        return {"role": row["role"], "tool_calls": calls or None, "content": row["content"] or "", "name": name}

    rows = []
    for one in made:
        names: dict[str, str] = {}
        completion = [message(row) for row in openai(one, as_text=False)]
        rows.append({"step": 4, "prompt": [ASKED], "completion": completion, "right": 1.0, "advantage": 0.0})
    path = folder / "completions" / "completions_00004.parquet"
    path.parent.mkdir(parents=True)
    parquet.write_table(pa.Table.from_pylist(rows), path)
    return path


@dataclass(frozen=True, kw_only=True)
class Format:
    """A form of trajectories: its importer, its writer, and what the form cannot hold.

    ``typed``: the arguments of one name have one type. ``by_order``: results have the order of the calls.
    ``is_complete``: only the results of the last turn may be missing. ``without_text``: a turn with calls has no text.
    """

    importer: ModuleType
    write: Callable[[Path, Sequence[Made]], Path]
    fields: Mapping[str, str] | None = None
    typed: bool = False
    by_order: bool = False
    is_complete: bool = False
    without_text: bool = False
    arguments: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict


def make(random: Random, form: Format) -> Made:
    """Return a trajectory that the form can hold."""
    turns = []
    n_turns = random.randint(1, 5)
    for number in range(n_turns):
        n_calls = random.choice((1, 1, 1, 2, 3))
        is_last = number == n_turns - 1
        is_cut = is_last and random.random() < 0.2
        calls = []
        for index in range(n_calls):
            if form.typed:
                arguments: dict[str, Any] = {"a": random.randrange(9), "words": _text(random)}
                arguments = {name: arguments[name] for name in random.sample(sorted(arguments), random.randrange(3))}
            else:
                arguments = {_text(random) or "a": _value(random) for _ in range(random.randrange(4))}
            is_missing = is_cut or (not form.is_complete and random.random() < 0.1)
            result = None if is_missing else _text(random, least=1) or "."
            calls.append(
                MadeCall(
                    id=f"call_{number}_{index}",
                    name=random.choice(("add", "search", "a.b-c")),
                    arguments=arguments,
                    result=result,
                )
            )
        order = list(range(n_calls))
        if not form.by_order:
            random.shuffle(order)
        turns.append(MadeTurn(text=_text(random), calls=tuple(calls), order=tuple(order)))
    if not is_cut:
        turns.append(MadeTurn(text=_text(random, least=1) or "end"))
    return turns


FORMATS: Mapping[str, Format] = {
    "openai": Format(importer=mapped, write=_write_openai, fields=CHAT),
    "openai, objects": Format(
        importer=mapped, write=_write_objects, fields={"prompt": "q", "response": "out", "reward": "ok"}
    ),
    "sharegpt": Format(
        importer=mapped, write=_write_sharegpt, fields=CHAT, by_order=True, is_complete=True, without_text=True
    ),
    "anthropic": Format(importer=mapped, write=_write_anthropic, fields=CHAT),
    "responses": Format(
        importer=mapped,
        write=_write_responses,
        fields={"prompt": "q", "response": "out", "reward": "ok"},
        is_complete=True,
    ),
    "verl": Format(importer=verl, write=_write_verl, by_order=True, is_complete=True),
    "skyrl": Format(importer=skyrl, write=_write_skyrl, by_order=True, is_complete=True),
    "nemo_gym": Format(importer=nemo_gym, write=_write_nemo_gym, is_complete=True),
    "prime_rl": Format(importer=prime_rl, write=_write_prime_rl),
    "inspect": Format(importer=inspect_eval, write=_write_inspect),
    "every_eval_ever": Format(importer=every_eval_ever, write=_write_every_eval_ever, arguments=texts_of),
    "trl": Format(importer=trl_completions, write=_write_trl, typed=True, by_order=True, is_complete=True),
}
