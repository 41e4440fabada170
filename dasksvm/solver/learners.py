"""Which learner some settings ask for."""

from dasksvm.solver.learner import Learner
from dasksvm.solver.multiclass.learner import MachineLearner
from dasksvm.solver.settings import Settings
from dasksvm.solver.twoclass import TwoClassLearner
from dasksvm.solver.unbiased import GapLearner


def make_learner(settings: Settings) -> Learner:
    """Make a learner that has seen nothing."""
    if settings.gap is not None:
        return GapLearner(settings)
    return TwoClassLearner(settings) if settings.machine is None else MachineLearner(settings)
