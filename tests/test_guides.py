"""What the guides tell people to type is typed here, in order, in an empty directory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.ingest.test_ingest import dump

ROOT = Path(__file__).parents[1]
GUIDES = ROOT / "docs" / "guides"
BLOCK = re.compile(r"^```(bash|python|toml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


LESSONS = {
    "What is 6 * 7? Put the answer in \\boxed{}.": "\\boxed{42}",
    "What is 6 + 7? Put the answer in \\boxed{}.": "\\boxed{13}",
}


def write_text_models(folders: Sequence[Path], *, steps_between: int = 0) -> None:
    """A tiny model of bytes, again after every few steps of learning ``LESSONS``."""
    import torch
    from tokenizers import Tokenizer
    from tokenizers.decoders import ByteLevel as ByteDecoder
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    words = ["<eos>", *sorted(ByteLevel.alphabet())]
    tokenizer = Tokenizer(BPE(vocab={word: number for number, word in enumerate(words)}, merges=[]))
    tokenizer.pre_tokenizer, tokenizer.decoder = ByteLevel(add_prefix_space=False), ByteDecoder()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>", pad_token="<eos>")
    config = Qwen3Config(
        vocab_size=len(words),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=128,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Qwen3ForCausalLM(config)
    lessons = fast([f"{prompt}{answer}<eos>" for prompt, answer in LESSONS.items()], return_tensors="pt")["input_ids"]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for folder in folders:
        fast.save_pretrained(folder)
        model.save_pretrained(folder)
        for _ in range(steps_between):
            model(input_ids=lessons, labels=lessons).loss.backward()
            optimizer.step()
            optimizer.zero_grad()


def checkpoints(folder: Path) -> None:
    run = folder / "runs" / "grpo"
    write_text_models([folder / "untrained", *(run / f"checkpoint-{step}" for step in (0, 10, 20))], steps_between=40)


def dumps(folder: Path) -> None:
    dump(folder / "dumps")


def base_model(folder: Path) -> None:
    write_text_models([folder / "models" / "base"])


NEEDS_TRL = pytest.mark.skipif(
    find_spec("trl") is None and not os.environ.get("REQUIRE_ORACLES"), reason="trl 1.16 is not installed: make oracles"
)


@pytest.mark.parametrize(
    ("guide", "prepare"),
    [
        ("checkpoints", checkpoints),
        ("dumps", dumps),
        ("measures", dumps),
        pytest.param("training", base_model, marks=NEEDS_TRL),
    ],
)
def test_a_guide_does_what_it_says(guide: str, prepare: Callable[[Path], None], tmp_path: Path) -> None:
    prepare(tmp_path)
    packages = tmp_path / "packages"  # what the guide installs
    environment = os.environ | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": str(packages),
        "PIP_TARGET": str(packages),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_ROOT_USER_ACTION": "ignore",
    }
    for language, text in BLOCK.findall((GUIDES / f"{guide}.md").read_text(encoding="utf-8")):
        if language != "bash":
            file = tmp_path / text.splitlines()[0].removeprefix("# ")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            continue
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{text}\n{done.stdout[-1500:]}\n{done.stderr[-3000:]}"
    expect(guide, tmp_path)


def expect(guide: str, folder: Path) -> None:
    """What must be there after the guide."""
    made = {
        "checkpoints": ("audit/report.html", "audit/audit.duckdb", "out/plots/README.md"),
        "dumps": ("audit/report.html", "mine/audit.duckdb"),
        "measures": ("packages/my_measures/longest_correct.py", "audit/report.html"),
        "training": ("runs/trl/checkpoint-4", "runs/trl/oversharp/report.html"),
    }
    assert [name for name in made[guide] if not (folder / name).exists()] == []
    if guide == "measures":
        assert "Longest correct response" in (folder / "audit" / "report.html").read_text(encoding="utf-8")


def test_every_guide_is_tried_and_linked() -> None:
    names = sorted(path.stem for path in GUIDES.glob("*.md"))
    assert names == ["checkpoints", "dumps", "measures", "training"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [name for name in names if f"docs/guides/{name}.md" not in readme] == []


@pytest.mark.parametrize(
    "page", sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]), ids=lambda page: page.name
)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    links = re.findall(r"\]\((?!https?://|#)([^)#\s]+)(?:#([^)\s]+))?\)", text)
    for target, anchor in links:
        other = (page.parent / target).resolve()
        assert other.exists(), f"{page.name}: {target}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", other.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in slugs, f"{page.name}: {target}#{anchor}"
