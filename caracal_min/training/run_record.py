"""What the record of a run says of its processes, of the weights it began with, of its text and of its model."""

import re
import time

import torch

from ..data.corpus import Corpus
from ..data.tokenizers import Tokenizer, tokenizer_sha256
from ..files import file_sha256
from ..language_model import LanguageModel
from ..record import code, is_of_training, machine, read_record
from ..weights import WEIGHTS, read_config
from .checkpoint import Checkpoint
from .distributed import Group
from .folder import RunFolder
from .recipe import TrainConfig
from .trained import Trained

__all__ = ["data_of", "model_of", "process_from", "settings_of", "stretches_before"]


def process_from(step: int, checkpoint: Checkpoint | None, corpus: Corpus, group: Group) -> dict:
    """Return with which code and where the run goes on from now, on all processes of a group.

    Args:
        step: steps that were done before.
        checkpoint: what it goes on from; None: it begins.

    Raises:
        ValueError: the processes have different code, or see different checkpoints or data.
    """
    ran = group.gather({"code": code(), "machine": machine(group.device),
                        "checkpoint": checkpoint and checkpoint.sha256, "data": group.world_size > 1 and corpus.digest})
    if any(other["code"]["sha256"] != ran[0]["code"]["sha256"] for other in ran):
        raise ValueError("the processes of this run have different code; install one version on all machines")
    for name, mend in (("checkpoint", "give them one folder of the run, on a disk that all machines see"),
                       ("data", "give all machines the same text")):
        if any(other[name] != ran[0][name] for other in ran):
            raise ValueError(f"the processes of this run do not see the same {name}; {mend}")
    machines = [other["machine"] for i, other in enumerate(ran)
                if other["machine"] not in [earlier["machine"] for earlier in ran[:i]]]
    return {"from_step": step, "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "code": ran[0]["code"],
            "machines": machines}


def settings_of(config: TrainConfig, precision: torch.dtype, tokenizer: Tokenizer, stretches: list[dict],
                model: LanguageModel | None) -> dict:
    """Return what must be equal for a run to be resumed, beside the hash of its corpus.

    Args:
        precision, tokenizer: those in use, whatever the settings call them.
        stretches: `stretches_before` the run.
        model: the caller's own, if any.
    """
    settings = config.resume_settings | {"precision": str(precision).removeprefix("torch."),
                                         "tokenizer": tokenizer.name,
                                         "start": stretches[-1]["sha256"] if stretches else None}
    if model is not None:
        model_config = re.sub(r'"transformers_version": .*', "", repr(model.config))  # not what the model is
        settings |= {"architecture": type(model).__name__, "preset": None, "variant": None, "model": model_config}
    return settings


def stretches_before(start: Trained | None) -> list[dict]:
    """Return the runs whose weights a run begins with, the earliest first: their settings, data, code and lengths.

    Of weights without a record or checkpoint beside them only the source and the hash are known.
    """
    if start is None:
        return []
    if start.facts is not None:
        return [*start.facts["stretches"], {"source": str(start.source), "sha256": start.sha256} | {
            name: start.facts[name] for name in ("step", "seconds", "settings", "corpus", "parts")}]
    stretch = {"source": str(start.source), "sha256": start.sha256}
    path = start.run and start.run / "record.json"
    if path is None or not path.exists():
        return [stretch]
    record = read_record(path, require_commit=False)
    results = record["results"]
    if not is_of_training(record, stretch["sha256"]):
        return [stretch]
    ran = {name: record[name] for name in ("command", "config", "code", "machine", "data", "finished", "seconds")}
    return [*results.get("stretches", ()),
            stretch | ran | {name: results[name] for name in ("steps", "tokens", "parameters")}]


def data_of(corpus: Corpus, validation: str | None) -> dict:
    """Return what the record says of the text and its tokenizer."""
    return {"source": corpus.source, "validation": validation, "tokenizer": corpus.tokenizer.name,
            "tokenizer_sha256": tokenizer_sha256(corpus.tokenizer), "train_tokens": len(corpus.train),
            "validation_tokens": len(corpus.validation), "rule": corpus.rule, "sha256": corpus.digest}


def model_of(folder: RunFolder) -> dict:
    """Return what the record says of the model that was saved: its configuration and the hash of its weights."""
    return {"model": read_config(folder.model), "model_sha256": file_sha256(folder.model / WEIGHTS)}
