"""Download one file: resumed after an interruption, checked, and moved into place only when complete."""

import hashlib
import http.client
import os
import urllib.error
import urllib.request
from pathlib import Path

from tqdm import tqdm

_CHUNK = 1 << 20
_TRIES = 3


def fetch(url: str, path: str | os.PathLike[str], md5: str | None = None, sha256: str | None = None) -> Path:
    """Download a file, unless it exists, through `<path>.part`, and check its checksums; return `path`."""
    path = Path(path)
    sums = {"md5": md5, "sha256": sha256}
    if path.exists():
        if wrong := _wrong_sum(path, sums):
            raise ValueError(f"{path} is not the expected file: {wrong}; delete it or replace it from {url}.")
        return path
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for remaining in reversed(range(_TRIES)):
            try:
                _transfer(url, part)
                break
            except (OSError, http.client.HTTPException) as error:
                if remaining == 0 or isinstance(error, urllib.error.HTTPError):
                    raise
    except (OSError, http.client.HTTPException) as error:
        raise ConnectionError(
            f"{path.name} could not be downloaded from {url} ({_reason(error)}); put the file by hand at {path}."
        ) from error
    if wrong := _wrong_sum(part, sums):
        part.unlink()
        raise ValueError(f"{url} did not deliver the expected file: {wrong}; put the right file by hand at {path}.")
    os.replace(part, path)
    return path


def _transfer(url: str, part: Path) -> None:
    """Append the rest of the file to `part` until the file is complete (HTTP Range)."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "fedlib"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        response = urllib.request.urlopen(request, timeout=60)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # no bytes after `have`: complete, or another file; the checksum decides
            error.close()
            return
        raise
    with response:
        resumed = response.status == 206
        have = have if resumed else 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length else None
        bar = tqdm(total=total, initial=have, unit="B", unit_scale=True, desc=part.stem, disable=None)
        with open(part, "ab" if resumed else "wb") as file, bar:
            while chunk := response.read(_CHUNK):
                file.write(chunk)
                bar.update(len(chunk))
            file.flush()
            os.fsync(file.fileno())
    if total is not None and part.stat().st_size != total:
        raise ConnectionError(f"the transfer ended after {part.stat().st_size:,} of {total:,} bytes")


def _wrong_sum(path: Path, sums: dict[str, str | None]) -> str:
    """First wrong checksum of a file, as text; empty if all are right."""
    for algorithm, expected in sums.items():
        if expected is not None:
            with open(path, "rb") as file:
                digest = hashlib.file_digest(file, lambda a=algorithm: hashlib.new(a, usedforsecurity=False))
            if digest.hexdigest() != expected:
                return f"its {algorithm} is {digest.hexdigest()} instead of {expected}"
    return ""


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        error.close()
        return f"{error.code} {error.reason}"
    return str(getattr(error, "reason", "") or error or type(error).__name__)
