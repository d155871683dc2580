"""The commands of `python -m caracal_book`, and those of them that are no experiment, one module each.

A command is a function of one argument, `config`: a dataclass, whose docstring and the texts under its fields are the
help of the command.  `caracal_book.__main__` reads the options with tyro.  What cannot be done is a ValueError or an
OSError in one line.
"""

__all__ = ["COMMANDS"]

COMMANDS = {
    "benchmark": ("benchmark.run_benchmark", "measure speed on this machine, as ratios"),
    "count": ("commands.count.run_count", "count n-grams in a text: what a model has to beat"),
    "evaluate": ("commands.evaluate.run_evaluate", "measure a trained model on a text, as a record"),
    "export-web": ("commands.export_web.run_export_web", "write a trained model as scripts for a page in a browser"),
    "forms": ("experiments.forms.run_forms", "train the Fourier layer changed in one thing, then ablate it"),
    "ladder": ("experiments.ladder.run_ladder", "train one hybrid with different long kernels"),
    "learn": ("experiments.learner.run_learn", "train small models on tasks that tell mixers apart"),
    "nine-numbers": ("experiments.nine_numbers.run_nine_numbers",
                     "replace the kernels of a trained model by a few numbers"),
    "own-gates": ("experiments.own_gates.run_own_gates",
                  "measure what another text's gates cost while palindromes are learned"),
    "race": ("experiments.race.run_race", "train whole models against each other on the same text"),
    "record": ("commands.record.run_record", "turn the folder of a finished training run into a record"),
    "roofline": ("numbers.roofline.run_roofline",
                 "time training steps, beside what they must cost at this machine's rates"),
    "surgery": ("commands.surgery.run_surgery", "measure a trained model without each of its components"),
}
"""By name: the function below `caracal_book`, and what it does."""
