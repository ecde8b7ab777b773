"""Endless or unbounded chat templates are an error in one line; others render as in transformers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from oversharp.diagnostics.models import templates
from oversharp.diagnostics.models.chat import choose_chat, require_usable
from oversharp.diagnostics.models.templates import TemplateLimitError, render_chat
from oversharp.diagnostics.models.tokens import chat_text
from oversharp.diagnostics.records.errors import SamplerError
from oversharp.diagnostics.records.types import SamplingSettings
from tests.preloaded import RunningServer
from tests.samplers.tiny_models import WORDS, build_tokenizer, checkpoint_at, problem, write_checkpoint

pytestmark = pytest.mark.slow

CHAT = SamplingSettings(sampler="t", chat=True)
LOOPS = "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}"


@pytest.fixture(autouse=True)
def short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set limits of one or two seconds."""
    monkeypatch.setattr(templates, "MAX_CPU_S", 1)
    monkeypatch.setattr(templates, "MAX_TICKS", 2)


@pytest.mark.parametrize(
    ("template", "fault"),
    [
        (LOOPS, "does not terminate within 1 CPU seconds"),
        ("{{ 'A' * 10**10 }}", "needs more than 1 GiB of memory"),
        ("{{ messages[0]['content'] * 10**10 }}", "needs more than 1 GiB of memory"),
        ("{{ 'A'.center(3000000) }}", "writes 3,000,000 characters for a prompt of 1"),
        ("{{ 10 ** (10 ** 9) }}", "does not terminate within 1 CPU seconds"),
    ],
)
def test_an_unbounded_template_is_refused_with_its_file(template: str, fault: str, tmp_path: Path) -> None:
    build_tokenizer(chat_template=template).save_pretrained(tmp_path / "checkpoint-20")
    checkpoint = checkpoint_at(tmp_path / "checkpoint-20")
    choose_chat(checkpoint, [problem("a")], own_words=False, trained=None, needed_by=None)
    with pytest.raises(SamplerError) as caught:
        require_usable(checkpoint, CHAT)
    place = tmp_path / "checkpoint-20/chat_template.jinja"
    assert str(caught.value).startswith(f"--chat: {place}: the chat template {fault}; replace it")


def test_a_template_that_is_too_slow_for_another_prompt_is_interrupted() -> None:
    loops = "".join(f"{{% for a{n} in messages[0]['content'] %}}" for n in range(5))
    tokenizer = build_tokenizer(chat_template=loops + "{% endfor %}" * 5)
    assert chat_text(tokenizer, "?", CHAT) == ""
    with pytest.raises(TemplateLimitError, match="does not terminate within 2 seconds"):
        chat_text(tokenizer, "b " * 1000, CHAT)
    assert chat_text(tokenizer, "?", CHAT) == ""


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m['content'] }}{% endfor %}",
        "{{ bos_token }}{% generation %}{{ messages | tojson(indent=2) }}{% endgeneration %}{{ strftime_now('%Y') }}",
        "{{ messages[0]['content'] }}{% if enable_thinking %}think{% endif %}",
        "{{ raise_exception('no') if messages | length > 2 else 'yes' }}",
    ],
)
def test_the_worker_renders_a_template_as_transformers_does(template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It prints the number of characters of the same text."""
    tokenizer = build_tokenizer((*WORDS, "<s>"), chat_template=template)
    tokenizer.bos_token = "<s>"
    printed: list[str] = []
    run = subprocess.run

    def recording(*arguments: object, **more: object) -> object:
        ended = run(*arguments, **more)  # type: ignore[call-overload]
        printed.append(ended.stdout.decode().strip())
        return ended

    monkeypatch.setattr(templates.subprocess, "run", recording)
    turns = [{"role": "system", "content": "a"}, {"role": "user", "content": "é b"}]
    written = render_chat(tokenizer, turns, {"enable_thinking": True})
    assert printed == [str(len(written))]
    assert render_chat(tokenizer, [*turns[:1], {"role": "user", "content": "b"}], {"enable_thinking": True})
    assert len(printed) == 1  # other prompts with the same turns do not run the worker again


@pytest.mark.filterwarnings("ignore")
def test_an_audit_with_an_unbounded_template_prints_one_line(tmp_path: Path, commands: RunningServer) -> None:
    write_checkpoint(tmp_path / "run/checkpoint-0", seed=0)
    shutil.copytree(tmp_path / "run/checkpoint-0", tmp_path / "run/checkpoint-10")
    for step in (0, 10):
        build_tokenizer(chat_template="{{ 'A' * 10**10 }}").save_pretrained(tmp_path / f"run/checkpoint-{step}")
    (tmp_path / "p.jsonl").write_text('{"prompt": "a b", "answer": "c", "verifier": "exact"}\n')
    command = ["audit", str(tmp_path / "run"), "--problems", str(tmp_path / "p.jsonl"), "--out", str(tmp_path / "out")]
    code, output = commands.start([*command, "--chat", "--n", "4", "--k", "1", "--quiet"]).communicate()
    (line,) = output.splitlines()
    assert code == SamplerError.exit_code
    assert "checkpoint-0/chat_template.jinja: the chat template needs more than 1 GiB of memory" in line
