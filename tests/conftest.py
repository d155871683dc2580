"""What all tests share: where the checkout is, what a test needs, and when a missing thing is a skip or a failure."""

import json
import os
import shutil
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import huggingface_hub.constants
import pytest
from torch_build import gpu_by_nvidia

if not gpu_by_nvidia():  # Triton, which reads this when PyTorch's compiler imports it, then interprets its kernels
    os.environ.setdefault("TRITON_INTERPRET", "1")

# PyTorch's compiler would take what it has compiled for the whole processor where a part of it is asked for.
if part := os.environ.get("ATEN_CPU_CAPABILITY"):
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{tempfile.gettempdir()}/torchinductor_{part}")

# Pytest keeps the asserts that it has rewritten; otherwise each worker of each run takes six seconds more.
sys.dont_write_bytecode = False

# A suite that was begun in the background, or under nohup, ignores these, and so would every process that it starts.
for name, handler in (("SIGINT", signal.default_int_handler), ("SIGHUP", lambda *_: None)):
    if hasattr(signal, name) and signal.getsignal(getattr(signal, name)) is signal.SIG_IGN:
        signal.signal(getattr(signal, name), handler)

ROOT = Path(__file__).resolve().parent.parent
# Marks stand where they are used; a test that takes one of these fixtures has its mark as well.
OF_FIXTURES = {"browser": "browser", "book": "built", "site": "built", "compiler": "compile"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for fixture in OF_FIXTURES.keys() & set(item.fixturenames):
            item.add_marker(OF_FIXTURES[fixture])


def unavailable(what: str, shared: bool = False) -> NoReturn:
    """Skip the test, with the reason; under CI=true fail it, since there nothing may be missing.

    What lies in ../shared is no part of the repository: WITHOUT_SHARED=1 says that a machine does not have it, and
    with shared=True the test is skipped there.
    """
    known = shared and os.environ.get("WITHOUT_SHARED") == "1"
    if os.environ.get("CI", "").lower() in ("1", "true") and not known:
        pytest.fail(f"{what} (CI=true: nothing may be missing)", pytrace=False)
    pytest.skip(what)


@pytest.fixture(scope="session")
def report_missing() -> Callable[..., NoReturn]:
    """The function `unavailable`, for the fixtures of other folders."""
    return unavailable


@pytest.fixture(scope="session")
def root() -> Path:
    """The top folder of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real data beside the checkout, `../shared/data`: corpora, the GPT-2 tokenizer, evaluation sets."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        unavailable("no ../shared/data beside the checkout: tests on real text need it", shared=True)
    return folder


@pytest.fixture(scope="session")
def hub_cache(shared_data, tmp_path_factory):
    """A cache of the hub that has GPT-2's tokenizer.json, as the hub has it, made from its two older files."""
    from caracal_min.tokenizer import GPT2, GPT2_REVISION

    folder = tmp_path_factory.mktemp("hub")
    file = folder / f"models--{GPT2.replace('/', '--')}" / "snapshots" / GPT2_REVISION / "tokenizer.json"
    file.parent.mkdir(parents=True)
    bpe = shared_data / "gpt2_bpe"
    step = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    end = {"id": 50256, "special": True, "content": "<|endoftext|>", "single_word": False, "lstrip": False,
           "rstrip": False, "normalized": True}
    model = {"dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "",
             "fuse_unk": False, "vocab": json.loads((bpe / "encoder.json").read_text(encoding="utf-8")),
             "merges": (bpe / "vocab.bpe").read_text(encoding="utf-8").split("\n")[1:-1]}
    file.write_text(json.dumps({"version": "1.0", "truncation": None, "padding": None, "added_tokens": [end],
                                "normalizer": None, "pre_tokenizer": step, "post_processor": step,
                                "decoder": step | {"add_prefix_space": True}, "model": model}), encoding="utf-8")
    return folder


@pytest.fixture
def gpt2(hub_cache, monkeypatch):
    """GPT-2's tokenizer is in the cache of the hub, for this process and for those that it starts."""
    monkeypatch.setenv("HF_HUB_CACHE", str(hub_cache))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(hub_cache))


@pytest.fixture
def no_warning() -> Iterator[None]:
    """Every warning is an error, but for two of PyTorch's compiler: of its imports, and of Python 3.13.0 itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.filterwarnings("ignore", "Guards may run slower on Python 3.13.0", RuntimeWarning)
        yield


@pytest.fixture(scope="session")
def compiler() -> str:
    """Path of a C++ compiler, which `torch.compile` needs on a CPU."""
    found = next(filter(None, map(shutil.which, ("g++", "clang++", "c++"))), None)
    if found is None:
        unavailable("no C++ compiler: torch.compile needs one on a CPU")
    return found
