from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedTokenizerFast

from oversharp.diagnostics.models.load import LoadedModel, load_path
from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.progress import SilentProgress
from oversharp.diagnostics.tasks.word_problems import ASKS, is_held_out
from oversharp.trainers.config import Precision, SftConfig
from oversharp.trainers.sft import batch_table, response_loss, solution_loss, train_base, worked_example
from oversharp.trainers.worlds import base, get_world
from tests.samplers.tiny_models import build_model

pytestmark = pytest.mark.slow


@pytest.fixture
def config(tmp_path: Path) -> SftConfig:
    return SftConfig(
        output_dir=tmp_path / "base", max_steps=6, batch_size=16, n_examples=100, save_every=2, device="cpu"
    )


def test_the_loss_covers_the_response_only() -> None:
    world = get_world("countdown")
    model = base.build_model(seed=0)
    example_BT = torch.tensor(world.sample_examples(3, wrong_share=0.3, seed=0))
    logits = model(example_BT).logits[:, 5:-1]
    expected = functional.cross_entropy(logits.flatten(0, 1), example_BT[:, 6:].flatten())
    assert response_loss(model, example_BT, world.prompt_tokens).item() == pytest.approx(expected.item(), abs=1e-6)


def test_padding_after_a_short_response_has_no_loss() -> None:
    world = get_world("programs")
    model = base.build_model(0, world)
    ids = {token: index for index, token in enumerate(world.vocabulary)}
    words = ["f(2,1)=", "3", "f(1,3)=", "4", "f(4,2)=", "6", "f(a,b)=", "a", "+", "b", "<eos>"]
    short_BT = torch.tensor([[ids[word] for word in words]])
    padded_BT = functional.pad(short_BT, (0, 2), value=ids["<pad>"])
    short, padded = (response_loss(model, example_BT, world.prompt_tokens) for example_BT in (short_BT, padded_BT))
    assert padded.item() == pytest.approx(short.item(), abs=1e-6)


def test_training_lowers_the_loss(config: SftConfig) -> None:
    train_base(replace(config, max_steps=30, save_every=30))
    loss = [json.loads(line)["loss"] for line in (config.output_dir / "metrics.jsonl").read_text().splitlines()]
    assert loss[0] == pytest.approx(4.7, abs=0.3)  # about ln 107
    assert loss[-1] < 3.5


def test_an_interrupted_base_is_the_uninterrupted_one_bit_for_bit(config: SftConfig, tmp_path: Path) -> None:
    whole = train_base(replace(config, output_dir=tmp_path / "whole"))
    cut = replace(config, output_dir=tmp_path / "cut")

    class StopAfterThree(SilentProgress):
        @contextmanager
        def stage(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
            steps = iter(range(2))

            def advance(_: int) -> None:
                if next(steps, None) is None:
                    raise KeyboardInterrupt

            yield advance

    with pytest.raises(KeyboardInterrupt):
        train_base(cut, StopAfterThree())
    resumed = train_base(replace(cut, resume=True))
    assert (whole / "model.safetensors").read_bytes() == (resumed / "model.safetensors").read_bytes()
    assert resumed.name == "checkpoint-6"


def test_the_seed_determines_weights_examples_and_order(config: SftConfig) -> None:
    assert not torch.equal(batch_table(config), batch_table(replace(config, seed=1)))
    assert batch_table(config).shape == (6, 16)


TEMPLATE = "{% for m in messages %}[{{ m['content'] }}]{% endfor %}"


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model with a byte-level tokenizer."""
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


def test_the_loss_covers_the_responses_only_regardless_of_padding(loaded: LoadedModel) -> None:
    nats = []
    for index in (0, 5, 7):
        prompt_ids, response_ids = worked_example(loaded, index, seed=3)
        ids_1L = torch.tensor([[*prompt_ids, *response_ids]])
        logp_LV = loaded.model(ids_1L).logits[0].log_softmax(dim=-1)
        first = len(prompt_ids)
        nats += [-logp_LV[first + place - 1, token].item() for place, token in enumerate(response_ids)]
    loss = solution_loss(loaded, [0, 5, 7], seed=3)
    assert loss.item() == pytest.approx(sum(nats) / len(nats), abs=1e-5)


def test_examples_are_chats_with_a_boxed_answer_and_none_is_held_out(loaded: LoadedModel) -> None:
    assert worked_example(loaded, 4, seed=0) == worked_example(loaded, 4, seed=0) != worked_example(loaded, 4, seed=1)
    for index in range(40):
        prompt, response = (loaded.tokenizer.decode(ids) for ids in worked_example(loaded, index, seed=0))
        assert prompt.startswith("[")
        assert prompt.endswith(f" {ASKS}]")
        assert not is_held_out(prompt[1:].removesuffix(f" {ASKS}]"))
        assert response.endswith("}.<eos>")
        assert "The answer is \\boxed{" in response


def test_a_warmed_up_model_keeps_its_tokenizer_and_can_be_loaded(pretrained: Path, tmp_path: Path) -> None:
    config = SftConfig(
        model=str(pretrained), output_dir=tmp_path / "warm", max_steps=2, batch_size=2, n_examples=8, learning_rate=1e-3
    )
    warmed = load_path(train_base(config), device=torch.device("cpu"), dtype="float32")
    before = load_path(pretrained, device=torch.device("cpu"), dtype="float32")
    assert warmed.tokenizer.chat_template == TEMPLATE
    assert not torch.equal(warmed.model.lm_head.weight, before.model.lm_head.weight)


def test_bfloat16_rounds_products_but_not_trained_weights(pretrained: Path, tmp_path: Path) -> None:
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


def test_the_default_learning_rate_is_rejected_for_a_pretrained_model() -> None:
    with pytest.raises(ConfigError, match="too high for the pretrained weights of --model; pass --learning-rate 5e-5"):
        SftConfig(model="somewhere")
