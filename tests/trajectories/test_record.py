from __future__ import annotations

import pytest

from oversharp.diagnostics.trajectories.messages import BadMessageError, merge_model_turns, read_turns, split_prompt
from oversharp.diagnostics.trajectories.record import (
    Call,
    Turn,
    link_results,
    model_text,
    storable_turns,
    trajectory_id,
    turn_row,
)
from oversharp.diagnostics.trajectories.transcripts import read_transcript

ADD = Call("add", '{"a": 1}', "c1")
OPENAI = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}


def only_call(message: dict) -> Call:
    ((call,),) = [turn.calls for turn in read_turns([message])]
    return call


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": None, "tool_calls": [OPENAI]},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "name": "add", "arguments": {"a": 1}}]},
        {
            "role": "assistant",
            "tool_calls": [{"id": "c1", "function": "add", "arguments": {"a": 1}, "type": "function"}],
        },
        {"role": "assistant", "tool_calls": ['{"id": "c1", "name": "add", "arguments": "{\\"a\\": 1}"}']},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}}]},
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'},
    ],
)
def test_the_forms_of_a_call_are_one_call(message: dict) -> None:
    assert only_call(message) == ADD


def test_sharegpt_calls_and_observations() -> None:
    turns = read_turns(
        [
            {"from": "human", "value": "2+2?"},
            {"from": "function_call", "value": '{"name": "add", "arguments": {"a": 1}}'},
            {"from": "observation", "value": "4"},
            {"from": "gpt", "value": "It is 4."},
        ]
    )
    assert [turn.role for turn in turns] == ["user", "assistant", "tool", "assistant"]
    assert turns[1].calls == (Call("add", '{"a": 1}'),)
    assert split_prompt(turns)[0] == turns[:1]


@pytest.mark.parametrize(
    ("arguments", "valid"),
    [
        ('{"a": 1}', True),
        ("{a: 1}", False),
        ("[1]", False),
        ('{"a": NaN}', False),
        ("", True),
        (None, True),
        (7, False),
    ],
)
def test_arguments_that_are_no_json_object_are_kept_and_not_valid(arguments: object, valid: bool) -> None:
    call = only_call({"role": "assistant", "tool_calls": [{"name": "add", "arguments": arguments}]})
    assert call.is_valid is valid
    if arguments:
        assert call.arguments == str(arguments)


def test_reasoning_images_errors_and_other_fields_are_kept() -> None:
    turns = read_turns(
        [
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm"},
                    {"type": "text", "text": "see"},
                    {"type": "image_url", "image_url": {"url": "x"}},
                ],
                "model": "m",
            },
            {"role": "tool", "content": "no", "error": {"type": "timeout"}, "tool_call_id": ["c1"], "function": "add"},
        ]
    )
    assert turns[0] == Turn(role="assistant", text="see\n[image]", reasoning="hm", extra='{"model": "m"}')
    assert (turns[1].is_error, turns[1].call_id, turns[1].name) == (True, "c1", "add")
    assert model_text(turns) == "<think>\nhm\n</think>\nsee\n[image]"


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ("text", "is not a list"),
        (["text"], "message 1 is not an object"),
        ([{"role": "alien", "content": ""}], "message 1 has the unknown role 'alien'"),
        ([{"role": "assistant", "tool_calls": 3}], "message 1 has tool_calls that are not a list"),
    ],
)
def test_messages_that_cannot_be_read(messages: object, why: str) -> None:
    with pytest.raises(BadMessageError, match=why):
        read_turns(messages)


def test_results_are_matched_by_id_then_by_name_then_by_order() -> None:
    def results(calls: list[Call], *tools: Turn) -> list[int | None]:
        turns = link_results((Turn(role="assistant", calls=tuple(calls)), *tools, Turn(role="assistant", text="so")))
        return [call.result for call in turns[0].calls]

    a, b = Call("a"), Call("b")
    tool = Turn(role="tool")
    assert results([a, b], tool, tool) == [1, 2]
    assert results([a, b], Turn(role="tool", name="b"), Turn(role="tool", name="a")) == [2, 1]
    assert results([a, b], Turn(role="tool", name="b")) == [None, 1]
    assert results([Call("a", id="x"), Call("a", id="y")], Turn(role="tool", call_id="y"), tool) == [2, 1]
    assert results([Call("a", id="x"), Call("a", id="y")], tool, tool) == [1, 2]
    assert results([a]) == [None]


def test_only_the_call_or_only_the_observation_makes_another_trajectory() -> None:
    def ident(arguments: str, observation: str) -> str:
        call = Turn(role="assistant", calls=(Call("add", arguments),))
        return trajectory_id((call, Turn(role="tool", text=observation)))

    assert len({ident("{}", "1"), ident('{"a": 1}', "1"), ident("{}", "2")}) == 3


def test_lone_surrogates_are_replaced() -> None:
    (turn,) = storable_turns((Turn(role="assistant", text="a\ud800", calls=(Call("\udfff"),)),))
    assert turn_row(turn)["text"] == "a?"
    assert turn.calls[0].name == "?"


def test_items_of_one_model_turn_are_merged() -> None:
    items = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'},
        {"type": "function_call_output", "call_id": "c1", "output": "2"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It is 2."}]},
    ]
    turns = merge_model_turns(read_turns(items))
    assert [turn.role for turn in turns] == ["assistant", "tool", "assistant"]
    assert (turns[0].reasoning, turns[0].calls, turns[2].text) == ("hm", (ADD,), "It is 2.")


def test_a_transcript_without_special_tokens_and_one_with_them_are_equal() -> None:
    def transcript(start: str, end: str) -> str:
        calls = "".join(f'<tool_call>\n{{"name": "add", "arguments": {{"a": {n}}}}}\n</tool_call>\n' for n in (1, 2))
        results = "<tool_response>\n5\n</tool_response>\n<tool_response>\n6\n</tool_response>"
        return f"I add.\n{calls.rstrip()}{end}\n{start}user\n{results}{end}\n{start}assistant\nIt is 5.{end}"

    plain, special = read_transcript(transcript("", "")), read_transcript(transcript("<|im_start|>", "<|im_end|>"))
    assert plain is not None
    assert special is not None
    assert [turn.role for turn in plain] == ["assistant", "tool", "tool", "assistant"]
    assert plain[0] == Turn(role="assistant", text="I add.", calls=(Call("add", '{"a": 1}'), Call("add", '{"a": 2}')))
    assert [turn.text for turn in plain[1:]] == ["5", "6", "It is 5."]
    assert plain[:3] == special[:3]


def test_a_transcript_that_ends_in_a_call_or_an_observation() -> None:
    cut = read_transcript("<tool_call>\n{broken")
    assert cut is not None
    assert cut[0].calls == (Call("", "{broken", is_valid=False),)
    ended = read_transcript("x\nuser\n<tool_response>\n1\n</tool_response>\nassistant\n")
    assert ended is not None
    assert [turn.role for turn in ended] == ["assistant", "tool"]
    assert read_transcript("no calls\nuser\nassistant\n") is None
