"""When the chat template is used, and which templates are refused before sampling."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from oversharp.diagnostics.models.chat import ChatChoice, choose_chat, require_usable, trained_with_chat
from oversharp.diagnostics.models.tokens import chat_text
from oversharp.diagnostics.records.errors import SamplerError
from oversharp.diagnostics.records.types import Checkpoint, SamplingSettings
from tests.samplers.tiny_models import WORDS, build_tokenizer, checkpoint_at, problem

TURNS = "{% for m in messages %}<turn> {{ m['content'] }} {% endfor %}"
NO_SYSTEM = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system turn') }}{% endif %}a"
THINKING = "{{ messages[0]['content'] }} {% if enable_thinking is defined and not enable_thinking %}b{% endif %}"


def base_with(folder: Path, template: str | None) -> Checkpoint:
    tokenizer = build_tokenizer((*WORDS, "<turn>"), chat_template=template)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<turn>"]})
    tokenizer.save_pretrained(folder)
    return checkpoint_at(folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("template", "prompt", "own_words", "trained", "chat", "note"),
    [
        (TURNS, "a b ?", False, None, True, r"formatted with the tokenizer's chat template \(--no-chat"),
        (None, "a b ?", False, None, False, None),
        (TURNS, "<turn> a b ?", False, None, False, "chat turns already .<turn>."),
        (TURNS, "a b ?", True, None, False, "the prompt template is the whole prompt"),
        (TURNS, "a b ?", False, False, False, "without a chat template, as in training"),
        (TURNS, "a b ?", True, True, True, "with the tokenizer's chat template, as in training"),
    ],
)
def test_an_existing_template_is_used_unless_prompts_have_another_format(
    template: str | None,
    prompt: str,
    own_words: bool,
    trained: bool | None,
    chat: bool,
    note: str | None,
    tmp_path: Path,
) -> None:
    base = base_with(tmp_path, template)
    choice = choose_chat(base, [problem(prompt)], own_words=own_words, trained=trained, needed_by=None)
    assert choice.chat is chat
    if note is None:
        assert choice == ChatChoice(chat=False)
    else:
        assert re.search(note, str(choice.note))


def test_a_system_prompt_without_a_chat_is_refused(tmp_path: Path) -> None:
    base = base_with(tmp_path, None)
    with pytest.raises(
        SamplerError,
        match=r"^--system-prompt: no chat template is used .*has no chat template.*; remove --system-prompt$",
    ):
        choose_chat(base, [problem("a")], own_words=False, trained=None, needed_by="--system-prompt")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("template", "system_prompt", "message"),
    [
        (None, "", "^--chat: the tokenizer has no chat template"),
        (NO_SYSTEM, "a", r"^--system-prompt: the chat template has no system turn .*no system turn"),
        ("{{ messages[0].nothing.at_all }}", "a", "^--chat: the tokenizer's chat template fails"),
    ],
)
def test_a_template_that_cannot_be_used_is_refused_in_one_line(
    template: str | None, system_prompt: str, message: str, tmp_path: Path
) -> None:
    settings = SamplingSettings(sampler="t", chat=True, system_prompt=system_prompt)
    with pytest.raises(SamplerError, match=message) as caught:
        require_usable(base_with(tmp_path, template), settings)
    assert "\n" not in str(caught.value)


def test_a_template_without_a_system_turn_is_accepted_without_a_system_prompt(tmp_path: Path) -> None:
    require_usable(base_with(tmp_path, NO_SYSTEM), SamplingSettings(sampler="t", chat=True))


@pytest.mark.slow
def test_arguments_reach_the_template() -> None:
    tokenizer = build_tokenizer(chat_template=THINKING)
    off = SamplingSettings(sampler="t", chat=True, chat_args='{"enable_thinking": false}')
    assert chat_text(tokenizer, "a", off) == "a b"
    assert chat_text(tokenizer, "a", SamplingSettings(sampler="t", chat=True)) == "a "


def test_settings_without_arguments_have_the_id_of_existing_stores() -> None:
    assert SamplingSettings(sampler="transformers").settings_id == "80383529bda9014d"
    arguments = (None, '{"a": 1}', '{"a": 2}')
    assert len({SamplingSettings(sampler="t", chat=True, chat_args=args).settings_id for args in arguments}) == 3


@pytest.mark.parametrize(
    ("text", "trained"),
    [("[train]\nchat = false\n", False), ("[train]\nchat = true\n", True), ("[train-base]\n", None)],
)
def test_the_training_format_is_read_from_the_runs_settings(text: str, trained: bool | None, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(text)
    assert trained_with_chat(tmp_path) is trained
