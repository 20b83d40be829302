"""Small archives in the layout of the official data sets, and a local server that can interrupt a transfer."""

import bz2
import gzip
import hashlib
import io
import json
import struct
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import torch
from PIL import Image


class FileServer(ThreadingHTTPServer):
    """Serves the files of a folder with Range support; `cut` bytes per answer when it is set."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder, self.cut, self.ranges = folder, None, []
        self.url = f"http://127.0.0.1:{self.server_port}/"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.ranges.append(self.headers["Range"])
        path = self.server.folder / self.path[1:]
        if not path.is_file():
            return self.send_error(404)
        body = path.read_bytes()
        start = int((self.headers["Range"] or "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        if start >= len(body):
            return self.send_error(416)
        self.send_response(206 if self.headers["Range"] else 200)
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        stop = len(body) if self.server.cut is None else start + self.server.cut
        self.wfile.write(body[start:stop])
        return None

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""


@contextmanager
def serve(folder: Path) -> Iterator[FileServer]:
    """A server of `folder` on a free port of this machine."""
    folder.mkdir(exist_ok=True)
    with FileServer(folder) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def pictures(n: int, *shape: int, seed: int = 0) -> np.ndarray:
    """uint8 [n, *shape] of noise."""
    return np.random.default_rng(seed).integers(0, 256, (n, *shape), dtype=np.uint8)


def tar_gz(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def zipped(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def encoded(picture: np.ndarray, kind: str) -> bytes:
    """An image as the bytes of a PNG or JPEG file."""
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, kind)
    return buffer.getvalue()


def idx_gz(values: np.ndarray) -> bytes:
    """The format of MNIST: magic number, sizes, bytes."""
    header = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
    return gzip.compress(header + values.astype(np.uint8).tobytes())


def libsvm_bz2(x: np.ndarray, y: list[int]) -> bytes:
    """`x` [n, 16, 16] in [-1, 1] as text, labels from 1 as in USPS."""
    texts = [" ".join(f"{i}:{v}" for i, v in enumerate(image.ravel().tolist(), 1)) for image in x]
    return bz2.compress("".join(f"{label + 1} {text} \n" for label, text in zip(y, texts, strict=True)).encode())


def domainnet_files() -> tuple[dict[str, bytes], dict[str, np.ndarray]]:
    """The official files of a DomainNet with three classes, by their path on the server, and the content of each image.

    Every class has three images to train and two to test in each domain, but painting has no t-shirt to train.
    """
    files, held = {}, {}
    for d, domain in enumerate(("clipart", "infograph", "painting", "quickdraw", "real", "sketch")):
        archive, lists = {}, {"train": "", "test": ""}
        for label, name in enumerate(("ant", "bee", "t-shirt")):
            for i in range(5):
                part = "train" if i < 3 else "test"
                if (domain, name, part) == ("painting", "t-shirt", "train"):
                    continue
                member = f"{domain}/{name}/{domain}_{label + 1:03d}_{i:06d}.jpg"
                held[member] = pictures(1, 9, 12, 3, seed=100 * d + 10 * label + i)[0]
                archive[member] = encoded(held[member], "PNG")  # without loss, whatever the name says
                lists[part] += f"{member} {label}\n"
        archive[f"{domain}/ant/a_duplicate.jpg"] = b"in no list"
        folder = "groundtruth/" if domain in ("clipart", "painting") else ""
        files[f"{folder}{domain}.zip"] = zipped(archive)
        files |= {f"domainnet/txt/{domain}_{part}.txt": text.encode() for part, text in lists.items()}
    return files, held


def leaf_json(writers: dict[str, tuple[np.ndarray, list[int]]]) -> bytes:
    """Images uint8 [n, 28, 28] and labels by writer in the layout of LEAF."""
    data = {name: {"x": (x.reshape(len(x), -1) / 255).tolist(), "y": y} for name, (x, y) in writers.items()}
    sizes = [len(y) for _, y in writers.values()]
    return json.dumps({"users": list(writers), "num_samples": sizes, "user_data": data}).encode()


def torch_file(x: np.ndarray, y: np.ndarray) -> bytes:
    """Images uint8 [n, H, W, 3] and labels [n] as torch.save writes them."""
    buffer = io.BytesIO()
    torch.save((torch.from_numpy(x), torch.from_numpy(y)), buffer)
    return buffer.getvalue()
