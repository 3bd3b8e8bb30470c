"""The engine binds networks to kernels: it plans memory, declares tasks and runs them; `Model` is its public class."""

from znnpy.engine.layers.optimizer import Optimizer
from znnpy.engine.model import Model
from znnpy.engine.settings import Execution, Hardware, Training
from znnpy.engine.step_result import StepResult

__all__ = ["Execution", "Hardware", "Model", "Optimizer", "StepResult", "Training"]
