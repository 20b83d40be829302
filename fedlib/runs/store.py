"""The run store: one folder per run, named by its configuration; one file holds state and history.

    <store>/<algorithm>-<key>/config.json        configuration of the run
                              run.safetensors    state and history after `round` rounds; replaced atomically
                              accuracy.csv, rounds.csv    tidy tables, once the run is finished

Nothing is pickled or unpickled.
"""

import hashlib
import json
import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import safetensors.torch
import torch
from filelock import BaseFileLock, FileLock, Timeout
from platformdirs import user_cache_dir
from torch import Tensor
from tqdm import tqdm

from fedlib.checks import check_kind
from fedlib.files import MODE, remove_unfinished, write_file, write_text

FORMAT = "2"  # version of the file format


class Checkpoint(NamedTuple):
    """State and history after `round` rounds: tensors by name, `state/...`, `history/...` and `trace/...`."""

    round: int
    tensors: dict[str, Tensor]


def store_root(store: str | Path | None = None) -> Path:
    """Path of the run store: `store`, else the variable FEDLIB_RUNS, else a folder in the user's cache."""
    check_kind("store", store, str | os.PathLike | None, "the path of a folder")
    return Path(store or os.environ.get("FEDLIB_RUNS") or Path(user_cache_dir("fedlib")) / "runs").expanduser()


def address(config: dict[str, Any]) -> str:
    """Hash of a configuration: 16 hex digits."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:16]


class RunFolder:
    """The folder of one run. As a context manager it locks the folder: two processes never write to it.

    A folder of another user without write permission is not locked; a finished run is read from it.
    """

    def __init__(self, config: dict[str, Any], store: str | Path | None = None):
        self.config = config
        name = re.sub(r"[^\w.+-]", "_", config["algorithm"])[:100]
        self.path = store_root(store) / f"{name}-{address(config)}"
        self.file = self.path / "run.safetensors"
        self._lock: BaseFileLock | None = None

    @property
    def writable(self) -> bool:
        """True if this user may write into the folder, or the folder does not exist."""
        return not self.path.exists() or os.access(self.path, os.W_OK)

    def __enter__(self) -> "RunFolder":
        if not self.writable and self.rounds_done() == self.config.get("rounds"):
            return self
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = FileLock(self.path / "lock", mode=MODE)
            try:
                self._lock.acquire(timeout=0)
            except Timeout:
                tqdm.write(f"{self.path.name} is being computed by another process; waiting for it.")
                self._lock.acquire()
            remove_unfinished(self.path)
        except OSError as error:
            raise OSError(
                f"The run store {str(self.path.parent)!r} cannot be used ({error.strerror or error}); set FEDLIB_RUNS "
                f"to a writable folder."
            ) from error
        return self

    def __exit__(self, *exc_info) -> None:
        if self._lock is not None:
            self._lock.release()

    def rounds_done(self) -> int:
        """Round of the last checkpoint, 0 if there is none; raises as `load` does."""
        saved = self.load(names=())
        return saved.round if saved else 0

    def load(self, names: Collection[str] | None = None) -> Checkpoint | None:
        """Last checkpoint (with the tensors `names`), or None; `ValueError` for a damaged file or another version."""
        if not self.file.exists():
            return None
        try:
            with safetensors.safe_open(self.file, framework="pt") as opened:
                meta = opened.metadata() or {}
                wanted = opened.keys() if names is None else names
                tensors = {name: opened.get_tensor(name).clone() for name in wanted}  # a view would keep the file open
        except safetensors.SafetensorError as error:
            raise ValueError(f"The file {str(self.file)!r} is damaged ({error}); delete it to run again.") from error
        if meta.get("format") != FORMAT:
            raise ValueError(
                f"The run folder {str(self.path)!r} was written by another version of fedlib (format "
                f"{meta.get('format')}, this one writes {FORMAT}); delete it, or set FEDLIB_RUNS to another folder."
            )
        if names is None and meta.get("checksum", actual := _checksum(meta["round"], tensors)) != actual:
            raise ValueError(f"The file {str(self.file)!r} is damaged (its checksum differs); delete it to run again.")
        return Checkpoint(int(meta["round"]), tensors)

    def save(self, checkpoint: Checkpoint) -> None:
        """Replace the checkpoint atomically: after a crash the folder has the complete old or new one."""
        if not (self.path / "config.json").exists():
            write_text(self.path / "config.json", json.dumps(self.config, indent=2, sort_keys=True) + "\n")
        tensors = {name: t.detach().cpu().contiguous() for name, t in checkpoint.tensors.items()}
        seen: set[int] = set()
        for name, t in tensors.items():
            if (memory := t.untyped_storage().data_ptr()) in seen:  # shared memory: a file needs a copy
                tensors[name] = t.clone()
            seen.add(memory)
        meta = {"format": FORMAT, "round": str(checkpoint.round)}
        meta["checksum"] = _checksum(meta["round"], tensors)
        write_file(self.file, lambda path: _save(tensors, path, meta))


def _checksum(round: str, tensors: dict[str, Tensor]) -> str:
    """Checksum of a run file, 16 hex digits."""
    digest = hashlib.sha256(round.encode())
    for name, t in sorted(tensors.items()):
        digest.update(f"{name} {t.dtype} {tuple(t.shape)}".encode())
        digest.update(t.reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()[:16]


def _save(tensors: dict[str, Tensor], path: Path, meta: dict[str, str]) -> None:
    try:
        safetensors.torch.save_file(tensors, path, meta)
    except safetensors.SafetensorError as error:  # raised for a full disk, for example
        raise OSError(str(error)) from error
