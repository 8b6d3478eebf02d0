"""A basis of some of the inputs, and these by name."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from types import ModuleType
from typing import Any

import jax
import numpy as np

from .._internal import checks
from .._internal.pytree import pytree_dataclass, static
from ..kernels import Kernel, OfColumns
from ..priors import WeightPrior
from .basis import Basis
from .residual import Residual
from .wrapped import WrappedBasis


class InputColumns:
    """The columns of X by name, so that bases of some of them need not count: ``columns.select(basis, "day")``.

    :param names: the names of all columns of X, in their order, such as ``table.columns``; or their number.
    :raises ValueError: for names that are not distinct, or none.

    .. doctest::

        >>> import ppl_sgp as sgp
        >>> columns = sgp.InputColumns(["day", "carrier"])
        >>> trend, carrier = sgp.LinearBasis(1), sgp.CategoricalBasis(16)
        >>> basis = sgp.stack(columns.select(trend, "day"), columns.select(carrier, "carrier"))
        >>> basis.num_features, columns.positions("carrier")
        (18, [1])
    """

    def __init__(self, names: Iterable[Hashable] | int) -> None:
        owner = "InputColumns"
        whole = isinstance(names, (int, np.integer))
        self.names = tuple(range(checks.whole_number("names", names, 1, owner)) if whole else names)  # type: ignore[arg-type]
        if isinstance(names, str) or not self.names or len(set(self.names)) < len(self.names):
            raise ValueError(
                f"{owner}: `names` must be the distinct names of all columns of X, or their number; got {names!r}."
            )

    def positions(self, *names: Hashable) -> list[int]:
        """Where columns are in X.

        :param names: their names.
        :raises ValueError: for a name that is not there.
        """
        unknown = [name for name in names if name not in self.names]
        if unknown:
            raise ValueError(f"InputColumns: there is no column {unknown[0]!r} among {list(self.names)}.")
        return [self.names.index(name) for name in names]

    def select(self, basis: Basis, *names: Hashable) -> SelectedColumns:
        """The basis of some of the columns, as one of all.

        :param basis: a basis of as many inputs as there are names.
        :param names: the columns that it sees, in its order.
        :raises ValueError: for a name that is not there, or another number of them.
        """
        return SelectedColumns(basis, self.positions(*names), len(self.names))

    def of(self, kernel: Kernel, *names: Hashable) -> OfColumns:
        """The kernel of some of the columns, as one of all.

        :param kernel: a kernel of as many inputs as there are names.
        :param names: the columns that it sees, in its order.
        :raises ValueError: for a name that is not there.
        """
        return OfColumns(kernel, tuple(self.positions(*names)))


@pytree_dataclass
class SelectedColumns(WrappedBasis):
    """Features of another basis, which sees only some columns of the inputs: a part of :func:`~ppl_sgp.stack`
    or :func:`~ppl_sgp.tensor`.

    :param basis: the basis φ, of as many inputs as there are columns.
    :param columns: which columns of X it sees, in its order.
    :param input_dim: the number of columns of X.
    :raises ValueError: for columns that X does not have, or another number of them than the basis takes.

    .. doctest::

        >>> import numpy as np, ppl_sgp as sgp
        >>> grid = sgp.InterpolationBasis(np.linspace(0, 1, 5), method="linear")
        >>> sgp.SelectedColumns(grid, [2], input_dim=3).host_features([[7.0, 8.0, 0.25]]).tolist()
        [[0.0, 1.0, 0.0, 0.0, 0.0]]
    """

    basis: Basis
    columns: Any
    dim: int = static()

    def __init__(self, basis: Basis, columns: Sequence[int], input_dim: int) -> None:
        d = checks.whole_number("input_dim", input_dim, 1, "SelectedColumns")
        indices = np.asarray(columns)
        if indices.ndim != 1 or indices.dtype.kind not in "iu" or not ((indices >= 0) & (indices < d)).all():
            raise ValueError(
                f"SelectedColumns: `columns` must be a sequence of integers from 0 to {d - 1}; got {columns!r}. "
                "`input_dim` is the number of columns of the whole X."
            )
        if len(indices) != basis.input_dim:
            raise ValueError(
                f"SelectedColumns: `columns` has {len(indices)} entries but the {type(basis).__name__} was made for "
                f"{basis.input_dim} inputs; give as many."
            )
        object.__setattr__(self, "basis", basis)
        object.__setattr__(self, "columns", indices)
        object.__setattr__(self, "dim", d)

    @property
    def num_features(self) -> int:
        """The number of features m."""
        return self.basis.num_features

    @property
    def input_dim(self) -> int:
        """The number of columns of X."""
        return self.dim

    def weight_prior(self, kernel: Kernel) -> Any:
        """The prior of the basis, for a kernel over the selected columns.

        :param kernel: as the basis takes it, of the selected columns alone; or an :class:`~ppl_sgp.OfColumns` of the
            same ones, which is the kernel over all columns.
        :raises ValueError: as the basis, or for a kernel of other columns.
        """
        if isinstance(kernel, OfColumns):
            if checks.is_concrete(self.columns) and not np.array_equal(kernel.columns, self.columns):
                raise ValueError(
                    f"SelectedColumns: the kernel sees columns {list(kernel.columns)}, the basis "
                    f"{np.asarray(self.columns).tolist()}. Give both the same, or pass the kernel without `OfColumns`."
                )
            kernel = kernel.kernel
        return self.basis.weight_prior(kernel)

    def feature_names(self, inputs: Sequence[str]) -> list[str] | None:
        """Those of the basis, for the names of the selected inputs."""
        return self.basis.feature_names([inputs[column] for column in self.columns])

    @property
    def constant_features(self) -> np.ndarray:
        """Whether each feature is a constant, shape (m,), Boolean."""
        return self.basis.constant_features

    def fill_features(self, X: np.ndarray, out: np.ndarray, single: bool = False) -> None:
        """Features as the basis fills them itself."""
        self.basis.fill_features(X[:, self.columns], out, single)

    def effective_share(self, log_variance: jax.Array) -> jax.Array:
        """That of the basis: a scalar."""
        return self.basis.effective_share(log_variance)

    def unsuited(self, kernel: Any, x_min: np.ndarray, x_max: np.ndarray) -> tuple[str, str] | None:
        """As the basis says of its columns."""
        own = kernel.kernel if isinstance(kernel, OfColumns) else kernel
        columns = np.asarray(self.columns)
        return self.basis.unsuited(own, x_min[columns], x_max[columns])

    def residual_variance(self, X: Any) -> np.ndarray:
        """That of the basis at the selected columns, shape (p, n)."""
        return self.basis.residual_variance(self._host_inputs(X)[:, self.columns])

    def residual(self, X: Any) -> Residual:
        """That of the basis at the selected columns."""
        return self.basis.residual(self._host_inputs(X)[:, self.columns])

    def residual_amplitude(self, prior: WeightPrior) -> jax.Array:
        """That of the basis, shape ``batch + (p,)``."""
        return self.basis.residual_amplitude(prior)

    def check_domain(self, X: Any) -> None:
        self.basis.check_domain(X[:, self.columns])

    def admissible(self, X: np.ndarray) -> np.ndarray:
        """Those of the basis in the selected columns, others as they are."""
        result = X.copy()
        result[:, self.columns] = self.basis.admissible(X[:, self.columns])
        return result

    def features(self, X: Any, xp: ModuleType) -> Any:
        return self.basis.features(X[:, self.columns], xp)

    def name_of(self, feature: int) -> str:
        return self.basis.name_of(feature)

    def not_finite_at(self, x: np.ndarray) -> str | None:
        reason = self.basis.not_finite_at(x[self.columns])
        return reason and f"Column {', '.join(map(str, self.columns))}: {reason}"
