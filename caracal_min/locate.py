"""Where the files of a model are: shipped with the package, in a folder, or in a repository of the Hugging Face hub."""

from pathlib import Path

from .config import short_repr
from .data.tokenizers import TOKENIZER, TOKENIZER_CONFIG
from .weights import CONFIG, SUMS, WEIGHTS

__all__ = ["locate_model", "shipped_models"]

_FILES = [CONFIG, WEIGHTS, SUMS, TOKENIZER, TOKENIZER_CONFIG]
_SHIPPED = Path(__file__).parent / "pretrained"


def shipped_models() -> tuple[str, ...]:
    """Return the names of the trained models that come with the package, in `caracal_min/pretrained`."""
    return tuple(sorted(path.parent.name for path in _SHIPPED.glob(f"*/{CONFIG}")))


def locate_model(name_or_folder: str | Path, revision: str | None = None) -> Path:
    """Return the folder that has the files of a model, after a download from the hub where that is needed.

    A name that is shipped comes first: a folder of the same name is given as a `Path`, or with `./` before it.

    Args:
        name_or_folder: one of `shipped_models()`, a folder, or "owner/name" on the hub.
        revision: branch, tag or commit of the repository on the hub.

    Raises:
        FileNotFoundError: there is none, in one line that lists the shipped models.
        ValueError: a revision of what is no repository.
    """
    name, shipped, folder = str(name_or_folder), shipped_models(), Path(name_or_folder)
    if isinstance(name_or_folder, str) and name in shipped:
        folder = _SHIPPED / name
    if name and folder.is_dir():
        if revision is not None:
            raise ValueError(f"revision={short_repr(revision)}, but {name} is not on the hub; leave revision out")
        return folder
    accepted = (f"give the name of a shipped model ({', '.join(shipped) or 'this version has none'}), a folder that "
                "save_pretrained wrote, or \"owner/name\" of a repository on the hub")
    if "/" not in name:
        raise FileNotFoundError(f"there is no model {short_repr(name)}; {accepted}")
    import huggingface_hub
    from huggingface_hub.errors import HFValidationError

    try:
        return Path(huggingface_hub.snapshot_download(name, revision=revision, allow_patterns=_FILES))
    except (HFValidationError, OSError) as error:  # hub and network errors are OSErrors
        raise FileNotFoundError(f"{short_repr(name)} is no folder here, and the hub did not give it "
                                f"({type(error).__name__}); {accepted}") from error
