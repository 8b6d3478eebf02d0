"""The Nyström approximation of a kernel from free inducing points.

References
    1. Williams, C. K. I. & Seeger, M. (2001), Using the Nyström method to speed up kernel machines.
    2. Evans, T. W. (2022), PhD thesis, eqs 4.1-4.2.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import jax
import numpy as np

from .._internal import checks
from .._internal.pytree import pytree_dataclass, static
from ..kernels import Kernel
from .frozen_kernel import (
    FrozenKernelBasis,
    covariances,
    eigenpairs,
    evaluate,
    evaluate_rows,
    freeze,
    share_far,
    variances,
    whitening,
)
from .inputs import point_set


@pytree_dataclass
class NystromBasis(FrozenKernelBasis):
    """Whitened features ``φ(x) = Λ^-½ Qᵀ k(U, x)`` of m inducing points U, with ``k(U, U) = QΛQᵀ``.

    ``φ(x)ᵀφ(z) = k(x, U) k(U, U)⁻¹ k(U, z)``: exact where x or z is an inducing point, and never more than
    the kernel, so prior variance is lost far from all of them (:meth:`residual_variance` says how much); rows
    whose correlation with the nearest point of their bounding box is below 0.1 are announced by a warning. The
    kernel is frozen but for its amplitude. Making it costs O(m³), a feature vector O(m(d + m)). Directions with
    eigenvalues at rounding level (1e-14 of the largest) are cut, so there may be fewer features than inducing
    points.

    :param inducing_points: U, shape (k, d): training inputs, cluster centres, any representative points.
    :param kernel: a kernel that is no sum; amplitudes do not matter.
    :raises ValueError: for points that are not a finite (m, d) array, or a kernel that cannot be frozen.

    .. doctest::

        >>> import numpy as np, ppl_sgp as sgp
        >>> kernel = sgp.Matern32(0.5, amplitude=2.0)
        >>> basis = sgp.NystromBasis(np.linspace(0, 1, 8)[:, None], kernel)
        >>> basis.num_features, basis.weight_prior(kernel).scale[0].round(3).item()
        (8, 2.0)
    """

    inducing_points: Any
    kernel: Kernel
    eigenvalues: Any
    eigenvectors: Any
    hyperparameters: str = static()

    def __init__(self, inducing_points: Any, kernel: Kernel) -> None:
        unit, hyperparameters = freeze(kernel, "NystromBasis")
        points = point_set("inducing_points", inducing_points, "NystromBasis")
        eigenvalues, eigenvectors = eigenpairs(evaluate(covariances, (unit, points), points, np))
        fields = (points, unit, eigenvalues, eigenvectors, hyperparameters)
        for name, value in zip(self.__dataclass_fields__, fields, strict=True):
            object.__setattr__(self, name, value)

    @property
    def num_features(self) -> int:
        """The number of features: inducing points, less directions at rounding level."""
        return self.eigenvalues.shape[-1]

    @property
    def input_dim(self) -> int:
        """The number of input columns d."""
        return self.inducing_points.shape[-1]

    def check_domain(self, X: Any) -> None:
        share = share_far(self.kernel, self.inducing_points, X)
        if share > 0:
            checks.warn(
                f"NystromBasis: {share:.3g} of the rows lie far from all inducing points, where features and prior "
                "variance decay to zero. Make the basis with inducing points that cover all inputs, new ones too.",
            )

    def frozen_variance(self, X: np.ndarray) -> np.ndarray:
        """``k(x, x)`` at inputs (n, d), shape (n,), float64."""
        return evaluate(variances, self.kernel, X, np)

    def features(self, X: Any, xp: ModuleType) -> Any:
        tree = (self.kernel, self.inducing_points, self.eigenvalues, self.eigenvectors)
        return evaluate_rows(_whitened, tree, X, xp, len(self.inducing_points))


def _whitened(tree: tuple[Any, ...], X: jax.Array) -> jax.Array:
    kernel, points, eigenvalues, eigenvectors = tree
    return kernel(X, points) @ (eigenvectors * whitening(eigenvalues)[None, :])
