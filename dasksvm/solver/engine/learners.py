"""Which learner some settings ask for."""

from dasksvm.solver.decomposition.block_learner import BlockLearner
from dasksvm.solver.decomposition.pair_learner import PairLearner
from dasksvm.solver.engine.learner import Learner
from dasksvm.solver.engine.settings import Settings
from dasksvm.solver.lasvm.learner import TwoClassLearner
from dasksvm.solver.multiclass.learner import MachineLearner
from dasksvm.solver.unbiased.batch_ascent import AscentLearner
from dasksvm.solver.unbiased.learner import GapLearner
from dasksvm.solver.unbiased.tracking_learner import TrackingLearner

LEARNERS: tuple[type[Learner], ...] = (
    AscentLearner,
    BlockLearner,
    GapLearner,
    MachineLearner,
    PairLearner,
    TrackingLearner,
    TwoClassLearner,
)


def make_learner(settings: Settings) -> Learner:
    """Make a learner that has seen nothing."""
    if settings.gap is not None:
        return GapLearner(settings)
    if settings.tracking is not None:
        return AscentLearner(settings) if settings.tracking.batch else TrackingLearner(settings)
    if settings.decomposition is not None:
        return PairLearner(settings) if settings.decomposition.size == 2 else BlockLearner(settings)
    return TwoClassLearner(settings) if settings.machine is None else MachineLearner(settings)
