"""The commands of `python -m caracal_book`, one module each: its options, what it looks at first, what it does::

    count       tables of n-grams, which a model has to beat
    learn       small models on tasks that tell mixers apart
    surgery     ablations of a trained model
    forms       the Fourier layer changed in one thing, trained so, then ablated
    race        whole models against each other

What a command is, `caracal_min.commands` says.
"""

from caracal_min.commands import Command
from caracal_min.commands.command import on_device_with_record

from .count import CountConfig, prepare_count, run_count
from .forms import FormsConfig, run_forms_command
from .learn import LearnConfig, run_learn_command
from .race import RaceConfig, prepare_race, run_race_command
from .surgery import SurgeryConfig, run_surgery

__all__ = ["COMMANDS"]

COMMANDS = (
    Command("count", CountConfig, run_count, prepare_count),
    Command("learn", LearnConfig, run_learn_command),
    Command("surgery", SurgeryConfig, run_surgery, on_device_with_record),
    Command("forms", FormsConfig, run_forms_command),
    Command("race", RaceConfig, run_race_command, prepare_race),
)
