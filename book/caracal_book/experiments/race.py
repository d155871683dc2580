"""The race: the same text, tokens, batches and parameters for every way to mix tokens, several seeds, a sweep of rates.

The rule of the sweep: every contender runs at every learning rate with the first seed, on fewer tokens; at the rate
where its held-out loss is lowest it then runs on all tokens with every seed.  (With sweep_part=1 the sweep runs on all
tokens, and what is left are the other seeds.)  A best rate at the edge of those tried is marked as such.

Every run is a `training.Trainer` run in a folder of its own, so the whole race survives a kill:

    race.json                 what all runs share, the time of a step of each contender, the processes that took part
    runs/NAME_RATE_SEED/      a run: its checkpoints and log, and, once it is over, result.json in place of checkpoints
    sweep/NAME_RATE_SEED/     the same of a run that only sweeps the rates
    record.json               the record of the race, written at its end

The same command goes on.  More contenders, rates or seeds in a later command use the runs that are there.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from caracal_min.allocator import keep_freed_memory
from caracal_min.benchmark.measure import in_precision, mean_time
from caracal_min.data.corpus import Corpus, load_corpus
from caracal_min.files import writing
from caracal_min.language_model import LanguageModel
from caracal_min.precision import find_device
from caracal_min.record import write_record
from caracal_min.training.distributed import Group
from caracal_min.training.folder import RunFolder
from caracal_min.training.parts import part_from

from .race_config import RaceConfig
from .race_contenders import CONTENDERS, REFERENCE, fitted
from .race_results import race_table, standings
from .race_run import RaceRun, read_result, read_state, require_no_fewer, runs_of

__all__ = ["run_race"]

_TURNS = 5


def run_race(config: RaceConfig, corpus: Corpus | None = None, show: Callable[[str], None] = print) -> dict:
    """Run what is left of a race, show a line for each run and the table, and return the record.

    Args:
        config: the race.
        corpus: its tokens; None reads `config.data`.

    Returns:
        the record, as `record.json` in `config.out` holds it.

    Raises:
        ValueError: the folder holds a race with other settings or on other data, or its record runs that are left out
            here; a contender does not fit the budget.
        ImportError: a contender needs `transformers`, or the record jsonschema, and it is not installed.
        OSError: the folder cannot be written, or another process works in it.
    """
    config = replace(config, device=str(find_device(config.device)))
    folder = RunFolder(config.out)
    if config.device == "cpu":
        keep_freed_memory()
    try:
        require_no_fewer(folder.record, config, ("contenders", "learning_rates", "seeds"))
        if corpus is None:
            corpus = load_corpus(config.data, config.tokenizer, max_tokens=config.tokens + config.tokens // 4,
                                 validation=config.validation, progress=config.progress)
        return _Race(config, corpus, folder, show).run()
    finally:
        folder.close()


class _Race:
    """A race in its folder."""

    def __init__(self, config: RaceConfig, corpus: Corpus, folder: RunFolder, show: Callable[[str], None]):
        self.config, self.corpus, self.folder, self.show = config, corpus, folder, show
        self.path, self.results, self.took_part = config.out / "race.json", [], False
        shared = json.loads(json.dumps(config.shared)) | {"corpus": corpus.digest}
        self.state = {"shared": shared, "times": {}, "parts": []}
        if self.path.exists():
            self.state = read_state(self.path, shared, "a race", {"times": dict, "parts": list})

    def run(self) -> dict:
        fitting = {name: fitted(name, self.config.size, self.config.context) for name in self.config.contenders}
        lineup = self._lineup(fitting)
        first, *seeds = self.config.seeds
        sweep = self.config.sweep_part < 1
        for rate in sorted(self.config.learning_rates):
            for name in lineup:
                self._run(name, fitting[name][0], rate, first, sweep)
        best = {row["contender"]: row["learning_rate"] for row in standings(self.results)}
        for seed in self.config.seeds if sweep else seeds:
            for name in lineup:
                if best[name] is not None:
                    self._run(name, fitting[name][0], best[name], seed)
        return self._record(fitting, lineup)

    def _lineup(self, fitting: dict) -> list[str]:
        """Time a step of each contender beside one of Caracal, and return those that are fast enough."""
        for name in self.config.contenders:
            known = self.state["times"].get(name)
            if known is None or known["sequences"] < self.config.batch_size and not self._too_slow(known):
                self._take_part()
                self.state["times"][name] = self._time(name, fitting[name][0])
                self._write_state()
        lineup = []
        for name in self.config.contenders:
            time = self.state["times"][name]
            out = self._too_slow(time)
            part = "" if time["sequences"] == self.config.batch_size else f" for {time['sequences']} sequences alone"
            self.show(f"{name}: {fitting[name][1]:,} parameters, {time['seconds_per_step']:.3f} s a step{part}, "
                      f"{time['times_caracal']:.2f} times Caracal's" + (": left out" if out else ""))
            lineup += [] if out else [name]
        if not lineup:
            raise ValueError(f"slowest={self.config.slowest:g} leaves out all contenders; give a larger number, or "
                             "more contenders")
        return lineup

    def _time(self, name: str, number: int) -> dict:
        """Time a step, in turns with one of Caracal: first of few sequences, which may take too long already.

        A scan over tokens in Python is slow, and keeps so much for its backward pass that a batch may not fit.
        """
        whole, reference = self.config.batch_size, self._step(REFERENCE, self.config.size.mlp_width)
        if name == REFERENCE:
            return {"seconds_per_step": _fastest([reference])[0], "times_caracal": 1.0, "sequences": whole}
        for sequences in sorted({max(1, whole // 16), max(1, whole // 4), whole}):
            unit, own = _fastest([reference, self._step(name, number, sequences)])
            time = {"seconds_per_step": own, "times_caracal": own / unit, "sequences": sequences}
            if self._too_slow(time):
                break
        return time

    def _too_slow(self, time: dict) -> bool:
        return time["times_caracal"] > self.config.slowest

    def _step(self, name: str, number: int, sequences: int | None = None) -> Callable[[], None]:
        size, config = self.config.size, self.config
        model = CONTENDERS[name].build(size, config.context, number).to(config.device)
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        shape = (sequences or config.batch_size, config.context)
        tokens = torch.randint(size.vocab_size, shape, device=config.device)
        return partial(_train_step, in_precision(model.loss, torch.device(config.device).type, config.precision),
                       optimizer, tokens)

    def _run(self, name: str, number: int, rate: float, seed: int, sweep: bool = False) -> None:
        """Add the result of a run, or of one that only sweeps the rates, which is carried out unless it was before."""
        folder = self.config.out / ("sweep" if sweep else "runs") / f"{name}_{rate:g}_{seed}"
        result = read_result(folder)
        if result is None:
            self._take_part()

            def build() -> LanguageModel:
                return CONTENDERS[name].build(self.config.size, self.config.context, number)

            facts = {"contender": name, "learning_rate": rate, "seed": seed, "sweep": sweep}
            with RaceRun(self.config.recipe(rate, seed, folder, sweep), self.corpus, build) as run:
                result = run.to_the_end(facts)
        self.results.append(result)
        loss = "diverged" if result["loss"] is None else f"{result['loss']:.4f} nats"
        part = ", sweep" if sweep else ""
        self.show(f"{name}, rate {rate:g}, seed {seed}{part}: {loss} in {result['seconds'] / 60:.1f} minutes, "
                  f"{result['seconds_per_step']:.3f} s a step")

    def _record(self, fitting: dict, lineup: list[str]) -> dict:
        budget = fitted(REFERENCE, self.config.size, self.config.context)[1]
        contenders = [{"contender": name, "what": CONTENDERS[name].what, "parameters": fitting[name][1],
                       "gives": CONTENDERS[name].gives, "number": fitting[name][0], "left_out": name not in lineup,
                       **self.state["times"][name]} for name in self.config.contenders]
        results = {"budget": budget, "contenders": contenders, "runs": self.results,
                   "standings": standings(self.results)}
        corpus = self.corpus
        data = {"source": corpus.source, "validation": self.config.validation, "tokenizer": corpus.tokenizer.name,
                "train_tokens": len(corpus.train), "validation_tokens": len(corpus.validation),
                "sha256": corpus.digest}
        if not self.folder.complete or self.took_part or runs_of(self.folder.record) != results["runs"]:
            write_record(self.folder.record, "race", vars(self.config), results, data,
                         sum(run["seconds"] for run in self.results), torch.device(self.config.device),
                         self.state["parts"], grown=True)
        record = json.loads(self.folder.record.read_text())
        self.show(race_table(record))
        self.show(f"record = {self.folder.record}")
        return record

    def _take_part(self) -> None:
        """Note, before its first piece of work, that this process takes part, with which code and where."""
        if not self.took_part:
            done = sum(result["steps"] for result in _finished(self.config.out))
            group = Group(self.config.device)
            self.state["parts"].append(part_from(done, group))
            group.close()
            self.took_part = True
            self._write_state()

    def _write_state(self) -> None:
        with writing(self.path) as partial_file:
            partial_file.write_text(json.dumps(self.state, indent=1) + "\n")


def _fastest(steps: Sequence[Callable[[], None]]) -> list[float]:
    """Return the seconds of each step: in turns, after one to warm up, the least, since other work only adds to it."""
    rounds = [[mean_time(step, 1) for step in steps] for _ in range(_TURNS + 1)][1:]
    return [min(times) / 1e3 for times in zip(*rounds, strict=True)]


def _train_step(loss: Callable[[Tensor, Tensor], Tensor], optimizer: torch.optim.Optimizer, tokens: Tensor) -> None:
    loss(tokens, tokens.roll(-1, 1)).backward()
    optimizer.step()
    optimizer.zero_grad()


def _finished(out: Path) -> Iterator[dict]:
    """Yield the results of the runs that are over, whichever command asked for them."""
    yield from filter(None, map(read_result, sorted((out / "runs").glob("*"))))
