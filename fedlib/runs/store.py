"""The run store: one folder per run, named by its configuration; one file holds state and history.

    <store>/<algorithm>-<key>/config.json        what was run, readable
                              run.safetensors    state and history after `round` rounds; replaced in one step
                              accuracy.csv, rounds.csv    tidy tables, once the run is finished

Nothing here is ever unpickled.
"""

import hashlib
import json
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import safetensors.torch
import torch
from filelock import FileLock, Timeout
from platformdirs import user_cache_dir
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_structure, tree_unflatten
from tqdm import tqdm

from fedlib.checks import check_kind
from fedlib.files import remove_unfinished, write_file, write_text
from fedlib.stack import keys

FORMAT = "2"  # of the files


class Checkpoint(NamedTuple):
    """A run after `round` rounds: tensors by name, `state/...`, `history/...` and `trace/...`."""

    round: int
    tensors: dict[str, Tensor]


def store_root(store: str | Path | None = None) -> Path:
    """The run store: `store`, else the variable FEDLIB_RUNS, else a folder in the user's cache."""
    check_kind("store", store, str | os.PathLike | None, "the path of a folder")
    return Path(store or os.environ.get("FEDLIB_RUNS") or Path(user_cache_dir("fedlib")) / "runs")


def address(config: dict[str, Any]) -> str:
    """16 hex digits that name a configuration."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:16]


class RunFolder:
    """The folder of one run. Use as a context manager: two processes never write the same folder."""

    def __init__(self, config: dict[str, Any], store: str | Path | None = None):
        self.config = config
        self.path = store_root(store) / f"{config['algorithm']}-{address(config)}"
        self.file = self.path / "run.safetensors"

    def __enter__(self) -> "RunFolder":
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = FileLock(self.path / "lock")
            try:
                self._lock.acquire(timeout=0)
            except Timeout:
                tqdm.write(f"{self.path.name} is being computed by another process; waiting for it.")
                self._lock.acquire()
            remove_unfinished(self.path)
        except OSError as error:
            raise OSError(
                f"The run store {str(self.path.parent)!r} cannot be used ({error.strerror or error}); set FEDLIB_RUNS "
                f"to a folder that can be written."
            ) from error
        return self

    def __exit__(self, *exc_info) -> None:
        self._lock.release()

    def rounds_done(self) -> int:
        """The round of the last checkpoint, 0 if there is none; raises as `load` does."""
        return 0 if (saved := self._read(names=())) is None else saved.round

    def load(self) -> Checkpoint | None:
        """The last checkpoint, or None. Raises `ValueError` for a damaged file or one of another version."""
        return self._read(names=None)

    def _read(self, names: Collection[str] | None) -> Checkpoint | None:
        """The last checkpoint with the tensors `names`, by default all."""
        if not self.file.exists():
            return None
        try:
            with safetensors.safe_open(self.file, framework="pt") as opened:
                meta = opened.metadata() or {}
                tensors = {name: opened.get_tensor(name) for name in (opened.keys() if names is None else names)}
        except safetensors.SafetensorError as error:
            raise ValueError(
                f"The run file {str(self.file)!r} is damaged ({error}); delete it to run again."
            ) from error
        if meta.get("format") != FORMAT:
            raise ValueError(
                f"The run folder {str(self.path)!r} was written by another version of fedlib (format "
                f"{meta.get('format')}, this one writes {FORMAT}); delete it, or set FEDLIB_RUNS to another folder."
            )
        return Checkpoint(int(meta["round"]), tensors)

    def save(self, checkpoint: Checkpoint) -> None:
        """Replace the checkpoint; after a crash at any moment the old one or the new one is there, whole."""
        if not (self.path / "config.json").exists():
            write_text(self.path / "config.json", json.dumps(self.config, indent=2, sort_keys=True) + "\n")
        tensors = {name: t.detach().cpu().contiguous() for name, t in checkpoint.tensors.items()}
        meta = {"format": FORMAT, "round": str(checkpoint.round)}
        write_file(self.file, lambda path: _save(tensors, path, meta))


def _save(tensors: dict[str, Tensor], path: Path, meta: dict[str, str]) -> None:
    try:
        safetensors.torch.save_file(tensors, path, meta)
    except safetensors.SafetensorError as error:  # its own name for a full disk
        raise OSError(str(error)) from error


def flatten(state: Any, place: str = "state") -> dict[str, Tensor]:
    """A NamedTuple of tensors, dicts of tensors and other such NamedTuples as one flat dict: `state/field/name`."""
    flat = {}
    for field, value in state._asdict().items():
        if isinstance(value, Tensor):
            flat[f"{place}/{field}"] = value
        elif _is_flat(value):
            flat |= {f"{place}/{field}/{name}": t for name, t in value.items()}
        elif isinstance(value, dict | tuple) and not hasattr(value, "_asdict"):
            ways = zip(keys(value), tree_leaves(value), strict=True)
            flat |= {"/".join((place, field, *way)): t for way, t in ways}
        else:
            flat |= flatten(value, f"{place}/{field}")
    return flat


def _is_flat(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(t, Tensor) for t in value.values())


def unflatten(
    tensors: dict[str, Tensor], template: Any, device: torch.device | str = "cpu", place: str = "state"
) -> Any:
    """The inverse of `flatten`, on `device`; `template` is a state of the same algorithm: it says what is what."""
    fields = {}
    for field, value in template._asdict().items():
        prefix = f"{place}/{field}"
        if isinstance(value, Tensor):
            fields[field] = tensors[prefix].to(device)
        elif isinstance(value, dict | tuple) and not _is_flat(value) and not hasattr(value, "_asdict"):
            leaves = [tensors["/".join((prefix, *way))].to(device) for way in keys(value)]
            fields[field] = tree_unflatten(leaves, tree_structure(value))
        elif isinstance(value, dict):
            own = {n.removeprefix(prefix + "/"): t.to(device) for n, t in tensors.items() if n.startswith(prefix + "/")}
            fields[field] = {name: own[name] for name in sorted(own, key=[*value, *own].index)}  # as in the template
        else:
            fields[field] = unflatten(tensors, value, device, prefix)
    return type(template)(**fields)
