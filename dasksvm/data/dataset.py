"""Dataset: labelled rows in a Zarr v3 group, complete or absent."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dasksvm.data.chunked import ChunkedRows
from dasksvm.data.statistics import Scaling
from dasksvm.solver.features import Ints

VERSION = 1
ATTRIBUTE = "dasksvm"


class _Array(ChunkedRows):
    """A Zarr array by rows; opened when it is first read, in whatever process that is."""

    def __init__(self, path: str, name: str, rows: int, step: int) -> None:
        super().__init__(tuple(min(step, rows - start) for start in range(0, rows, step)))
        self.path, self.name, self.step = path, name, step

    @cached_property
    def _array(self) -> Any:
        import zarr

        return zarr.open_array(self.path, path=self.name, mode="r")

    def _read(self, at: int) -> Any:
        try:
            return self._array[at * self.step : at * self.step + self.chunks[at]]
        except Exception as error:
            last = at * self.step + self.chunks[at] - 1
            raise OSError(
                f"{self.path}: chunk {at} of {self.name} (rows {at * self.step} to {last}) cannot be read: {error}"
            ) from error

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_array"}


@dataclass(frozen=True, eq=False)
class Dataset:
    """Labelled rows in a Zarr group: `X` in chunks of whole rows, `y`, and perhaps `weight` and `source`.

    Attributes
    ----------
    path : str
    shape : tuple of int
        Rows and features.
    classes : ndarray of shape (c,)
        The labels that `y` holds the numbers of.
    class_counts : ndarray of int64, shape (c,)
    mean, variance, minimum, maximum : ndarray of float64, shape (d,)
        Of each feature, as it is on disk.
    scaling : Scaling or None
        The map that training applies to the rows and the model carries.
    shuffled : bool
        Whether the rows are in random order; `source` has the row that each was.
    weighted : bool
        Whether the rows have weights.
    origin : str
        Where the rows came from.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from dasksvm import Dataset
    >>> path = tempfile.mkdtemp() + "/two.zarr"
    >>> data = Dataset.create(path, np.eye(4, dtype="f4"), ["a", "b", "a", "b"], random_state=0)
    >>> data.shape, data.classes.tolist(), len(Dataset.open(path))
    ((4, 4), ['a', 'b'], 4)
    """

    path: str
    shape: tuple[int, int]
    chunk_rows: int
    classes: NDArray[Any]
    class_counts: Ints
    mean: NDArray[np.float64]
    variance: NDArray[np.float64]
    minimum: NDArray[np.float64]
    maximum: NDArray[np.float64]
    scaling: Scaling | None
    shuffled: bool
    weighted: bool
    origin: str

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open a data set.

        Raises
        ------
        ValueError
            If there is nothing, something else, an incomplete data set, or one of another version.
        """
        import zarr

        path = str(path)
        try:
            group = zarr.open_group(path, mode="r")
        except (FileNotFoundError, ValueError) as error:
            raise ValueError(f"{path} is no data set: there is no Zarr group.") from error
        about = group.attrs.get(ATTRIBUTE)
        if not isinstance(about, dict) or "version" not in about:
            raise ValueError(f"{path} is a Zarr group, but no data set of dasksvm.")
        if about["version"] != VERSION:
            raise ValueError(f"{path} has version {about['version']} of the format; this is version {VERSION}.")
        if about.get("complete") is not True:
            raise ValueError(f"{path} is incomplete: what wrote it did not end.")
        return cls._described(path, about, group)

    @classmethod
    def _described(cls, path: str, about: dict[str, Any], group: Any) -> Self:
        rows, width = about["shape"]
        for name, shape in (("X", (rows, width)), ("y", (rows,))):
            if name not in group or group[name].shape != shape:
                raise ValueError(f"{path} is damaged: the array {name} is not of shape {shape}.")
        scaling = about["scaling"]
        features = {name: np.array(about["features"][name]) for name in ("mean", "variance", "minimum", "maximum")}
        return cls(
            path=path,
            shape=(rows, width),
            chunk_rows=group["X"].chunks[0],
            classes=np.array(about["classes"], about["class_type"]),
            class_counts=np.array(about["class_counts"], np.int64),
            scaling=None if scaling is None else Scaling(np.array(scaling["offset"]), np.array(scaling["factor"])),
            shuffled=about["shuffled"],
            weighted=about["weighted"],
            origin=about["origin"],
            **features,
        )

    @classmethod
    def create(
        cls,
        path: str | Path,
        X: Any,
        y: Any,
        weight: Any = None,
        *,
        shuffle: bool = True,
        scale: str = "none",
        chunk_rows: int | None = None,
        random_state: Any = None,
    ) -> Self:
        """Write rows and labels to a new Zarr group, in bounded memory, and open it.

        Parameters
        ----------
        path : str or Path
            Must not exist.
        X : ndarray or dask.array.Array of shape (n, d)
            Of any numeric type, which is kept.
        y : array of shape (n,)
            Labels of any type that sorts.
        weight : array of shape (n,), optional
        shuffle : bool, default=True
            Whether to bring the rows into random order, which online training needs; the source rows are kept.
        scale : {"none", "minmax", "standard"}, default="none"
            The affine map that training applies; the rows on disk stay as they are.
        chunk_rows : int, optional
            Rows of a chunk; from `dasksvm.chunk-bytes` if not given.
        random_state : int, RandomState or None, default=None
            Decides the order.
        """
        from dasksvm.data.writing import write

        write(str(path), X, y, weight, shuffle, scale, chunk_rows, random_state)
        return cls.open(path)

    def __len__(self) -> int:
        return self.shape[0]

    @cached_property
    def _features(self) -> _Array:
        return _Array(self.path, "X", len(self), self.chunk_rows)

    def _column(self, name: str) -> _Array:
        if name not in self._columns:
            self._columns[name] = _Array(self.path, name, len(self), self.chunk_rows)
        return self._columns[name]

    @cached_property
    def _columns(self) -> dict[str, _Array]:
        return {}

    def __reduce__(self) -> Any:
        """Pickle what is known of the data, not the data."""
        return _again, ({name: getattr(self, name) for name in self.__dataclass_fields__},)

    def chunks(self) -> tuple[int, ...]:
        """Give the rows of each chunk."""
        return self._features.chunks

    def rows(self, ids: Ints) -> NDArray[Any]:
        """Read some rows as they are on disk, shape (m, d); whole chunks are read, and the last few kept."""
        rows: NDArray[Any] = self._features.raw(np.asarray(ids, np.int64))
        return rows

    def codes(self, ids: Ints) -> Ints:
        """Read the class numbers of some rows, shape (m,)."""
        codes: Ints = self._column("y").raw(np.asarray(ids, np.int64)).astype(np.int64)
        return codes

    def labels(self, ids: Ints) -> NDArray[Any]:
        """Read the labels of some rows, shape (m,)."""
        labels: NDArray[Any] = self.classes[self.codes(ids)]
        return labels

    def weights(self, ids: Ints) -> NDArray[np.float64]:
        """Read the weights of some rows, shape (m,); 1 if they have none."""
        if not self.weighted:
            return np.ones(len(ids))
        weights: NDArray[np.float64] = self._column("weight").raw(np.asarray(ids, np.int64))
        return weights

    def source_rows(self, ids: Ints) -> Ints:
        """Tell which rows of the source some rows are, shape (m,)."""
        ids = np.asarray(ids, np.int64)
        return self._column("source").raw(ids) if self.shuffled else ids

    def as_dask(self) -> tuple[Any, Any]:
        """Give the rows, as they are on disk, and the labels as lazy Dask arrays."""
        import dask.array as da

        codes = da.from_zarr(self.path, component="y")
        labels = codes.map_blocks(_decode, self.classes, dtype=self.classes.dtype)
        return da.from_zarr(self.path, component="X"), labels


def _again(fields: dict[str, Any]) -> Dataset:
    return Dataset(**fields)


def _decode(codes: NDArray[Any], classes: NDArray[Any]) -> NDArray[Any]:
    labels: NDArray[Any] = classes[codes]
    return labels
