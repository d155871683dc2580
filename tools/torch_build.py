"""Before the requirements are installed: which build of PyTorch this will be, and the one for CPUs if it is asked for.

    python tools/torch_build.py                                                     # says which, if it matters
    TORCH_INDEX=https://download.pytorch.org/whl/cpu python tools/torch_build.py    # installs PyTorch from there

On Linux the index of Python's packages has PyTorch with CUDA alone, several gigabytes that a machine without an NVIDIA
GPU has no use for; PyTorch's own index has builds for CPUs.  `make` runs this first.  It never fails: where TORCH_INDEX
cannot be reached it says so, and the requirements then bring what pip finds elsewhere.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
WITH_CUDA = "PyTorch: pip will fetch the build with CUDA, {size} on disk, and this machine shows no NVIDIA GPU."
INSTEAD = """\
         The build for CPUs has 0.7 GB.  To take it, stop this (Ctrl-C) and run
             make book TORCH_INDEX={index}"""
SIZE = "4.6 GB"


def pinned() -> str:
    """Return the version of PyTorch that requirements.txt names."""
    return re.search(r"^torch==(\S+)", (ROOT / "requirements.txt").read_text(), re.MULTILINE)[1]


def installed() -> str | None:
    """Return the version of PyTorch that is here, without what marks a build; None if there is none."""
    try:
        return metadata.version("torch").partition("+")[0]
    except metadata.PackageNotFoundError:
        return None


def gpu_by_nvidia() -> bool:
    """Say whether the system shows one; `/dev/dxg` is how Windows lends its own to Linux."""
    return shutil.which("nvidia-smi") is not None or any(map(os.path.exists, ("/dev/nvidiactl", "/dev/dxg")))


def offered() -> set[str]:
    """Return the versions of PyTorch that pip, as it is set up here, can choose from; empty if it cannot tell."""
    done = subprocess.run([sys.executable, "-m", "pip", "index", "versions", "torch"], capture_output=True, text=True)
    listed = re.search(r"^Available versions: (.*)", done.stdout, re.MULTILINE)
    return set(listed[1].split(", ")) if listed else set()


def brings_cuda(system: str, versions: set[str], wanted: str, gpu: bool) -> bool:
    """Say whether pip would fetch CUDA for nothing: Linux, no GPU, and no build of this version for CPUs on offer."""
    return system == "Linux" and not gpu and wanted in versions and f"{wanted}+cpu" not in versions


def install(index: str, wanted: str) -> bool:
    """Install PyTorch alone from an index, and say whether that could be done."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--retries", "1", "--index-url", index]
    return subprocess.run([*pip, f"torch=={wanted}"], capture_output=True).returncode == 0


def main() -> int:
    """Install from TORCH_INDEX, or say what is coming."""
    wanted, index = pinned(), os.environ.get("TORCH_INDEX", "")
    if installed() == wanted:
        return 0
    if index:
        print(f"PyTorch {wanted} from {index} ...", flush=True)
        if install(index, wanted):
            return 0
        print(f"PyTorch: {index} has no {wanted} for this Python, or cannot be reached; going on without it.")
    if brings_cuda(platform.system(), offered(), wanted, gpu_by_nvidia()):
        print(WITH_CUDA.format(size=SIZE))
        if not index:
            print(INSTEAD.format(index=CPU_INDEX))
    return 0


if __name__ == "__main__":
    sys.exit(main())
