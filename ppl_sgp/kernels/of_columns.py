"""A kernel of some of the inputs."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from .._internal import checks
from .._internal.pytree import pytree_dataclass, static
from .kernel import Kernel


@pytree_dataclass
class OfColumns(Kernel):
    """A kernel that sees only some columns of the inputs: a term of a sum, or a factor, over all of them.

    The kernel of f on a basis in :class:`~ppl_sgp.SelectedColumns`. It has no spectral density over all columns.

    :param kernel: the kernel, of as many inputs as there are columns.
    :param columns: which columns of X it sees, in its order.
    :raises ValueError: for something that is no kernel, or columns that are not whole numbers of 0 or more; when
        called, for inputs without these columns.

    >>> import numpy as np
    >>> from ppl_sgp.kernels import Matern32
    >>> float(OfColumns(Matern32(1.0), [1])(np.array([[7.0, 2.0]]), np.array([[9.0, 2.0]]))[0, 0])
    1.0
    """

    kernel: Kernel
    columns: tuple[int, ...] = static()

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, Kernel):
            raise ValueError(f"OfColumns: `kernel` must be a kernel; got {type(self.kernel).__name__}.")
        indices = np.asarray(self.columns)
        if indices.ndim != 1 or indices.dtype.kind not in "iu" or len(indices) == 0 or not (indices >= 0).all():
            raise ValueError(f"OfColumns: `columns` must be a sequence of integers of 0 or more; got {self.columns!r}.")
        object.__setattr__(self, "columns", tuple(indices.tolist()))

    @property
    def differentiable(self) -> bool:  # type: ignore[override]
        """Whether functions of the kernel have derivatives."""
        return self.kernel.differentiable

    def __call__(self, X: ArrayLike, X2: ArrayLike | None = None) -> Array:
        return self.kernel(self._of(X), None if X2 is None else self._of(X2))

    def diag(self, X: ArrayLike) -> Array:
        return self.kernel.diag(self._of(X))

    def _of(self, X: ArrayLike) -> Array:
        width = np.shape(checks.inputs_matrix(X, None, "OfColumns"))[1]
        if max(self.columns) >= width:
            raise ValueError(
                f"OfColumns: the kernel sees columns {list(self.columns)}, but `X` has {width}. Pass the whole X."
            )
        return jnp.asarray(X)[:, np.array(self.columns)]
