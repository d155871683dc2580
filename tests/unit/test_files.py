"""Files written whole or not at all: errors, kills at every step, a full disk."""

import errno
import os
import re
import resource
import shutil
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from caracal_min import Caracal, CaracalConfig
from caracal_min import files as module
from caracal_min.data import tokenize
from caracal_min.files import file_sha256, reading_folder, writing, writing_folder
from caracal_min.training.checkpoint import Checkpoints

SMALL = CaracalConfig(vocab_size=30, d_model=8, n_layers=3, n_heads=2, window_size=4)


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_file_is_written_with_the_folders_above_it(tmp_path):
    path = tmp_path / "a" / "b" / "file"
    for data in (b"first", b"abc"):
        with writing(path) as partial:
            assert partial.parent == path.parent and partial != path
            partial.write_bytes(data)
        assert contents(tmp_path) == {"a/b/file": data}
    assert file_sha256(path) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_a_folder_keeps_what_is_not_written_again(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "config").write_text("old")
    with writing_folder(tmp_path, last="config") as partial:
        assert list(partial.iterdir()) == []
        for name in ("weights", "config", "also"):
            (partial / name).write_text("new")
        assert contents(tmp_path)["config"] == b"old"
    assert contents(tmp_path) == {"notes.txt": b"mine", "weights": b"new", "config": b"new", "also": b"new"}


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, OSError("no more")])
def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path, error):
    (tmp_path / "file").write_text("old")
    with pytest.raises(OSError if isinstance(error, OSError) else error), writing(tmp_path / "file") as partial:
        partial.write_text("half of the n")
        raise error
    with pytest.raises(OSError if isinstance(error, OSError) else error), writing_folder(tmp_path, "file") as partial:
        (partial / "file").write_text("new")
        (partial / "other").write_text("half of the n")
        raise error
    assert contents(tmp_path) == {"file": b"old"} and [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_model_can_replace_the_files_that_it_was_read_from(tmp_path):
    torch.manual_seed(0)
    Caracal(SMALL).save_pretrained(tmp_path)
    before = contents(tmp_path)
    Caracal.from_pretrained(tmp_path).save_pretrained(tmp_path)
    assert contents(tmp_path) == before


KILLER = """
import os, signal, sys
from pathlib import Path
import torch
from caracal_min import Caracal, CaracalConfig
from caracal_min.data import tokenize
from caracal_min.files import writing

def write_file(folder, word):
    with writing(folder / "file") as partial:
        with open(partial, "w") as file:
            for _ in range(1000):
                print(word, file=file)
            file.flush()
            os.fsync(file.fileno())
            print(word, file=file)

def write_model(folder, word, window=None):
    torch.manual_seed(len(word))
    Caracal(CaracalConfig(30, 8, 3, 2, window_size=window or len(word))).save_pretrained(folder)

def write_weights(folder, word):
    write_model(folder, word, 4)

def counted(call, deadline):
    def wrapper(*arguments, **options):
        global steps
        for at in ("before", "after"):
            steps += 1
            if steps == deadline:
                os.kill(os.getpid(), signal.SIGKILL)
            result = call(*arguments, **options) if at == "before" else result
        return result
    return wrapper

write, steps = globals()[sys.argv[1]], 0
write(Path(sys.argv[2]) / "old", "old")
write(Path(sys.argv[2]) / "new", "the new")
for deadline in range(1, 1000):
    folder = Path(sys.argv[2]) / f"{deadline:03}"
    write(folder, "old")
    child = os.fork()
    if not child:
        os.fsync, os.replace, os.unlink = (counted(call, deadline) for call in (os.fsync, os.replace, os.unlink))
        write(folder, "the new")
        os._exit(0)
    if os.waitpid(child, 0)[1] == 0:
        break
"""


@pytest.mark.parametrize("kind, kept", [
    ("write_file", ["old", "new"]),
    ("write_weights", ["old", "no configuration", "new"]),
    ("write_model", ["old", "no configuration", "new"]),  # of the same shapes, so that nothing else would tell
])
def test_killed_at_any_step_the_old_or_the_new_is_there(tmp_path, kind, kept):
    done = subprocess.run([sys.executable, "-c", KILLER, kind, tmp_path], capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    old, new, *killed = [contents(tmp_path / name) for name in ("old", "new", *sorted(
        path.name for path in tmp_path.iterdir() if path.name.isdigit()))]
    assert old.keys() == new.keys() and old != new and killed.pop() == new and len(killed) >= 6
    seen = []
    for files in killed:
        visible = {name: data for name, data in files.items() if "partial" not in name}
        config = visible.get("config.json")
        state = ("old" if visible == old else "new" if visible == new else
                 "no configuration" if config is None and kind != "write_file" else f"a mixture: {visible.keys()}")
        seen += [state] if seen[-1:] != [state] else []
    assert seen == kept


def test_what_a_kill_leaves_is_cleared_away_by_the_next_call(tmp_path):
    (tmp_path / "file.partial").write_text("half of a very long text")
    left, at_work = tmp_path / ".partial-1", tmp_path / ".partial-2"
    for folder, age in ((left, 90_000), (at_work, 80_000)):
        folder.mkdir()
        (folder / "foreign").write_text("half")
        os.utime(folder, (time.time() - age,) * 2)
    with writing(tmp_path / "file") as partial:
        partial.write_text("new")
    for word in ("new", "newer"):
        assert left.exists()  # it may hold all that there is
        with writing_folder(tmp_path, "config") as partial:
            (partial / "config").write_text(word)
    assert at_work.exists() and not left.exists()
    shutil.rmtree(at_work)
    assert contents(tmp_path) == {"file": b"new", "config": b"newer"} and not [*tmp_path.glob(".partial*")]


def test_files_that_belong_to_the_old_last_one_go_with_it(tmp_path):
    for name in ("config", "weights-1", "weights-2", "words"):
        (tmp_path / name).write_text("old")
    with writing_folder(tmp_path, "config", replaced=lambda names: ["weights-*"]) as partial:
        (partial / "words").write_text("new")
    assert len(contents(tmp_path)) == 4
    with writing_folder(tmp_path, "config", replaced=lambda names: ["weights-*"]) as partial:
        for name in ("config", "weights-2"):
            (partial / name).write_text("new")
        assert len(contents(tmp_path)) >= 4
    assert contents(tmp_path) == {"config": b"new", "weights-2": b"new", "words": b"new"}


def test_several_may_write_a_folder_at_once(tmp_path):
    def write(name):
        for _ in range(20):
            with writing_folder(tmp_path, "config") as partial:
                for file in ("config", "weights"):
                    (partial / file).write_text("new")

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(write, range(3)))
    assert contents(tmp_path) == {"config": b"new", "weights": b"new"} and not [*tmp_path.glob(".partial*")]


def write_words(folder, word):
    with writing_folder(folder, "config", replaced=lambda names: ["part-*"]) as partial:
        for file in ("config", "weights", "also"):
            (partial / file).write_text(word)


def test_of_two_that_write_a_folder_at_once_one_is_there(tmp_path, monkeypatch):
    """The second begins when the first has renamed a file."""
    started, replace = [], os.replace

    def noted_replace(old, new):
        replace(old, new)
        if not started:
            started.append(pool.submit(write_words, tmp_path, "second"))
            wait(started, timeout=0.3)

    monkeypatch.setattr(os, "replace", noted_replace)
    with ThreadPoolExecutor(1) as pool:
        write_words(tmp_path, "first")
        started[0].result()
    assert {*contents(tmp_path).values()} == {b"second"}


@pytest.mark.parametrize("name", ["config", "weights", "part-1"])
def test_a_folder_in_the_place_of_a_file_is_found_before_anything_goes(tmp_path, name):
    write_words(tmp_path, "old")
    (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / name).mkdir()
    before = contents(tmp_path)
    with pytest.raises(OSError, match=rf"Is a directory: '{tmp_path / name}'\); what was there is unchanged"):
        write_words(tmp_path, "new")
    assert contents(tmp_path) == before and not [*tmp_path.glob(".partial*")]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
@pytest.mark.parametrize("at", ["before", "after"])
def test_an_error_among_the_renamings_loses_no_file(tmp_path, monkeypatch, error, at):
    """An interrupt comes once; what the disk refuses, it refuses again."""
    steps, deadline, seen = 0, 0, set()

    def failing(call):
        def wrapper(*given, **options):
            nonlocal steps
            steps += 1
            due = steps == deadline or (error is OSError and steps > deadline)
            if due and at == "before":
                raise error
            call(*given, **options)
            if due:
                raise error
        return wrapper

    for deadline in range(1, 9):
        folder = tmp_path / str(deadline)
        write_words(folder, "old")
        (folder / "part-1").write_text("old")
        steps = 0
        with monkeypatch.context() as patch, pytest.raises(error) as caught:
            patch.setattr(os, "replace", failing(os.replace))
            patch.setattr(Path, "unlink", failing(Path.unlink))
            write_words(folder, "new")
            raise error  # of no step: there are seven, two of them for the permissions
        words = {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}
        left = {path.name: path.read_text() for path in folder.glob(".partial*/*")}
        if words == dict.fromkeys(("config", "weights", "also", "part-1"), "old"):
            seen.add("old")
            assert not left and (error is KeyboardInterrupt or "what was there is unchanged" in str(caught.value))
        elif words == dict.fromkeys(("config", "weights", "also"), "new"):
            seen.add("new")
            assert not left
            assert error is KeyboardInterrupt or deadline == 8 or "the new files are in place" in str(caught.value)
        else:
            seen.add("half")
            assert error is OSError and {**words, **left} | {"part-1": "old"} == dict.fromkeys(
                ("config", "weights", "also"), "new") | {"part-1": "old"}
            (partial,) = folder.glob(".partial*")
            remove = "remove part-1, then " if "part-1" in words else ""
            assert f"it is half replaced: {remove}move what is in {partial} into it, config last" in str(caught.value)
    assert "half" not in seen if error is KeyboardInterrupt else "half" in seen


@pytest.mark.skipif(sys.platform == "win32", reason="no folder can be locked there")
def test_a_folder_that_is_locked_for_long_is_left_alone(tmp_path, monkeypatch):
    import fcntl

    write_words(tmp_path, "old")
    monkeypatch.setattr(module, "_LONGEST_WAIT", 0.05)
    other = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    with pytest.raises(OSError, match="another program holds a lock on it.*what was there is unchanged"):
        write_words(tmp_path, "new")
    os.close(other)
    assert {*contents(tmp_path).values()} == {b"old"} and not [*tmp_path.glob(".partial*")]


def test_the_times_of_files_whose_hashes_lie_beside_them_may_change(tmp_path):
    """As on disks that are mounted from elsewhere."""
    write_words(tmp_path, "old")
    (tmp_path / "hashes").write_text("of all")
    with reading_folder(tmp_path, "config", "hashes"):
        os.utime(tmp_path / "config", (1, 1))
    with pytest.raises(ValueError, match="was saved anew"), reading_folder(tmp_path, "config", "hashes"):
        (tmp_path / "hashes").write_text("of others")


def test_files_that_are_written_anew_while_they_are_read_are_refused(tmp_path):
    write_words(tmp_path, "old")
    with reading_folder(tmp_path, "config", "hashes"):
        assert (tmp_path / "weights").read_text() == "old"
    for act in (lambda: write_words(tmp_path, "old"), (tmp_path / "config").unlink, lambda: write_words(tmp_path, "a")):
        with pytest.raises(ValueError, match=f"^{tmp_path} was saved anew while it was read; read it again$"):
            with reading_folder(tmp_path, "config", "hashes"):
                act()
    with pytest.raises(ZeroDivisionError), reading_folder(tmp_path, "config", "hashes"):
        write_words(tmp_path, "new")
        raise ZeroDivisionError


def write_shards(folder):
    (folder / "text.txt").write_text("a text of some words\n" * 1000)
    tokenize(folder / "text.txt", folder, "byte", 10_000, progress=False)


@pytest.mark.parametrize("umask, mode", [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
@pytest.mark.parametrize("write, names", [
    (lambda folder: Caracal(SMALL).save_pretrained(folder), {"config.json", "model.safetensors", "SHA256SUMS"}),
    (lambda folder: checkpoint_of(4)(folder), {"checkpoint.safetensors"}),
    (write_shards, {"manifest.json", "shard_00000.bin"}),
], ids=["model", "checkpoint", "shards"])
def test_files_get_the_permissions_of_any_new_file(tmp_path, umask, mode, write, names):
    """safetensors writes files that nobody but their owner can read."""
    before = os.umask(umask)
    try:
        for _ in range(2):
            write(tmp_path)
    finally:
        os.umask(before)
    found = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir() if path.name in names}
    assert found == dict.fromkeys(names, mode)


@pytest.fixture
def small_disk(tmp_path):
    """A folder that has room for 512 KiB: a disk of that size where one can be mounted, else a limit for every file."""
    folder, limits = tmp_path / "disk", resource.getrlimit(resource.RLIMIT_FSIZE)
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**19, limits[1]))
    yield folder
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    if not mounted.returncode:
        subprocess.run(["umount", "-l", folder], check=True)


def bytes_of(count):
    def write(folder):
        with writing(folder / "file") as partial:
            partial.write_bytes(bytes(count))
    return write


def tensor_of(count):
    def write(folder):
        with writing(folder / "file") as partial:
            save_file({"x": torch.zeros(count // 4)}, partial)
    return write


def model_of(width):
    return lambda folder: Caracal(CaracalConfig(30, width, 3, 2, window_size=width)).save_pretrained(folder)


def checkpoint_of(width):
    model = torch.nn.Linear(width, width)
    return lambda folder: Checkpoints(folder).save(model, torch.optim.AdamW(model.parameters()), {"step": width})


@pytest.mark.parametrize("write, small, large", [
    (bytes_of, 1000, 2**20), (tensor_of, 1000, 2**20), (model_of, 8, 128), (checkpoint_of, 4, 1024)])
def test_a_full_disk_leaves_the_old_file_and_gets_one_line(small_disk, write, small, large):
    write(small)(small_disk)
    before = contents(small_disk)
    for _ in range(2):
        with pytest.raises(OSError, match=rf"^{small_disk}.* could not be written \(.*(No space left|File too large).*"
                                          r"\); what was there is unchanged: make room, or give another") as caught:
            write(large)(small_disk)
        assert "\n" not in str(caught.value)
        assert contents(small_disk) == before and not [*small_disk.glob(".partial*")]
    write(small)(small_disk)


def test_a_place_that_cannot_be_written_gets_one_line(tmp_path):
    (tmp_path / "file").write_text("old")
    (tmp_path / "folder").mkdir()
    for path, why in ((tmp_path / "file" / "below", "File exists: .*/file'"), (tmp_path / "folder", "Is a directory")):
        with pytest.raises(OSError, match=rf"^{path} could not be written \(.*{why}.*\); what was there") as caught:
            with writing(path) as partial:
                partial.write_text("new")
        assert "\n" not in str(caught.value)
    with pytest.raises(OSError, match=r"file could not be written \(.*File exists.*\)"):
        Caracal(SMALL).save_pretrained(tmp_path / "file")
    assert contents(tmp_path) == {"file": b"old"}


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.EIO])
def test_a_disk_may_flush_no_folder_and_an_error_after_the_renaming_says_so(tmp_path, monkeypatch, number):
    sync = os.fsync

    def refuse_folders(opened):
        if stat.S_ISDIR(os.fstat(opened).st_mode):
            raise OSError(number, os.strerror(number))
        sync(opened)

    monkeypatch.setattr(os, "fsync", refuse_folders)
    with nullcontext() if number != errno.EIO else pytest.raises(OSError, match="; the new file is in place$"):
        with writing(tmp_path / "file") as partial:
            partial.write_text("new")
        write_words(tmp_path, "new")
    assert contents(tmp_path) == dict.fromkeys(["file"] + ["config", "weights", "also"] * (number != errno.EIO), b"new")


def test_the_bytes_are_on_the_disk_before_the_name_and_the_name_before_the_end(tmp_path, monkeypatch):
    """What a power cut would show, which no test can make."""
    steps, sync, replace = [], os.fsync, os.replace

    def noted_sync(opened):
        (path,) = (p for p in (tmp_path, *tmp_path.rglob("*")) if p.stat().st_ino == os.fstat(opened).st_ino)
        steps.append(f"sync {path.relative_to(tmp_path)}")
        sync(opened)

    def noted_replace(old, new):
        steps.append(f"name {new.relative_to(tmp_path)}")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(os, "replace", noted_replace)
    with writing(tmp_path / "file") as partial:
        partial.write_text("new")
    assert steps == ["sync file.partial", "name file", "sync ."]
    steps.clear()
    with writing_folder(tmp_path, "config") as partial:
        for name in ("config", "weights"):
            (partial / name).write_text("new")
    assert sorted(re.sub("partial-[^/]*", "partial", step) for step in steps[:2]) == [
        "sync .partial/config", "sync .partial/weights"]
    assert steps[2:] == ["name weights", "sync .", "name config", "sync ."]
