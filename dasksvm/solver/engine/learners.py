"""The registry of the solvers: the learner for each type of settings."""

from dasksvm.solver.blocks.exact_learner import ExactLearner, ExactSettings
from dasksvm.solver.blocks.learner import BlocksLearner, BlocksSettings
from dasksvm.solver.decomposition.pair_learner import PairLearner
from dasksvm.solver.decomposition.rules import PairSettings
from dasksvm.solver.engine.learner import Learner
from dasksvm.solver.engine.settings import Settings
from dasksvm.solver.lasvm.learner import LasvmSettings, TwoClassLearner
from dasksvm.solver.multiclass.learner import MachineLearner, MachineSettings
from dasksvm.solver.unbiased.batch_ascent import AscentLearner, AscentSettings
from dasksvm.solver.unbiased.learner import GapLearner, GapSettings
from dasksvm.solver.unbiased.tracking_learner import TrackingLearner, TrackingSettings

LEARNERS: dict[type[Settings], type[Learner]] = {
    LasvmSettings: TwoClassLearner,
    BlocksSettings: BlocksLearner,
    GapSettings: GapLearner,
    TrackingSettings: TrackingLearner,
    AscentSettings: AscentLearner,
    PairSettings: PairLearner,
    ExactSettings: ExactLearner,
    MachineSettings: MachineLearner,
}


def make_learner(settings: Settings) -> Learner:
    """Return a new learner for some settings.

    Raises
    ------
    TypeError
        If no solver has settings of this type.
    """
    kind = type(settings)
    if kind not in LEARNERS:
        known = ", ".join(each.__name__ for each in LEARNERS)
        raise TypeError(f"no solver has settings of type {kind.__name__}: it must be one of {known}.")
    return LEARNERS[kind](settings)
