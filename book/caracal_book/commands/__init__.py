"""The commands of `python -m caracal_book`, one module each: its options, what it looks at first, what it does::

    count       tables of n-grams, which a model has to beat
    learn       small models on tasks that tell mixers apart
    surgery     ablations of a trained model
    forms       the Fourier layer changed in one thing, trained so, then ablated
    race        whole models against each other
    roofline    training steps by the clock, beside their count

What a command is, `caracal_min.commands` says.
"""

__all__ = ["COMMANDS"]

COMMANDS = {
    "count": "count n-grams in a text: what a model has to beat",
    "learn": "train small models on tasks that tell mixers apart",
    "surgery": "measure a trained model without each of its components",
    "forms": "train the Fourier layer changed in one thing, then ablate it",
    "race": "train whole models against each other on the same text",
    "roofline": "time training steps, beside what they must cost at this machine's rates",
}
"""What each command does, by name; the module of that name has the `COMMAND`."""
