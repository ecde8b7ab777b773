from __future__ import annotations

from hashlib import blake2b
from io import BytesIO
from pathlib import Path

import pytest
import torch

from oversharp.diagnostics.records.errors import TrainingError
from oversharp.trainers.run.checkpointing import (
    atomic_file,
    atomic_folder,
    committed_step,
    load_state,
    remove_leftovers,
    restore,
    save_checkpoint,
    save_state,
)
from oversharp.trainers.worlds.base import build_model, build_tokenizer
from tests.trainers.runs import no_file_above


def an_optimizer() -> torch.optim.Optimizer:
    weight = torch.nn.Parameter(torch.arange(3.0))
    optimizer = torch.optim.AdamW([weight], lr=0.1)
    weight.grad = torch.ones(3)
    optimizer.step()
    return optimizer


def a_state() -> dict[str, object]:
    return {"optimizer": an_optimizer().state_dict()}


def resume(run: Path, step: int, optimizer: torch.optim.Optimizer) -> None:
    restore(run, step, optimizer, load_state(run, step)["optimizer"])


def test_a_folder_appears_complete_or_not_at_all(tmp_path: Path) -> None:
    def fail() -> None:
        with atomic_folder(tmp_path / "checkpoint-3") as folder:
            (folder / "half").write_text("x")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert not (tmp_path / "checkpoint-3").exists()
    for name in ("old", "new"):  # writing it again replaces it
        with atomic_folder(tmp_path / "checkpoint-3") as folder:
            (folder / name).write_text("x")
        assert [entry.name for entry in (tmp_path / "checkpoint-3").iterdir()] == [name]


def test_a_tokenizer_on_a_full_disk_is_a_one_line_error(tmp_path: Path) -> None:
    """The tokenizers library raises a plain Exception; its file is the largest one here."""
    model, tokenizer = build_model(seed=0), build_tokenizer()
    tokenizer.add_tokens([f"{number}-th word" for number in range(20_000)])
    with (
        no_file_above(1_500_000),
        pytest.raises(TrainingError, match=r"checkpoint-0: cannot be written .*File too large.* --resume"),
    ):
        save_checkpoint(tmp_path, 0, model, tokenizer)
    assert (tmp_path / "tmp-checkpoint-0" / "model.safetensors").is_file()
    assert not (tmp_path / "checkpoint-0").exists()


def test_a_file_keeps_its_old_content_until_the_new_one_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def fail() -> None:
        with atomic_file(path) as file:
            file.write_text("ne")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert path.read_text() == "old"


def test_leftovers_of_a_kill_are_removed(tmp_path: Path) -> None:
    (tmp_path / "tmp-checkpoint-3").mkdir()
    (tmp_path / "tmp-checkpoint-3" / "model.safetensors").write_text("half")
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "tmp-step-3.pt").write_text("half")
    (tmp_path / "checkpoint-0").mkdir()
    remove_leftovers(tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["checkpoint-0", "state"]


def test_only_the_last_committed_state_is_kept(tmp_path: Path) -> None:
    assert committed_step(tmp_path) is None
    for step in (9, 10):
        (tmp_path / f"checkpoint-{step}").mkdir()
        save_state(tmp_path, step, a_state())
    assert committed_step(tmp_path) == 10
    assert [entry.name for entry in (tmp_path / "state").iterdir()] == ["step-10.pt"]


def test_the_optimizer_comes_back_bit_for_bit(tmp_path: Path) -> None:
    optimizer = an_optimizer()
    save_state(tmp_path, 1, {"optimizer": optimizer.state_dict()})
    restored = torch.optim.AdamW([torch.nn.Parameter(torch.arange(3.0))], lr=0.5)
    resume(tmp_path, 1, restored)
    before, after = optimizer.state_dict(), restored.state_dict()
    assert before["param_groups"] == after["param_groups"]
    assert all(torch.equal(before["state"][0][name], after["state"][0][name]) for name in before["state"][0])


def test_a_state_without_its_checkpoint_is_reported(tmp_path: Path) -> None:
    save_state(tmp_path, 4, a_state())
    with pytest.raises(TrainingError, match="checkpoint-4: missing"):
        committed_step(tmp_path)


@pytest.mark.parametrize("content", [b"", b"x", b"rubbish" * 9, b"\x80\x02."])
def test_an_invalid_state_is_reported(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "step-4.pt").write_bytes(content)
    with pytest.raises(TrainingError, match=r"step-4\.pt: damaged.* start a new run"):
        resume(tmp_path, 4, an_optimizer())


def test_a_truncated_state_and_every_flipped_byte_are_detected(tmp_path: Path) -> None:
    save_state(tmp_path, 4, a_state())
    path = tmp_path / "state" / "step-4.pt"
    whole = path.read_bytes()
    flipped = [whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :] for place in range(0, len(whole), 97)]
    for damaged in (whole[:200], *flipped):
        path.write_bytes(damaged)
        with pytest.raises(TrainingError, match="damaged"):
            resume(tmp_path, 4, an_optimizer())
    path.write_bytes(whole)
    resume(tmp_path, 4, an_optimizer())


@pytest.mark.parametrize("saved", [{}, [1], {"optimizer": None}, {"optimizer": {}}, {"optimizer": "other"}])
def test_a_state_of_another_kind_is_reported(tmp_path: Path, saved: object) -> None:
    if saved == {"optimizer": "other"}:
        other = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(2))])
        saved = {"optimizer": other.state_dict()}
    buffer = BytesIO()
    torch.save(saved, buffer)
    (tmp_path / "state").mkdir()
    checksum = blake2b(buffer.getvalue(), digest_size=32).digest()
    (tmp_path / "state" / "step-4.pt").write_bytes(buffer.getvalue() + checksum)
    with pytest.raises(TrainingError, match=r"step-4\.pt: not the state of this run's optimizer") as caught:
        resume(tmp_path, 4, an_optimizer())
    assert "\n" not in str(caught.value)


def test_a_file_instead_of_a_folder_and_vice_versa_are_reported(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    with pytest.raises(TrainingError, match="state: cannot be read as a folder"):
        committed_step(tmp_path)
    with pytest.raises(TrainingError, match=r"step-1\.pt: cannot be written"):
        save_state(tmp_path, 1, a_state())
    (tmp_path / "state").unlink()
    (tmp_path / "state" / "step-4.pt").mkdir(parents=True)
    with pytest.raises(TrainingError, match=r"step-4\.pt: cannot be read"):
        resume(tmp_path, 4, an_optimizer())
