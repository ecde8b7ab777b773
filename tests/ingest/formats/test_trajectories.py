"""Trajectories of every format: each call and observation is read, and each result belongs to its call."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.ingest.formats import every_eval_ever, inspect_eval, mapped, nemo_gym, prime_rl, skyrl, verl
from oversharp.diagnostics.ingest.formats.contract import Fault, Recorded
from oversharp.diagnostics.ingest.ingest import import_samples
from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.trajectories.record import Turn, Turns, model_text, trajectory_id
from tests.ingest.formats.reading import reader, samples, write_lines
from tests.ingest.formats.trajectory_writers import ASKED, CHAT, FORMATS, Format, Made, MadeCall, MadeTurn, make, openai

SEED = 20
N_CALLS = 10_000

Called = tuple[str, Any, str | None]


def written(made: Made, form: Format) -> list[tuple[str, list[Called]]]:
    """The turns of the model that a reader must find: text, and calls with their results."""
    return [
        (
            "" if form.without_text and turn.calls else turn.text,
            [(call.name, form.arguments(call.arguments), call.result) for call in turn.calls],
        )
        for turn in made
    ]


def found(turns: Turns) -> list[tuple[str, list[Called]]]:
    return [
        (
            turn.text.strip(),
            [
                (call.name, json.loads(call.arguments), None if call.result is None else turns[call.result].text)
                for call in turn.calls
            ],
        )
        for turn in turns
        if turn.role == "assistant"
    ]


def n_calls(made: Made) -> int:
    return sum(len(turn.calls) for turn in made)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_no_call_is_lost_or_merged(tmp_path: Path, name: str) -> None:
    form, random = FORMATS[name], Random(f"{SEED} {name}")
    made: list[Made] = []
    while sum(map(n_calls, made)) < N_CALLS / len(FORMATS):
        made.append(make(random, form))
    items = samples(reader(form.importer)(form.write(tmp_path, made), fields=form.fields))
    assert len(items) == len(made)
    for item, one in zip(items, made, strict=True):
        assert item.turns is not None
        assert found(item.turns) == written(one, form)
        results = [call.result for turn in one for call in turn.results()]
        assert [turn.text for turn in item.turns if turn.role == "tool"] == results
        assert item.response == model_text(item.turns)
        assert item.reward == 1.0
    assert len({item.prompt for item in items}) == 1


@pytest.mark.parametrize("name", FORMATS)
def test_a_call_with_its_result_is_read_from_every_format(tmp_path: Path, name: str) -> None:
    form = FORMATS[name]
    call = MadeCall(id="c1", name="add", arguments={"a": 3, "words": "x"}, result="7")
    one = [MadeTurn(text="", calls=(call,), order=(0,)), MadeTurn(text="It is 7.")]
    plain = [MadeTurn(text="It is 7.")]
    first, second = samples(reader(form.importer)(form.write(tmp_path, [one, plain]), fields=form.fields))
    assert first.turns is not None
    assert found(first.turns) == written(one, form)
    assert (second.turns, second.response.strip()) == (None, "It is 7.")
    assert first.prompt == second.prompt


# ---------------------------------------------------------------- odd shapes

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "2"}
END = {"role": "assistant", "content": "2"}
DEEP: Any = "x"
for _ in range(400):
    DEEP = [DEEP]


def calling(*calls: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **fields}


#: Messages after the prompt, with the numbers of turns of the model, of valid and invalid calls, of observations and of
#: calls with a result; or with a part of the fault.
SHAPES: dict[str, tuple[list[Any], tuple[int, int, int, int, int] | str]] = {
    "null content": ([calling(CALL), RESULT, END], (2, 1, 0, 1, 1)),
    "no content": ([{"role": "assistant", "tool_calls": [CALL]}, RESULT, END], (2, 1, 0, 1, 1)),
    "empty content": ([calling(CALL, content=""), RESULT, END], (2, 1, 0, 1, 1)),
    "content list": ([calling(CALL, content=[]), RESULT, END], (2, 1, 0, 1, 1)),
    "content number": ([calling(CALL, content=4), RESULT, END], (2, 1, 0, 1, 1)),
    "parallel calls": (
        [calling(CALL, {**CALL, "id": "c2"}), RESULT, {**RESULT, "tool_call_id": "c2"}, END],
        (2, 2, 0, 2, 2),
    ),
    "results in another order": (
        [calling(CALL, {**CALL, "id": "c2"}), {**RESULT, "tool_call_id": "c2"}, RESULT, END],
        (2, 2, 0, 2, 2),
    ),
    "late result": ([calling(CALL), END, RESULT, END], (3, 1, 0, 1, 1)),
    "failed call": ([calling(CALL), {**RESULT, "content": "", "error": {"message": "no"}}, END], (2, 1, 0, 1, 1)),
    "broken JSON": (
        [calling({"id": "c1", "function": {"name": "add", "arguments": "{a: 1"}}), RESULT, END],
        (2, 0, 1, 1, 1),
    ),
    "nested JSON as text": (
        [calling({"id": "c1", "function": {"name": "add", "arguments": '"{\\"a\\": 1}"'}}), RESULT],
        (1, 0, 1, 1, 1),
    ),
    "call as JSON text": ([calling(json.dumps(CALL)), RESULT, END], (2, 1, 0, 1, 1)),
    "calls as JSON text": ([{"role": "assistant", "tool_calls": json.dumps([CALL])}, RESULT, END], (2, 1, 0, 1, 1)),
    "calls as empty text": ([calling(CALL), RESULT, {**END, "tool_calls": ""}], (2, 1, 0, 1, 1)),
    "call that is a number": ([calling(7), END], (2, 0, 1, 0, 0)),
    "call that is null": ([calling(None), END], (2, 0, 1, 0, 0)),
    "call without name": ([calling({"id": "c1", "function": {"arguments": "{}"}}), RESULT], (1, 0, 1, 1, 1)),
    "call without arguments": ([calling({"id": "c1", "function": {"name": "now"}}), RESULT], (1, 1, 0, 1, 1)),
    "arguments that are a list": ([calling({"id": "c1", "name": "add", "arguments": [1]}), RESULT], (1, 0, 1, 1, 1)),
    "numbers as id": ([calling({**CALL, "id": 7}), {**RESULT, "tool_call_id": 7}, END], (2, 1, 0, 1, 1)),
    "former function_call": (
        [{"role": "assistant", "function_call": CALL["function"]}, {"role": "function", "name": "add", "content": "2"}],
        (1, 1, 0, 1, 1),
    ),
    "empty turns": (
        [{"role": "assistant", "content": ""}, {"role": "assistant", "content": None}, END],
        (3, 0, 0, 0, 0),
    ),
    "empty observation": ([calling(CALL), {**RESULT, "content": None}, END], (2, 1, 0, 1, 1)),
    "system turn in the middle": (
        [calling(CALL), RESULT, {"role": "system", "content": "Hurry."}, END],
        (2, 1, 0, 1, 1),
    ),
    "user turn in the middle": ([END, {"role": "user", "content": "Sure?"}, END], (2, 0, 0, 0, 0)),
    "user turn between call and result": (
        [calling(CALL), {"role": "user", "content": "?"}, RESULT, END],
        (2, 1, 0, 1, 1),
    ),
    "developer turn": ([END, {"role": "developer", "content": "Stop."}], (1, 0, 0, 0, 0)),
    "result without a call": ([END, RESULT], (1, 0, 0, 1, 0)),
    "result with an unknown id": ([calling(CALL), {**RESULT, "tool_call_id": "c9"}, END], (2, 1, 0, 1, 0)),
    "result with a list of ids": ([calling(CALL), {**RESULT, "tool_call_id": ["c1"]}, END], (2, 1, 0, 1, 1)),
    "call without a result": ([calling(CALL)], (1, 1, 0, 0, 0)),
    "two results of one call": ([calling(CALL), RESULT, RESULT, END], (2, 1, 0, 2, 1)),
    "ids that occur again": ([calling(CALL), RESULT, calling(CALL), RESULT, END], (3, 2, 0, 2, 2)),
    "an id again, the first without result": ([calling(CALL), calling(CALL), RESULT, END], (3, 2, 0, 1, 1)),
    "two calls with one id": ([calling(CALL, CALL), RESULT, RESULT, END], (2, 2, 0, 2, 2)),
    "calls with ids, results without": (
        [calling(CALL, {**CALL, "id": "c2"}), *[{"role": "tool", "content": "2"}] * 2],
        (1, 2, 0, 2, 2),
    ),
    "results with ids, calls without": ([calling({"name": "add", "arguments": {}}), RESULT, END], (2, 1, 0, 1, 1)),
    "two roles of one name": (
        [calling(CALL), {**RESULT, "name": "add"}, {"role": "user", "name": "add", "content": "?"}, END],
        (2, 1, 0, 1, 1),
    ),
    "role and from": ([{"role": "assistant", "from": "human", "content": "2"}, END], (2, 0, 0, 0, 0)),
    "10,000 turns": ([calling(CALL), RESULT] * 5000, (5000, 5000, 0, 5000, 5000)),
    "1,000 parallel calls": (
        [
            calling(*({**CALL, "id": f"c{n}"} for n in range(1000))),
            *({**RESULT, "tool_call_id": f"c{n}"} for n in range(1000)),
        ],
        (1, 1000, 0, 1000, 1000),
    ),
    "lone surrogates": (
        [
            calling({**CALL, "function": {"name": "a\ud800", "arguments": '{"a": "\\ud800"}'}}),
            {**RESULT, "content": "\udfff"},
        ],
        (1, 1, 0, 1, 1),
    ),
    "NUL in a text": ([calling(CALL), {**RESULT, "content": "a\0b"}, END], (2, 1, 0, 1, 1)),
    "image in an observation": (
        [calling(CALL), {**RESULT, "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}, END],
        (2, 1, 0, 1, 1),
    ),
    "reasoning parts": (
        [
            {
                "role": "assistant",
                "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "2"}],
                "tool_calls": [CALL],
            },
            RESULT,
        ],
        (1, 1, 0, 1, 1),
    ),
    "a call that the server ran": (
        [
            {
                "role": "assistant",
                "content": [
                    {"type": "server_tool_use", "id": "s1", "name": "search", "input": {"q": "2"}},
                    {
                        "type": "web_search_tool_result",
                        "tool_use_id": "s1",
                        "content": [{"type": "web_search_result", "url": "u"}],
                    },
                    {"type": "text", "text": "2"},
                ],
            }
        ],
        (2, 1, 0, 1, 1),
    ),
    "a call of the server with its result": (
        [
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "s1", "name": "search", "arguments": "{}", "result": "2"}],
            }
        ],
        (1, 1, 0, 1, 1),
    ),
    "text before a result of Anthropic's": (
        [
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "add", "input": {}}]},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "2"},
                    {"type": "text", "text": "?"},
                ],
            },
            END,
        ],
        (2, 1, 0, 1, 1),
    ),
    "items of a Responses API": (
        [
            {"type": "reasoning", "summary": []},
            {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "2"},
            {"type": "web_search_call", "id": "w", "action": {"q": 1}},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "2"}]},
        ],
        (2, 2, 0, 1, 1),
    ),
    "an item with its result": (
        [{"type": "mcp_call", "id": "m", "name": "add", "arguments": "{}", "output": "2"}, END],
        (2, 1, 0, 1, 1),
    ),
    "an unknown item": ([calling(CALL), RESULT, {"type": "to come"}], (2, 1, 0, 1, 1)),
    "a whole reply": (
        [
            {
                "object": "response",
                "output": [{"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"}],
            },
            {"type": "function_call_output", "call_id": "c1", "output": "2"},
        ],
        (1, 1, 0, 1, 1),
    ),
    "LangChain": (
        [
            {"type": "ai", "content": "", "tool_calls": [{"name": "add", "args": {"a": 1}, "id": "c1"}]},
            {"type": "tool", "content": "2", "tool_call_id": "c1", "name": "add"},
        ],
        (1, 1, 0, 1, 1),
    ),
    "Gemini": (
        [
            {"role": "model", "parts": [{"text": "I add."}, {"functionCall": {"name": "add", "args": {"a": 1}}}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "add", "response": {"result": 2}}}]},
            {"role": "model", "parts": [{"text": "2"}]},
        ],
        (2, 1, 0, 1, 1),
    ),
    "refusal": (
        [calling(CALL), RESULT, {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}],
        (2, 1, 0, 1, 1),
    ),
    "unknown fields": ([calling(CALL, weight=1, audio={"id": "x"}), RESULT, END], (2, 1, 0, 1, 1)),
    "arguments nested deeply": (
        [calling({"id": "c1", "name": "add", "arguments": {"a": DEEP}}), RESULT],
        (1, 1, 0, 1, 1),
    ),
    "a long number": (
        [calling({"id": "c1", "name": "add", "arguments": '{"a": ' + "7" * 5000 + "}"}), RESULT],
        (1, 0, 1, 1, 1),
    ),
    "unknown role": ([calling(CALL), {"role": "alien", "content": "x"}, END], "unknown role 'alien'"),
    "role that is no text": ([calling(CALL), {"role": ["tool"], "content": "x"}, END], "unknown role"),
    "no role": ([calling(CALL), {"content": "x"}, END], "unknown role None"),
    "message that is text": ([calling(CALL), "2", END], "is not an object"),
    "message that is null": ([calling(CALL), None, END], "is not an object"),
    "calls that are a number": ([calling(CALL), {**END, "tool_calls": 3}], "tool_calls that are not a list"),
    "part that is a number": ([calling(CALL), {**RESULT, "content": [7]}, END], "neither text nor a list of parts"),
}


def counted(turns: Turns) -> tuple[int, int, int, int, int]:
    calls = [call for turn in turns for call in turn.calls]
    n_valid = sum(call.is_valid for call in calls)
    roles = [turn.role for turn in turns]
    linked = sum(call.result is not None for call in calls)
    return roles.count("assistant"), n_valid, len(calls) - n_valid, roles.count("tool"), linked


@pytest.mark.parametrize("name", SHAPES)
def test_an_odd_shape_is_a_trajectory_or_one_fault(tmp_path: Path, name: str) -> None:
    messages, expected = SHAPES[name]
    path = write_lines(tmp_path / "any.jsonl", {"chat": [ASKED, *messages], "ok": 1.0})
    (item,) = reader(mapped)(path, fields=CHAT)
    if isinstance(expected, str):
        assert isinstance(item, Fault)
        assert item.why.startswith("chat: message ")
        assert expected in item.why
    else:
        assert isinstance(item, Recorded)
        assert item.turns is not None
        assert counted(item.turns) == expected
        linked = [call.result for turn in item.turns for call in turn.calls if call.result is not None]
        assert len(set(linked)) == len(linked)


def wrapped(importer: Any, messages: list[Any]) -> dict[str, Any]:
    """A record of a tool with these messages after the prompt."""
    match importer:
        case _ if importer is nemo_gym:
            asked = {"input": [ASKED]}
            return {"responses_create_params": asked, "response": {"output": messages}, "reward": 1.0}
        case _ if importer is every_eval_ever:
            return {
                "schema_version": "0.3.0", "evaluation_id": "e", "sample_id": "p", "interaction_type": "agentic",
                "input": {"raw": "2+2?"}, "messages": [ASKED, *messages], "evaluation": {"score": 1.0}, "metadata": {},
            }  # fmt: skip
        case _:
            nodes = [{"parent": place - 1, "message": message, "sampled": place > 0} for place, message in
                     enumerate([ASKED, *messages])]  # fmt: skip
            trace = {"nodes": nodes, "ok": True, "rewards": {"right": {"score": 1.0}}}
            return {"traces": [trace], "task": {}, "ok": True}


@pytest.mark.parametrize("importer", [nemo_gym, every_eval_ever, prime_rl], ids=lambda importer: importer.__name__)
def test_odd_shapes_end_alike_in_every_format(tmp_path: Path, importer: Any) -> None:
    short = {name: shape for name, shape in SHAPES.items() if "," not in name}
    for name, (messages, expected) in short.items():
        items = reader(importer)(write_lines(tmp_path / "x.jsonl", wrapped(importer, messages)))
        assert len(items) == 1, name
        assert isinstance(items[0], Fault) == isinstance(expected, str), (name, items)
        if importer is every_eval_ever and not isinstance(expected, str):
            assert isinstance(items[0], Recorded)
            assert counted(items[0].turns or ()) == expected, name


# ---------------------------------------------------------------- single formats


def turn_texts(turns: Turns | None) -> list[tuple[str, str]]:
    assert turns is not None
    return [(turn.role, turn.text) for turn in turns]


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("<tool_call>\n{broken\n<tool_call>\n{}\n</tool_call>", [("assistant", "")]),
        ("x\nuser\n<tool_response>\n7\n</tool_response>\nassis", [("assistant", "x"), ("tool", "7")]),
        ("x\nuser\n<tool_response>\n7 of a long", [("assistant", "x"), ("tool", "7 of a long")]),
        (
            "x\nuser\n<tool_response>\n7\n</tool_response>\nuser\nSure?\nassistant\ny",
            [("assistant", "x"), ("tool", "7"), ("user", "Sure?"), ("assistant", "y")],
        ),
        (
            "x\nuser\n<tool_response>\nsee </tool_response> here\n</tool_response>\nassistant\ny",
            [("assistant", "x"), ("tool", "see </tool_response> here"), ("assistant", "y")],
        ),
    ],
)
def test_a_transcript_that_is_cut_or_contains_its_tags(
    tmp_path: Path, output: str, expected: list[tuple[str, str]]
) -> None:
    line = {"input": "q", "output": output, "gts": "4", "score": 1.0}
    (item,) = samples(reader(verl)(write_lines(tmp_path / "4.jsonl", line)))
    assert turn_texts(item.turns) == expected


def test_a_call_that_is_not_closed_ends_before_the_next(tmp_path: Path) -> None:
    output = (
        '<tool_call>\n{"name": "a", "arguments": {}}\n<tool_call>\n{broken\n<tool_call>\n{"name": "b", "arguments": {}}'
    )
    line = {"input": "q", "output": output, "gts": "4", "score": 1.0}
    (item,) = samples(reader(verl)(write_lines(tmp_path / "4.jsonl", line)))
    assert item.turns is not None
    assert [(call.name, call.is_valid) for call in item.turns[0].calls] == [("a", True), ("", False), ("b", True)]


@pytest.mark.parametrize(
    "content",
    [
        "<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=words>\nx\ny\n</parameter>\n</function>",
        "add\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n<arg_key>words</arg_key>\n<arg_value>x\ny</arg_value>",
    ],
)
def test_calls_in_the_tags_of_other_templates(tmp_path: Path, content: str) -> None:
    output = f"<tool_call>\n{content}\n</tool_call>\nuser\n<tool_response>\n7\n</tool_response>\nassistant\n7"
    line = {"input": "q", "output": output, "gts": "7", "score": 1.0}
    (item,) = samples(reader(verl)(write_lines(tmp_path / "4.jsonl", line)))
    assert item.turns is not None
    (call,) = item.turns[0].calls
    assert (call.name, json.loads(call.arguments), call.is_valid) == ("add", {"a": "1", "words": "x\ny"}, True)
    cut = line | {"output": f"<tool_call>\n{content[:20]}"}
    (item,) = samples(reader(verl)(write_lines(tmp_path / "4.jsonl", cut)))
    assert item.turns is not None
    assert not item.turns[0].calls[0].is_valid


def test_many_observations_that_never_end_are_read_in_linear_time(tmp_path: Path) -> None:
    output = "x\nuser\n" + "<tool_response>\n1\n</tool_response>\n" * 2000 + "words"
    line = {"input": "q", "output": output, "gts": "4", "score": 1.0}
    (item,) = samples(reader(verl)(write_lines(tmp_path / "4.jsonl", line)))
    assert item.turns is not None
    assert len(item.turns) == 2001


def test_outputs_of_one_session_of_verl_are_one_trajectory(tmp_path: Path) -> None:
    first = '<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>'
    border = "\nuser\n<tool_response>\n7\n</tool_response>\nassistant\n"
    lines = [
        {"input": "q" + first + border, "output": "It is 7", "gts": "7", "score": 1.0, "uid": "p_0_1"},
        {"input": "q", "output": first, "gts": "7", "score": 0.0, "uid": "p_0_0"},
    ]
    (item,) = samples(reader(verl)(write_lines(tmp_path / "4.jsonl", *lines)))
    assert (item.prompt, item.reward, item.line) == ("q", 1.0, 2)
    assert turn_texts(item.turns) == [("assistant", ""), ("tool", "7"), ("assistant", "It is 7")]
    assert item.turns is not None
    assert item.turns[0].calls[0].result == 1


def test_users_between_the_turns_of_skyrl(tmp_path: Path) -> None:
    output = "It is 8<|im_end|>\n<|im_start|>user\nSure?<|im_end|>\n<|im_start|>assistant\nIt is 7<|im_end|>\n"
    entry = {"input_prompt": "q", "output_response": output, "score": 1.0}
    (item,) = samples(reader(skyrl)(write_lines(tmp_path / "x.jsonl", entry)))
    assert turn_texts(item.turns) == [("assistant", "It is 8"), ("user", "Sure?"), ("assistant", "It is 7")]


def test_a_turn_of_prime_rl_has_its_tokens_log_probability_and_mask(tmp_path: Path) -> None:
    call = MadeCall(id="c1", name="add", arguments={}, result="7")
    one = [MadeTurn(text="", calls=(call,), order=(0,)), MadeTurn(text="7")]
    (item,) = samples(reader(prime_rl)(FORMATS["prime_rl"].write(tmp_path, [one])))
    assert item.turns is not None
    assert [(turn.n_tokens, turn.logp_sum, turn.is_trained) for turn in item.turns] == [
        (2, -0.75, True), (3, None, False), (2, -0.75, True)]  # fmt: skip
    assert (item.n_tokens, item.logp_sum) == (4, -1.5)


def test_the_reply_before_branches_of_sub_agents_ends_the_trajectory(tmp_path: Path) -> None:
    call = MadeCall(id="c1", name="ask", arguments={}, result="7")
    path = FORMATS["prime_rl"].write(tmp_path, [[MadeTurn(text="", calls=(call,), order=(0,)), MadeTurn(text="7")]])
    episode = json.loads(path.read_text())
    trace = episode["traces"][0]
    trace["nodes"] += [
        {"message": {"role": "user", "content": "sub"}},
        {"parent": 4, "message": {"role": "assistant", "content": "sub-agent"}, "sampled": True},
    ]
    trace["root_reply"] = "7"
    (item,) = samples(reader(prime_rl)(write_lines(tmp_path / "traces.jsonl", episode)))
    assert item.prompt == "2+2?"
    assert turn_texts(item.turns) == [("assistant", ""), ("tool", "7"), ("assistant", "7")]


def inspect_sample(folder: Path, **changes: Any) -> Recorded | Fault:
    call = MadeCall(id="c1", name="look", arguments={}, result="7")
    path = FORMATS["inspect"].write(folder, [[MadeTurn(text="", calls=(call,), order=(0,)), MadeTurn(text="7")]])
    log = json.loads(path.read_text())
    log["samples"][0] |= changes
    path.write_text(json.dumps(log))
    (item,) = reader(inspect_eval)(path)
    return item


def test_a_limit_and_attachments_of_inspect(tmp_path: Path) -> None:
    cut = inspect_sample(tmp_path, limit={"type": "message", "limit": 4})
    assert isinstance(cut, Recorded)
    assert cut.finish_reason == "length"
    messages = [
        {"role": "user", "content": "2+2?"},
        {
            "role": "assistant",
            "content": "attachment://h",
            "tool_calls": [{"id": "1", "function": "a", "arguments": {}}],
        },
        {
            "role": "tool",
            "tool_call_id": "1",
            "content": "attachment://h",
            "error": {"type": "timeout", "message": "late"},
        },
        {"role": "tool", "content": "", "error": {"type": "timeout", "message": "late"}},
    ]
    item = inspect_sample(tmp_path, messages=messages, attachments={"h": "a long text"})
    assert isinstance(item, Recorded)
    assert turn_texts(item.turns) == [("assistant", "a long text"), ("tool", "a long text"), ("tool", "late")]
    assert [(turn.is_error, turn.extra) for turn in item.turns or ()] == [
        (None, None), (True, '{"error": {"message": "late", "type": "timeout"}}'), (True, None)]  # fmt: skip


def test_equal_trajectories_of_two_models_of_inspect_are_equal(tmp_path: Path) -> None:
    def turns(model: str, id: str) -> Turns | None:
        call = {"id": id, "function": "a", "arguments": {}}
        reply = {"id": f"m{id}", "role": "assistant", "content": "", "tool_calls": [call], "model": model}
        item = inspect_sample(tmp_path, messages=[reply, {"role": "tool", "tool_call_id": id, "content": "7"}])
        assert isinstance(item, Recorded)
        return item.turns

    first, second = turns("m/step_4", "x"), turns("m/step_8", "y")
    assert first is not None
    assert second is not None
    assert trajectory_id(first) == trajectory_id(second)


def test_solved_examples_in_the_input_of_inspect_are_the_prompt(tmp_path: Path) -> None:
    solved = [
        {"id": "1", "role": "user", "content": "1+1?"},
        {"id": "2", "role": "assistant", "content": "2"},
        {"id": "3", "role": "user", "content": "2+2?"},
    ]
    messages = [*solved, {"id": "4", "role": "assistant", "content": "4", "source": "generate"}]
    item = inspect_sample(tmp_path, input=solved, messages=messages)
    assert isinstance(item, Recorded)
    assert (item.turns, item.response) == (None, "7")  # the completion
    assert item.prompt == "user: 1+1?\n\nassistant: 2\n\nuser: 2+2?"


def test_images_distinguish_prompts_of_inspect(tmp_path: Path) -> None:
    def prompt(image: str) -> str:
        parts = [{"type": "text", "text": "Look."}, {"type": "image", "image": "attachment://h"}]
        asked = [{"role": "user", "content": parts}]
        item = inspect_sample(tmp_path, input=asked, attachments={"h": image})
        assert isinstance(item, Recorded)
        return item.prompt

    assert prompt("data:,a").startswith("Look.\n[image ")
    assert prompt("data:,a") != prompt("data:,b")
    assert prompt("data:,a") == prompt("data:,a")


def graded_lines(*scores: tuple[str, float]) -> list[dict[str, Any]]:
    return [
        {
            "schema_version": "0.3.0", "evaluation_id": "e", "sample_id": problem,
            "input": {"raw": problem, "reference": ["4"]}, "output": {"raw": [f"{place}"]},
            "evaluation": {"score": score, "is_correct": score > 0},
        }
        for place, (problem, score) in enumerate(scores)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("scores", "is_average"),
    [
        ([("p", 2 / 3), ("p", 2 / 3), ("p", 2 / 3), ("q", 1.0), ("q", 1.0)], True),
        ([("p", 1.0), ("p", 1.0), ("q", 0.0), ("q", 0.0)], False),
        ([("p", 0.5), ("p", 0.5), ("q", 0.0), ("q", 1.0)], False),  # scores differ between repeats
        ([("p", 0.5), ("q", 0.5)], False),  # no repeats
    ],
)
def test_averages_of_every_eval_ever_are_no_grades(
    tmp_path: Path, scores: list[tuple[str, float]], is_average: bool
) -> None:
    path = write_lines(tmp_path / "x_samples.jsonl", *graded_lines(*scores))
    rewards = [item.reward for item in samples(reader(every_eval_ever)(path))]
    assert rewards == ([None] * len(scores) if is_average else [score for _, score in scores])
    assert (every_eval_ever.note(path) is not None) == is_average
    assert samples(reader(every_eval_ever)(path, reward="is_correct"))[0].reward == (
        None if is_average else scores[0][1] > 0
    )


# ---------------------------------------------------------------- mapped files


def chat(folder: Path, messages: Any, fields: dict[str, str], **others: Any) -> Sequence[Recorded | Fault]:
    return reader(mapped)(write_lines(folder / "x.jsonl", {"chat": messages, "ok": 1.0, **others}), fields=fields)


def test_a_conversation_with_one_plain_answer_is_a_plain_response(tmp_path: Path) -> None:
    messages = [{"role": "system", "content": "Add."}, ASKED, END]
    (item,) = chat(tmp_path, messages, CHAT)
    assert item == Recorded(line=1, prompt="system: Add.\n\nuser: 2+2?", response="2", reward=1.0)


def test_the_prompt_of_a_conversation_is_before_the_first_turn_of_the_model(tmp_path: Path) -> None:
    talk = [ASKED, END, {"role": "user", "content": "Sure?"}, END]
    (whole,) = samples(chat(tmp_path, talk, CHAT))
    assert whole.prompt == "2+2?"
    assert turn_texts(whole.turns) == [("assistant", "2"), ("user", "Sure?"), ("assistant", "2")]
    (twice,) = samples(chat(tmp_path, talk, {"prompt": "chat", "response": "chat"}))  # solved examples
    assert (twice.prompt, twice.response) == ("user: 2+2?\n\nassistant: 2\n\nuser: Sure?", "2")
    called = [ASKED, calling(CALL), RESULT, END]
    (item,) = samples(chat(tmp_path, called, {"prompt": "chat", "response": "chat"}))
    assert item.prompt == "2+2?"
    assert turn_texts(item.turns) == [("assistant", ""), ("tool", "2"), ("assistant", "2")]


def test_a_response_field_with_the_whole_conversation_begins_with_the_model(tmp_path: Path) -> None:
    called = [ASKED, calling(CALL), RESULT, END]
    (item,) = samples(chat(tmp_path, called, {"prompt": "q", "response": "chat"}, q="Add."))
    assert item.prompt == "Add."
    assert [role for role, _ in turn_texts(item.turns)] == ["assistant", "tool", "assistant"]


def test_conversations_in_a_list_are_samples(tmp_path: Path) -> None:
    runs = [{"chat": [ASKED, calling(CALL), RESULT, END], "ok": 1.0}, {"chat": [ASKED, END], "ok": 0.0}]
    path = write_lines(tmp_path / "x.jsonl", {"runs": runs})
    first, second = samples(reader(mapped)(path, fields={"messages": "runs[].chat", "reward": "runs[].ok"}))
    assert (first.turns is None, second.turns is None) == (False, True)
    assert (first.prompt, second.prompt, first.reward, second.reward) == ("2+2?", "2+2?", 1.0, 0.0)


def test_the_last_step_of_an_episode_of_rllm_has_its_conversation(tmp_path: Path) -> None:
    steps = [{"chat_completions": [ASKED, calling(CALL)]}, {"chat_completions": [ASKED, calling(CALL), RESULT, END]}]
    episode = {"training_step": 40, "is_correct": True, "trajectories": [{"name": "solver", "steps": steps}]}
    path = tmp_path / "episode_hashab_id0.json"
    path.write_text(json.dumps(episode, indent=2))
    fields = {
        "messages": "trajectories[0].steps[-1].chat_completions", "reward": "is_correct", "step": "training_step"
    }  # fmt: skip
    (item,) = samples(reader(mapped)(path, fields=fields))
    assert (item.prompt, item.reward, item.step) == ("2+2?", 1.0, 40)
    assert [role for role, _ in turn_texts(item.turns)] == ["assistant", "tool", "assistant"]


def test_a_conversation_may_be_json_text_or_parquet(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    messages = [ASKED, calling(CALL), RESULT, END]
    (as_text,) = samples(chat(tmp_path, json.dumps(messages), CHAT))
    parquet.write_table(pa.Table.from_pylist([{"chat": messages, "ok": 1.0}]), tmp_path / "x.parquet")
    (as_rows,) = samples(reader(mapped)(tmp_path / "x.parquet", fields=CHAT))
    assert as_text.turns is not None
    assert as_rows == as_text


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        (None, "no chat"),
        ("2", "chat: is not a list of messages"),
        ("two", "chat is text, not a list of messages"),
        ([calling(CALL), RESULT], "chat has no message before the model's first"),
        ([ASKED], "chat has no message of the model"),
    ],
)
def test_what_is_no_conversation_is_a_fault(tmp_path: Path, messages: Any, why: str) -> None:
    path = write_lines(tmp_path / "x.jsonl", {"chat": messages})
    assert reader(mapped)(path, fields={"messages": "chat"}) == [Fault(1, why)]


def test_a_conversation_without_an_answer_but_with_a_reward_is_an_empty_response(tmp_path: Path) -> None:
    (item,) = samples(chat(tmp_path, [ASKED], CHAT))
    assert (item.prompt, item.response, item.turns) == ("2+2?", "", None)


def test_the_turns_are_those_of_the_record(tmp_path: Path) -> None:
    (item,) = samples(chat(tmp_path, [ASKED, calling(CALL), RESULT, END], CHAT))
    assert item.turns is not None
    assert item.turns[1:] == (Turn(role="tool", text="2", call_id="c1"), Turn(role="assistant", text="2"))


@pytest.mark.slow
def test_the_views_have_every_call_with_its_observation(tmp_path: Path) -> None:
    random = Random(SEED)
    made: dict[int, list[Made]] = {step: [make(random, FORMATS["openai"]) for _ in range(20)] for step in (0, 40)}
    call = MadeCall(id="c", name="add", arguments={}, result="7")
    made[40].append([MadeTurn(text=str(number), calls=(call,), order=(0,)) for number in range(5000)])
    for step, of_step in made.items():
        write_lines(tmp_path / f"step_{step}.jsonl", *({"chat": [ASKED, *openai(one)], "ok": 1.0} for one in of_step))
    result = import_samples([tmp_path], ImportConfig(store=tmp_path / "audit.duckdb", map=CHAT))
    with Store.open(result.store_path, read_only=True) as store:
        store.bound_memory(1.0)
        rows = store.frame("SELECT step, sample_index, name, arguments, observation FROM calls ORDER BY ALL")
        n_turns = store.frame("SELECT count(*) AS n FROM turns WHERE role = 'assistant'")["n"].item()
    assert n_turns == sum(len(one) for of_step in made.values() for one in of_step)
    expected = sorted(
        (step, index, call.name, json.dumps(call.arguments), call.result or "")
        for step, of_step in made.items()
        for index, one in enumerate(of_step)
        for turn in one
        for call in turn.calls
    )
    assert sorted(tuple(row) for row in rows.fillna("").values.tolist()) == expected


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"messages": "chat", "response": "out", "reward": "ok"}, "--map messages=… contains the responses"),
        ({"messages": "chat"}, "--map needs reward=… or gold=…"),
        (
            {"messages": "chat", "prompt": "q", "n": "n", "correct": "c"},
            "--map messages=…: counts .* have no responses",
        ),
    ],
)
def test_names_that_do_not_fit_a_conversation(fields: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        ImportConfig(map=fields)
