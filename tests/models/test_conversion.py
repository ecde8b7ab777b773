"""GGUF files are converted to ordinary checkpoints: tiny files, written here and really converted."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from oversharp.diagnostics.app.cli import app
from oversharp.diagnostics.models import conversion
from oversharp.diagnostics.models.conversion import RECORD, convert
from oversharp.diagnostics.models.load import load_path
from oversharp.diagnostics.records.errors import CheckpointError, ConfigError

if not os.environ.get("REQUIRE_ALL"):
    pytest.importorskip("gguf", reason="the package gguf is not installed: pip install '.[llm]'")

WORDS = ("<unk>", "<bos>", "<end>", "<turn>", *"abcdefgh", "ab", "Ġ")
TEMPLATE = "{% for m in messages %}{{ m['content'] }}<turn>{% endfor %}"
HIDDEN, INNER, LAYERS = 32, 64, 2


def write_gguf(path: Path, *, architecture: str = "llama", seed: int = 0) -> Path:
    """Write a Llama of two layers, its embedding quantised in blocks of 32 numbers, as in real files."""
    import gguf

    rng = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name("tiny")
    writer.add_license("mit")
    writer.add_context_length(64)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(WORDS))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(list(WORDS))
    writer.add_token_types([3] * 4 + [1] * (len(WORDS) - 4))
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_eot_token_id(3)
    writer.add_unk_token_id(0)
    writer.add_chat_template(TEMPLATE)
    shapes = {"token_embd.weight": (len(WORDS), HIDDEN), "output_norm.weight": (HIDDEN,)}
    for layer in range(LAYERS):
        own: dict[str, Any] = {"attn_norm": (HIDDEN,), "ffn_norm": (HIDDEN,), "attn_output": (HIDDEN, HIDDEN)}
        own |= {"attn_q": (HIDDEN, HIDDEN), "attn_k": (HIDDEN // 2, HIDDEN), "attn_v": (HIDDEN // 2, HIDDEN)}
        own |= {"ffn_gate": (INNER, HIDDEN), "ffn_up": (INNER, HIDDEN), "ffn_down": (HIDDEN, INNER)}
        shapes |= {f"blk.{layer}.{name}.weight": shape for name, shape in own.items()}
    for name, shape in shapes.items():
        numbers = rng.normal(size=shape).astype(np.float32)
        if name == "token_embd.weight":
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(name, gguf.quants.quantize(numbers, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, numbers)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture(scope="module")
def converted(tiny: Path) -> Path:
    convert(tiny, tiny.parent / "checkpoint")
    return tiny.parent / "checkpoint"


@pytest.mark.slow
def test_the_checkpoint_has_the_files_numbers_rounded_to_bfloat16(tiny: Path, converted: Path) -> None:
    import gguf

    weights = load_path(converted, device=torch.device("cpu"), dtype="float32").model.state_dict()
    stored = {tensor.name: tensor for tensor in gguf.GGUFReader(tiny).tensors}
    for theirs, ours in (
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("blk.1.ffn_down.weight", "model.layers.1.mlp.down_proj.weight"),
    ):
        numbers = gguf.quants.dequantize(stored[theirs].data, stored[theirs].tensor_type)
        assert torch.equal(weights[ours], torch.from_numpy(numbers.copy()).bfloat16().float())
    assert torch.equal(weights["lm_head.weight"], weights["model.embed_tokens.weight"])


@pytest.mark.slow
def test_the_end_tokens_include_the_end_of_text_and_the_end_of_a_turn(converted: Path) -> None:
    loaded = load_path(converted, device=torch.device("cpu"), dtype="float32")
    assert loaded.end_ids == (2, 3)
    assert loaded.context_tokens == 64
    assert loaded.tokenizer.chat_template == TEMPLATE


@pytest.mark.slow
def test_the_card_has_licence_and_file(converted: Path) -> None:
    card = (converted / "README.md").read_text()
    assert 'license: "mit"' in card
    assert "`tiny.gguf`" in card
    assert "F32, Q8_0" in card


@pytest.mark.slow
def test_the_same_file_again_is_kept_and_another_is_refused(tiny: Path, converted: Path, tmp_path: Path) -> None:
    before = (converted / "model.safetensors").stat().st_mtime_ns
    assert convert(tiny, converted).found
    assert (converted / "model.safetensors").stat().st_mtime_ns == before
    with pytest.raises(ConfigError, match="contains other files"):
        convert(write_gguf(tmp_path / "other.gguf", seed=1), converted)


@pytest.mark.slow
@pytest.mark.parametrize("left", [None, 100])
def test_the_error_for_a_damaged_conversion_has_a_hint(
    left: int | None, tiny: Path, converted: Path, tmp_path: Path
) -> None:
    out = shutil.copytree(converted, tmp_path / "out")
    weights = out / "model.safetensors"
    if left is None:
        weights.unlink()
    else:
        weights.write_bytes(weights.read_bytes()[:-left])
    with pytest.raises(CheckpointError, match=r"out: the earlier conversion is damaged .*; delete the folder"):
        convert(tiny, out)


@pytest.mark.slow
def test_a_killed_conversion_leaves_no_checkpoint_and_can_be_repeated(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(conversion, "_dequantise", interrupt)
    with pytest.raises(KeyboardInterrupt):
        convert(tiny, tmp_path / "out")
    monkeypatch.undo()
    assert not (tmp_path / "out").exists()
    leftover = tmp_path / "tmp-out"  # as after SIGKILL
    leftover.mkdir()
    (leftover / RECORD).write_text(json.dumps({"sha256": "of another file"}))
    assert not convert(tiny, tmp_path / "out").found
    assert not leftover.exists()


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (
            lambda tiny, path: path.write_bytes(tiny.read_bytes()[:-1000]),
            "is not a complete GGUF file .*copy the file again",
        ),
        (
            lambda _tiny, path: write_gguf(path, architecture="bert"),
            "of architecture bert, which transformers cannot load",
        ),
        (lambda _tiny, path: path.write_bytes(b"PK\x03\x04"), "is not a GGUF file"),
        (lambda _tiny, _path: None, "cannot be read .*No such file"),
    ],
)
def test_a_file_that_cannot_be_converted_is_refused_in_one_line(
    write: Any, message: str, tiny: Path, tmp_path: Path
) -> None:
    write(tiny, tmp_path / "file.gguf")
    with pytest.raises(CheckpointError, match=message) as caught:
        convert(tmp_path / "file.gguf", tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.glob("*out*"))


def test_the_error_without_the_package_has_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transformers.utils.import_utils.is_gguf_available", lambda: False)
    with pytest.raises(ConfigError, match=r"pip install '\.\[llm\]'"):
        app(
            ["fetch-model", "smollm2", "--out", str(tmp_path / "out")],
            result_action="return_value",
            exit_on_error=False,
        )
