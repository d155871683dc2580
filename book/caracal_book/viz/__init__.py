"""The book's figures: a style for those that stand still, `Figure` and its modules for those that move."""

from .antidiagonals import antidiagonals
from .change import change_gates, change_last_word, change_points, change_windows
from .clock import clock
from .continuation import continuation
from .figure import Figure
from .fourier_shapes import fourier_shapes
from .live import Texts, live
from .matrices import matrices
from .meeting import meeting
from .model_diagram import model_diagram
from .parameter_budget import parameter_budget
from .poke import poke
from .remember import remember
from .roots import roots
from .schedule import schedule
from .sight import sight
from .style import palette, use_style
from .time_budget import time_budget
from .toeplitz_kernel import toeplitz_kernel
from .training_run import training_run
from .where_we_stand import where_we_stand
from .why import why

__all__ = ["Figure", "Texts", "antidiagonals", "change_gates", "change_last_word", "change_points", "change_windows",
           "clock", "continuation", "fourier_shapes", "live", "matrices", "meeting", "model_diagram",
           "palette", "parameter_budget", "poke", "remember", "roots", "schedule", "sight",
           "time_budget", "toeplitz_kernel", "training_run", "use_style", "where_we_stand", "why"]
