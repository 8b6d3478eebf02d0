"""Kernels at given centres as features: the dictionary of a relevance vector machine.

References
    1. Tipping, M. E. (2001), Sparse Bayesian learning and the relevance vector machine.
    2. Evans, T. W. (2022), PhD thesis, section 5.3.2.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import jax
import numpy as np

from .._internal import checks
from .._internal.clusters import cluster
from .._internal.pytree import pytree_dataclass, static
from .._internal.random import random_key
from ..kernels import Kernel
from .basis import Basis
from .frozen_kernel import covariances, evaluate_rows, share_far
from .inputs import point_set


@pytree_dataclass
class CentredBasis(Basis):
    """Features ``φ(x) = [k(x, c_1), …, k(x, c_k)]``, and a constant one last, so that feature j is centre j.

    The kernel and its lengthscale are frozen. Weights have free variances
    (:func:`~ppl_sgp.fit_relevance_vectors`, :func:`ppl_sgp.models.reweighted_basis`) or any prior over m weights.
    Far from all centres features vanish and f is its constant *with certainty*: variances of local
    kernels shrink where they should grow. Rows whose correlation with the nearest point of the centres' bounding
    box is below 0.1 are announced by a warning.

    :param centres: the centres, shape (k, d).
    :param kernel: any kernel; its hyperparameters are frozen, amplitude included.
    :param bias: whether there is a constant feature, the last one.
    :raises ValueError: for centres that are not a finite (k, d) array, or a traced kernel.

    .. doctest::

        >>> import ppl_sgp as sgp
        >>> basis = sgp.CentredBasis([[0.0], [1.0]], sgp.SquaredExponential(0.5))
        >>> basis.host_features([[0.0]]).round(3).tolist()
        [[1.0, 0.135, 1.0]]
    """

    approximates_kernel = True

    centres: Any
    kernel: Kernel
    bias: bool = static(default=True)

    def __init__(self, centres: Any, kernel: Kernel, bias: bool = True) -> None:
        if not isinstance(kernel, Kernel):
            raise ValueError(
                "CentredBasis: `kernel` must be a kernel such as sgp.SquaredExponential(0.5); got "
                f"{type(kernel).__name__}."
            )
        if not checks.is_concrete(kernel, centres):
            raise ValueError(
                "CentredBasis: `kernel` or `centres` is traced, but features are frozen. Make the basis outside `jit`, "
                "`grad` and NumPyro models; choose lengthscales by the evidence of several bases."
            )
        object.__setattr__(self, "centres", point_set("centres", centres, "CentredBasis"))
        object.__setattr__(self, "kernel", jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), kernel))
        object.__setattr__(self, "bias", bool(bias))

    @classmethod
    def from_data(cls, key: jax.Array, X: Any, num_centres: int, kernel: Kernel, bias: bool = True) -> CentredBasis:
        """Centres by k-means on the training inputs (SciPy's, from k-means++ starts); all rows if they are no more.

        :param key: a JAX random key.
        :param X: training inputs, shape (n, d); an expensive n·k·d is saved by passing a random subset.
        :param num_centres: k. Empty clusters are dropped, so there may be fewer.
        :param kernel: the kernel.
        :param bias: whether there is a constant feature.
        :raises ValueError: for inputs that are not a finite (n, d) array with rows.

        .. doctest::

            >>> import jax, numpy as np, ppl_sgp as sgp
            >>> X = np.linspace(0, 1, 100)[:, None]
            >>> sgp.CentredBasis.from_data(jax.random.key(0), X, 10, sgp.Matern52(0.2)).num_features
            11
        """
        k = checks.whole_number("num_centres", num_centres, 1, "CentredBasis.from_data")
        X = point_set("X", X, "CentredBasis.from_data")
        key = random_key(key, "CentredBasis.from_data")
        seed = int(jax.random.randint(key, (), 0, np.iinfo(np.int32).max))
        return cls(cluster(X, k, np.random.default_rng(seed))[0], kernel, bias)

    @property
    def num_features(self) -> int:
        """The number of features m: centres, and one for the constant."""
        return self.centres.shape[-2] + self.bias

    @property
    def input_dim(self) -> int:
        """The number of input columns d."""
        return self.centres.shape[-1]

    @property
    def constant_features(self) -> np.ndarray:
        """Whether each feature is the constant, shape (m,), Boolean."""
        return np.arange(self.num_features) >= self.centres.shape[-2]

    @property
    def centre_kernel(self) -> Kernel:
        """The kernel that the features are at the centres."""
        return self.kernel

    @property
    def feature_coords(self) -> dict[str, Any]:
        """Names of the features, and their centres (NaN for the constant), as coordinates of xarray."""
        centres = np.asarray(self.centres)
        names = [f"centre {j}" for j in range(len(centres))] + ["constant"] * self.bias
        constant = np.full((int(self.bias), self.input_dim), np.nan)
        return {"feature": names, "centre": (("feature", "input"), np.concatenate([centres, constant]))}

    def check_domain(self, X: Any) -> None:
        share = share_far(self.kernel, self.centres, X)
        if share > 0:
            checks.warn(
                f"CentredBasis: {share:.3g} of the rows lie far from all centres, where features vanish and variances "
                "are too small. Do not trust predictions there, use centres that cover them, or predict with "
                "`augment=sgp.Augmentation(X, y)`.",
            )

    def features(self, X: Any, xp: ModuleType) -> Any:
        features = evaluate_rows(covariances, (self.kernel, self.centres), X, xp, len(self.centres))
        return xp.concatenate([features, xp.ones_like(X[:, :1])], axis=1) if self.bias else features
