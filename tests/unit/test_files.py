"""Files that are written whole or not at all."""

import pytest

from caracal_min.files import file_sha256, writing


def test_a_file_is_written_with_the_folders_above_it(tmp_path):
    path = tmp_path / "a" / "b" / "file"
    for data in (b"first", b"abc"):
        with writing(path) as partial:
            assert partial.parent == path.parent and partial != path
            partial.write_bytes(data)
        assert [file.read_bytes() for file in path.parent.iterdir()] == [data]
    assert file_sha256(path) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, OSError])
def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path, error):
    (tmp_path / "file").write_text("old")
    with pytest.raises(error), writing(tmp_path / "file") as partial:
        partial.write_text("half of the n")
        raise error
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("file", "old")]
