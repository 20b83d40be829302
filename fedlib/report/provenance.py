"""The provenance of results: package versions, commit of the source, and machine."""

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

import torch

import fedlib

PACKAGES = ("torch", "torchvision", "numpy", "pandas", "scipy", "scikit-learn", "matplotlib", "seaborn")


def environment() -> dict[str, object]:
    """Python and package versions, commit (None outside a checkout), system and number of processors."""
    packages = {"fedlib": fedlib.__version__} | {name: version(name) for name in PACKAGES}
    machine = {"system": platform.system(), "processor": processor(), "processors": os.cpu_count()}
    return {"python": platform.python_version(), "packages": packages, "commit": commit(), "machine": machine}


def processor(device: str | torch.device = "cpu") -> str:
    """Name of the processor, or of the GPU."""
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def commit(folder: str | Path = Path(__file__).parent) -> str | None:
    """Commit of the checkout around `folder`, with "+changes" if tracked files differ; None without git."""
    head = git(folder, "rev-parse", "HEAD")
    code = (":(top)", ":(top,exclude)figures/reference")  # not results: a rewritten row would prevent the next one
    changed = git(folder, "status", "--porcelain", "--untracked-files=no", "--", *code)
    return None if head is None or changed is None else head + ("+changes" if changed else "")


def git(folder: str | Path, *arguments: str) -> str | None:
    """The output of a git command; None without git, or if it fails."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
