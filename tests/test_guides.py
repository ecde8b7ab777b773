"""What the guides tell people to type is typed here, in order, in an empty directory."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

from oversharp.diagnostics.app.cli import main
from tests.ingest.test_ingest import dump
from tests.shell import blocks, commands, words

GUIDES = Path(__file__).parents[1] / "docs" / "guides"


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


def by_shell(block: str, folder: Path) -> None:
    """The block in bash, with what it installs in a folder of its own."""
    packages = folder / "packages"
    environment = os.environ | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(packages), os.environ.get("PYTHONPATH")])),
        "PIP_TARGET": str(packages),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_ROOT_USER_ACTION": "ignore",
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{block}\n{done.stdout[-1500:]}\n{done.stderr[-3000:]}"


def in_this_process(block: str, folder: Path) -> None:
    """The same commands, but ``oversharp`` and scripts run here, where everything is loaded already."""
    for command in commands(block):
        match words(command):
            case ["oversharp", *arguments]:
                with pytest.raises(SystemExit) as ended:
                    main(arguments)
                assert ended.value.code == 0, command
            case ["python", script]:
                runpy.run_path(script, run_name="__main__")
            case _:
                by_shell(command, folder)


NEEDS_TRL = pytest.mark.skipif(
    find_spec("trl") is None and not os.environ.get("REQUIRE_ORACLES"), reason="trl 1.16 is not installed: make oracles"
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("guide", "prepare", "run", "made"),
    [
        (
            "checkpoints",
            checkpoints,
            in_this_process,
            ("audit/report.html", "audit/audit.duckdb", "out/plots/README.md"),
        ),
        ("dumps", dumps, in_this_process, ("audit/report.html", "mine/audit.duckdb")),
        ("measures", dumps, by_shell, ("packages/my_measures/always_solved.py", "audit/report.html")),
        pytest.param(
            "training",
            base_model,
            by_shell,
            ("runs/trl/checkpoint-4", "runs/trl/oversharp/report.html"),
            marks=NEEDS_TRL,
        ),
    ],
)
def test_a_guide_does_what_it_says(
    guide: str,
    prepare: Callable[[Path], None],
    run: Callable[[str, Path], None],
    made: Sequence[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    prepare(tmp_path)
    if guide in ("dumps", "checkpoints"):  # the guide on measures looks at the report of a dump, other tests at others
        request.getfixturevalue("no_report")
    monkeypatch.chdir(tmp_path)
    for language, text in blocks(GUIDES / f"{guide}.md"):
        if language == "bash":
            run(text, tmp_path)
        elif language:
            file = tmp_path / text.splitlines()[0].removeprefix("# ")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    assert [name for name in made if not (tmp_path / name).exists()] == []
    if guide == "measures":
        assert "Problems always solved" in (tmp_path / "audit" / "report.html").read_text(encoding="utf-8")


def test_every_guide_is_tried() -> None:
    assert sorted(path.stem for path in GUIDES.glob("*.md")) == ["checkpoints", "dumps", "measures", "training"]
