"""Titles of problems: prompts without markup and shared text."""

from __future__ import annotations

import pytest

from oversharp.diagnostics.records.prompts import prompt_titles

CHATS = {
    "ChatML": "<|im_start|>system\nYou help.<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n",
    "Llama 3": "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nYou help.<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\n{}<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    "Llama 2": "<s>[INST] <<SYS>>\nYou help.\n<</SYS>>\n\n{} [/INST]",
    "Gemma": "<bos><start_of_turn>user\n{}<end_of_turn>\n<start_of_turn>model\n",
    "Phi": "<|system|>\nYou help.<|end|>\n<|user|>\n{}<|end|>\n<|assistant|>\n",
    "DeepSeek": "<｜begin▁of▁sentence｜>You help.<｜User｜>{}<｜Assistant｜><think>\n",
    "without special tokens": "system\nYou help.\nuser\n{}\nassistant\n",
    "without a system turn": "user\n{}\nassistant\n",
    "as importers write it": "system: You help.\n\nuser: {}",
    "with an answer begun": "system: You help.\n\nuser: {}\n\nassistant: Let me",
}


@pytest.mark.parametrize("chat", CHATS.values(), ids=CHATS)
def test_of_a_chat_the_question_is_left(chat: str) -> None:
    assert prompt_titles([chat.format("What is 3 + 4?")]) == ["What is 3 + 4?"]


def test_of_several_turns_the_last_question_counts() -> None:
    turn = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\nfour<|im_end|>\n"
    assert prompt_titles([turn.format("2 + 2?") + turn.format("And 3 + 3?")]) == ["And 3 + 3?"]


def test_what_all_prompts_say_before_and_after_is_left_out() -> None:
    asked = "Solve the problem. Think step by step.\n{}\nPut the answer in a box. Be brief."
    assert prompt_titles([asked.format("Tom has 3 pens."), asked.format("Ann has 4 pens.")]) == [
        "Tom has 3 pens.",
        "Ann has 4 pens.",
    ]


@pytest.mark.parametrize(
    "prompts",
    [
        ["What is 3 + 4?", "What is 3 + 5?"],  # no sentence ends before they differ
        ["Reach 24 from 3 4 5.", "Reach 24 from 3 4 6."],
        ["Add up. 1 2", "Add up."],  # nothing of the second would be left
        ["the same", "the same"],
        ["The user\nis asked here", "the assistant\nanswers"],  # words, not turns
        [],
    ],
)
def test_a_question_is_never_cut(prompts: list[str]) -> None:
    assert prompt_titles(prompts) == [" ".join(prompt.split()) for prompt in prompts]


def test_a_few_prompts_of_another_kind_stay_whole_and_do_not_keep_the_others_from_being_cut() -> None:
    asked = "Solve the problem. Think step by step.\n{}\nPut the answer in a box."
    usual = [f"Tom has {n} pens." for n in range(9)]
    assert prompt_titles([*map(asked.format, usual), "Name a prime."]) == [*usual, "Name a prime."]
    two = ["Name a prime.", "Name another."]
    wholes = [" ".join(asked.format(one).split()) for one in usual]
    assert prompt_titles([*map(asked.format, usual), *two]) == [*wholes, *two]  # 9 of 11 are too few


def test_what_is_shared_at_both_ends_is_not_taken_twice() -> None:
    assert prompt_titles(["Go. Go. A. Go. Go.", "Go. Go. Go. Go."]) == ["A. Go.", "Go."]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("turn", ["<|im_start|>user\n", "user\n", "[INST]", "<|user|>", "\n\nuser: ", ". "])
def test_a_hostile_prompt_takes_no_longer_than_its_length(turn: str) -> None:
    text = turn * 50_000
    assert len(prompt_titles([text, text + "x"])) == 2
