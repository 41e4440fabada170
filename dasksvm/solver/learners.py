"""Which learner some settings ask for."""

from dasksvm.solver.ascent import AscentLearner
from dasksvm.solver.blocks import BlockLearner
from dasksvm.solver.learner import Learner
from dasksvm.solver.multiclass.learner import MachineLearner
from dasksvm.solver.pairs import PairLearner
from dasksvm.solver.settings import Settings
from dasksvm.solver.tracked import TrackingLearner
from dasksvm.solver.twoclass import TwoClassLearner
from dasksvm.solver.unbiased import GapLearner


def make_learner(settings: Settings) -> Learner:
    """Make a learner that has seen nothing."""
    if settings.gap is not None:
        return GapLearner(settings)
    if settings.tracking is not None:
        return AscentLearner(settings) if settings.tracking.batch else TrackingLearner(settings)
    if settings.decomposition is not None:
        return PairLearner(settings) if settings.decomposition.size == 2 else BlockLearner(settings)
    return TwoClassLearner(settings) if settings.machine is None else MachineLearner(settings)
