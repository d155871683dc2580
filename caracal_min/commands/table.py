"""All commands, in the order in which the help lists them."""

from ..benchmark import BenchmarkConfig, run_benchmark
from ..data.write_shards import TokenizeConfig
from ..training.recipe import TrainConfig
from .command import Command, on_device_with_record
from .evaluate import EvaluateConfig, run_evaluate
from .export import ExportConfig, prepare_export, run_export
from .info import InfoConfig, run_info
from .sample import SampleConfig, run_sample
from .tokenize import prepare_tokenize, run_tokenize
from .train import recipe_of, run_train

__all__ = ["COMMANDS"]

COMMANDS = (
    Command("tokenize", TokenizeConfig, run_tokenize, prepare_tokenize),
    Command("train", TrainConfig, run_train, for_preset=recipe_of),
    Command("sample", SampleConfig, run_sample),
    Command("evaluate", EvaluateConfig, run_evaluate, on_device_with_record),
    Command("benchmark", BenchmarkConfig, run_benchmark, on_device_with_record),
    Command("export", ExportConfig, run_export, prepare_export),
    Command("info", InfoConfig, run_info, for_preset=InfoConfig),
)
