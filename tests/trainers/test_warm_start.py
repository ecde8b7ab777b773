"""Warming a pretrained model up on worked solutions: what is learned, and that nothing held out is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from oversharp.diagnostics.models.load import LoadedModel, load_path
from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.tasks.word_problems import ASKS, is_held_out
from oversharp.trainers.config import Precision, SftConfig
from oversharp.trainers.sft import train_base
from oversharp.trainers.warm_start import WarmStart
from tests.samplers.tiny_models import build_model

TEMPLATE = "{% for m in messages %}[{{ m['content'] }}]{% endfor %}"


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model whose tokenizer reads any text, byte by byte."""
    folder = tmp_path_factory.mktemp("pretrained")
    words = ["<pad>", "<eos>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(BPE({word: index for index, word in enumerate(words)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>")
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
    build_model(0, spread=0.5, vocab_size=len(words), max_position_embeddings=512).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def loaded(pretrained: Path) -> LoadedModel:
    return load_path(pretrained, device=torch.device("cpu"), dtype="float32")


def test_the_loss_is_that_of_the_responses_alone_whatever_is_padded(loaded: LoadedModel) -> None:
    pool = WarmStart(loaded, seed=3)
    nats = []
    for index in (0, 5, 7):
        one = pool.example(index)
        ids_1L = torch.tensor([[*one.prompt_ids, *one.response_ids]])
        logp_LV = loaded.model(ids_1L).logits[0].log_softmax(dim=-1)
        first = len(one.prompt_ids)
        nats += [-logp_LV[first + place - 1, token].item() for place, token in enumerate(one.response_ids)]
    assert pool.loss(loaded.model, [0, 5, 7]).item() == pytest.approx(sum(nats) / len(nats), abs=1e-5)


def test_examples_are_chats_with_a_boxed_answer_and_none_is_held_out(loaded: LoadedModel) -> None:
    pool = WarmStart(loaded, seed=0)
    assert pool.example(4) == WarmStart(loaded, seed=0).example(4) != WarmStart(loaded, seed=1).example(4)
    for index in range(40):
        one = pool.example(index)
        prompt, said = (loaded.tokenizer.decode(ids) for ids in (one.prompt_ids, one.response_ids))
        assert prompt.startswith("[")
        assert prompt.endswith(f" {ASKS}]")
        assert not is_held_out(prompt[1:].removesuffix(f" {ASKS}]"))
        assert said.endswith("}.<eos>")
        assert "The answer is \\boxed{" in said


def test_a_warmed_up_model_keeps_its_own_tokenizer_and_its_checkpoints_can_be_loaded(
    pretrained: Path, tmp_path: Path
) -> None:
    config = SftConfig(
        model=str(pretrained), output_dir=tmp_path / "warm", max_steps=2, batch_size=2, n_examples=8, learning_rate=1e-3
    )
    warmed = load_path(train_base(config), device=torch.device("cpu"), dtype="float32")
    before = load_path(pretrained, device=torch.device("cpu"), dtype="float32")
    assert warmed.tokenizer.chat_template == TEMPLATE
    assert not torch.equal(warmed.model.lm_head.weight, before.model.lm_head.weight)


def test_bfloat16_rounds_products_and_never_the_weights_that_are_trained(pretrained: Path, tmp_path: Path) -> None:
    def warmed(precision: Precision) -> Tensor:
        config = SftConfig(
            model=str(pretrained),
            output_dir=tmp_path / precision,
            max_steps=2,
            batch_size=2,
            n_examples=8,
            learning_rate=1e-3,
            precision=precision,
        )
        return load_file(train_base(config) / "model.safetensors")["lm_head.weight"]

    before = load_file(pretrained / "model.safetensors")["lm_head.weight"]
    exact, rounded = warmed("float32"), warmed("bfloat16")
    assert rounded.dtype == torch.float32
    assert not torch.equal(rounded, rounded.bfloat16().float())
    assert 0 < torch.dist(rounded, exact) < 0.5 * torch.dist(exact, before)


def test_the_rate_for_random_weights_is_refused_for_a_pretrained_model() -> None:
    with pytest.raises(ConfigError, match="too high for the pretrained weights of --model; pass --learning-rate 5e-5"):
        SftConfig(model="somewhere")
