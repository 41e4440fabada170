"""Convert a KernelModel to a fitted estimator of scikit-learn, and back.

Estimators are first fitted to one row of each class, so that they have all attributes of a fitted estimator in every version
of scikit-learn. Then they get the support vectors and coefficients of the model.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC, NuSVC
from sklearn.utils.validation import check_is_fitted

from dasksvm.data.chunked import is_sparse
from dasksvm.data.featurize import as_features
from dasksvm.data.statistics import Scaling
from dasksvm.model.formats import ModelFormat
from dasksvm.model.kernel_model import KernelModel
from dasksvm.model.pair_layout import Values, by_class, by_pair
from dasksvm.solver.kernels.features import DenseFeatures
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.kernels.registry import KERNELS


def to_sklearn(model: KernelModel) -> Any:
    """Make a fitted estimator: see `KernelModel.to_sklearn`."""
    if not np.isfinite(model.intercepts).all():
        raise ValueError("the intercepts of this model are not finite, since it has seen examples of one class only.")
    vectors = _scaled(model)
    if len(model.classes) == 2:
        found: Any = _svc(model.kernel, vectors, -model.coefficients, -model.intercepts, model.classes)
    elif model.pairwise:
        found = _svc(model.kernel, vectors, model.coefficients, model.intercepts, model.classes)
    else:
        found = OneVsRestClassifier(SVC()).fit(*_rows(vectors, model.classes))
        found.set_params(**{f"estimator__{name}": value for name, value in _parameters(model.kernel).items()})
        sides = np.array([0, 1])
        found.estimators_ = [
            _svc(model.kernel, vectors, -alpha[None], -intercept[None], sides)
            for alpha, intercept in zip(model.coefficients, model.intercepts, strict=True)
        ]
    steps = [found] if model.scaling is None else [_scaler(model.scaling), found]
    if model.feature_names is not None:
        # A pipeline takes its feature names from the first step; the output of that step has no names.
        steps[0].feature_names_in_ = np.array(model.feature_names, object)
    return found if model.scaling is None else make_pipeline(*steps)


def _scaled(model: KernelModel) -> Any:
    """Return the scaled support vectors, in float64."""
    shift, factor = (None, None) if model.scaling is None else (model.scaling.offset, model.scaling.factor)
    vectors: Any = model.support_vectors
    if is_sparse(vectors):
        vectors = sp.csr_matrix(vectors, dtype=np.float64, copy=True)
        vectors.sum_duplicates()
        if factor is not None:
            vectors.data *= factor[vectors.indices]
        return vectors
    features = as_features(vectors, np.dtype(np.float64), shift, factor, False)
    assert isinstance(features, DenseFeatures)
    return features.values


def _parameters(kernel: Kernel) -> dict[str, Any]:
    """Return the parameters of an SVC with the decision values of a KernelModel."""
    theirs = kernel.formula.sklearn
    if theirs is None:
        raise ValueError(
            f"scikit-learn's SVC has no kernel {kernel.name!r} by name. Its kernels are {', '.join(_kernel_names())}."
        )
    numbers = {"gamma": kernel.gamma, "coef0": kernel.coef0, "degree": kernel.degree}
    return {"kernel": theirs, **numbers, "decision_function_shape": "ovo"}


def _kernel_names() -> dict[str, str]:
    """Give the kernels that SVC has: its name of each, and the name in this package."""
    return {formula.sklearn: name for name, formula in KERNELS.items() if formula.sklearn is not None}


def _rows(vectors: Any, classes: NDArray[Any]) -> tuple[Any, NDArray[Any]]:
    """Make one row for each class, sparse or dense like the support vectors and with as many features."""
    shape = (len(classes), vectors.shape[1])
    column = np.arange(len(classes)), np.zeros(len(classes), np.int64)
    rows = sp.csr_matrix((np.arange(1.0, len(classes) + 1), column), shape=shape)
    return rows if is_sparse(vectors) else rows.toarray(), classes


def _svc(kernel: Kernel, vectors: Any, pairs: Values, intercepts: Values, classes: NDArray[Any]) -> SVC:
    """Make a fitted SVC from the coefficients of pairs of classes, shape (P, S), positive for the first of each pair."""
    svc = SVC(gamma=1.0).fit(*_rows(vectors, classes)).set_params(**_parameters(kernel))
    svc._gamma = kernel.gamma
    layout = by_class(pairs, len(classes))
    if not len(layout.rows):
        # LIBSVM needs at least one support vector.
        rows, alpha, counts = np.zeros(1, np.int64), np.zeros((len(classes) - 1, 1)), np.eye(len(classes), dtype=int)[0]
        own = vectors[:1] if vectors.shape[0] else 0.0 * svc.support_vectors_[:1]
    else:
        rows, counts, alpha = layout
        own = vectors[rows]
    sign = -1.0 if len(classes) == 2 else 1.0
    kind = type(svc.support_vectors_)
    if is_sparse(vectors):
        svc.support_vectors_ = _csr32(kind, own.data, own.indices, own.indptr, own.shape)
        # LIBSVM expects every coefficient of a row to be stored, including zeros.
        column, ends = np.tile(np.arange(len(rows)), len(alpha)), len(rows) * np.arange(len(alpha) + 1)
        svc._dual_coef_ = _csr32(type(svc.dual_coef_), alpha.ravel(), column, ends, alpha.shape)
        svc.dual_coef_ = _csr32(type(svc.dual_coef_), sign * alpha.ravel(), column, ends, alpha.shape)
    else:
        svc.support_vectors_ = np.ascontiguousarray(own)
        svc._dual_coef_ = np.ascontiguousarray(alpha)
        svc.dual_coef_ = sign * alpha
    svc._intercept_, svc.intercept_ = intercepts.copy(), sign * intercepts
    svc._n_support = counts.astype(np.int32)
    svc.support_ = np.arange(len(rows), dtype=np.int32)
    svc.shape_fit_ = (len(rows), vectors.shape[1])
    return svc


def _csr32(kind: Any, data: Values, indices: NDArray[Any], indptr: NDArray[Any], shape: tuple[int, int]) -> Any:
    return kind((data, indices.astype(np.int32), indptr.astype(np.int32)), shape=shape)


def _scaler(scaling: Scaling) -> StandardScaler:
    """Make a fitted scaler; without a shift if the scaling has none, so that it accepts sparse rows."""
    if not np.all(scaling.factor):
        raise ValueError("the scaling of this model has factors of 0, which scikit-learn's scalers do not support.")
    scaler = StandardScaler(with_mean=bool(scaling.offset.any())).fit(np.zeros((2, len(scaling.factor))))
    scaler.mean_, scaler.scale_ = scaling.offset.copy(), 1.0 / scaling.factor
    scaler.var_ = scaler.scale_**2
    return scaler


def from_sklearn(estimator: Any) -> KernelModel:
    """Make a model: see `KernelModel.from_sklearn`."""
    check_is_fitted(estimator)
    names = getattr(estimator, "feature_names_in_", None)
    return replace(_model_of(estimator), feature_names=None if names is None else tuple(names.tolist()))


def _model_of(estimator: Any) -> KernelModel:
    if isinstance(estimator, Pipeline):
        if len(estimator.steps) != 2:
            raise ValueError(f"a pipeline must be a scaler and a classifier. Got {len(estimator.steps)} steps instead.")
        scaling = _scaling(estimator[0])
        model = _model_of(estimator[1])
        return model if scaling is None else _unscaled(model, scaling)
    if isinstance(estimator, OneVsRestClassifier):
        return _of_many(estimator)
    if not isinstance(estimator, SVC | NuSVC):
        raise ValueError(
            "expected a fitted SVC or NuSVC, a OneVsRestClassifier of these, or a Pipeline of a scaler and one of these. "
            f"Got {type(estimator).__name__} instead."
        )
    names = _kernel_names()
    if estimator.kernel not in names or estimator.degree < 1:
        raise ValueError(f"the kernel {estimator.kernel!r} of degree {estimator.degree} is not supported.")
    kernel = Kernel(names[estimator.kernel], float(estimator._gamma), float(estimator.coef0), int(estimator.degree))
    coefficients = coefficients_of(estimator)
    vectors, intercepts = estimator.support_vectors_, np.array(estimator.intercept_, np.float64)
    vectors = sp.csr_matrix(vectors, copy=True) if is_sparse(vectors) else np.array(vectors)
    classes = estimator.classes_
    return KernelModel(kernel, vectors, coefficients, intercepts, classes, None, len(classes) > 2)


def coefficients_of(svc: Any) -> Values:
    """Return the coefficients of a fitted SVC in each of its problems, shape (P, S), as in a KernelModel."""
    # scikit-learn's coefficients are sparse if the training rows were sparse.
    dual: Any = svc.dual_coef_
    coefficients = np.array(dual.toarray() if is_sparse(dual) else dual, np.float64)
    return coefficients if len(svc.classes_) == 2 else by_pair(coefficients, svc.n_support_)


def _of_many(estimator: OneVsRestClassifier) -> KernelModel:
    """Make a model with one problem for each class from the estimators' models, merging equal support vectors."""
    if estimator.multilabel_ or len(estimator.classes_) == 2:
        raise ValueError(
            "expected a OneVsRestClassifier for more than two classes, trained with one label for each row."
        )
    models = [_model_of(each) for each in estimator.estimators_]
    if len({model.kernel for model in models}) > 1 or any(model.scaling is not None for model in models):
        raise ValueError("the estimators of a OneVsRestClassifier must be SVCs with the same kernel and parameters.")
    sparse = is_sparse(models[0].support_vectors)
    stacked = sp.vstack if sparse else np.concatenate
    vectors: Any = stacked([model.support_vectors for model in models])
    vectors = sp.csr_matrix(vectors)
    vectors.eliminate_zeros()
    vectors.sum_duplicates()
    number: dict[bytes, int] = {}
    place = np.zeros(vectors.shape[0], np.int64)
    for row in range(vectors.shape[0]):
        own = slice(vectors.indptr[row], vectors.indptr[row + 1])
        place[row] = number.setdefault(vectors.indices[own].tobytes() + vectors.data[own].tobytes(), len(number))
    coefficients = np.zeros((len(models), len(number)))
    at = 0
    for problem, model in enumerate(models):
        np.add.at(coefficients[problem], place[at : at + model.coefficients.shape[1]], model.coefficients[0])
        at += model.coefficients.shape[1]
    vectors = vectors[np.unique(place, return_index=True)[1]]
    intercepts = np.concatenate([model.intercepts for model in models])
    classes = estimator.classes_
    return KernelModel(models[0].kernel, vectors if sparse else vectors.toarray(), coefficients, intercepts, classes)


def _scaling(scaler: Any) -> Scaling | None:
    if isinstance(scaler, StandardScaler):
        width = scaler.n_features_in_
        offset = scaler.mean_ if scaler.with_mean else np.zeros(width)
        factor = 1.0 / scaler.scale_ if scaler.with_std else np.ones(width)
        return Scaling(np.array(offset, np.float64), factor)
    if isinstance(scaler, MinMaxScaler) and not scaler.clip:
        return Scaling(-scaler.min_ / scaler.scale_, np.array(scaler.scale_, np.float64))
    if scaler in (None, "passthrough"):
        return None
    raise ValueError(
        f"the first step must be a StandardScaler or a MinMaxScaler with clip=False. Got {type(scaler).__name__} instead."
    )


def _unscaled(model: KernelModel, scaling: Scaling) -> KernelModel:
    """Turn a model for scaled rows into one for unscaled rows, with the scaling and with unscaled support vectors."""
    vectors: Any = model.support_vectors
    if not is_sparse(vectors):
        vectors = vectors / scaling.factor + scaling.offset
    elif scaling.offset.any():
        raise ValueError("the scaler shifts the rows, which is not supported for sparse support vectors.")
    else:
        vectors.data /= scaling.factor[vectors.indices]
    return KernelModel(
        model.kernel, vectors, model.coefficients, model.intercepts, model.classes, scaling, model.pairwise
    )


SKLEARN = ModelFormat(to_sklearn, from_sklearn)
