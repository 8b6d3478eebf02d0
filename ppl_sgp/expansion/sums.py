"""What one pass finds: the log likelihood of rows to second order around a point of weights and parameters.

With gradients gᵢ and curvatures Vᵢ of rows in their predictors, K of them, and in the p parameters of the likelihood,
gradient and curvature in weights are ``Φᵀg`` and ``ΦᵀVΦ``, in blocks of K by K. Rows are worked on by JAX, products by
BLAS.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._internal.pytree import pytree_dataclass
from ..likelihoods.likelihood import Likelihood
from ..statistics.moments import join_descriptions

#: Least curvature of a row, in units of its squared gradient: where rows are saturated on the wrong side, their pull
#: stays within what the curvature spans. A row at its mode within its own uncertainty has one.
LEAST_CURVATURE = 1e-10
#: Columns of a covariance's factor are multiplied in so many parts.
PANELS = 4


class Point(NamedTuple):
    """Where rows are expanded: at one point, or averaged over normal weights.

    :ivar likelihood: the likelihood, K predictors a row.
    :ivar weights: shape (K·m,), those of the first predictor first.
    :ivar factor: F with FFᵀ the covariance of the weights, (K·m, K·m); ``None`` for an expansion at the point.
    :ivar parameters: unconstrained, shape (p,).
    :ivar is_start: whether predictors are those of :meth:`Likelihood.start` instead, and ``weights`` zero.
    """

    likelihood: Likelihood
    weights: np.ndarray
    factor: np.ndarray | None
    parameters: np.ndarray
    is_start: bool = False


@pytree_dataclass
class Sums:
    """Sums over rows, additive.

    :param log_prob: log likelihood, or its average.
    :param gradient: in weights and parameters, shape (K·m + p,).
    :param curvature: negative second derivatives, shape (K·m + p, K·m + p).
    :param total_weight: sum of the curvatures in predictors.
    :param described: what describes inputs, as :class:`~ppl_sgp.statistics.moments.Moments` have it.
    """

    log_prob: Any
    gradient: Any
    curvature: Any
    total_weight: Any
    described: Any

    def __add__(self, other: Sums) -> Sums:
        names = ("log_prob", "gradient", "curvature", "total_weight")
        added = {name: getattr(self, name) + getattr(other, name) for name in names}
        return Sums(described=join_descriptions(self.described, other.described), **added)


class RunningSums:
    """Sums to which blocks of rows are added.

    :param num_features: m.
    :param point: where rows are expanded.
    """

    def __init__(self, num_features: int, point: Point) -> None:
        self.point, self._m, self._K = point, num_features, point.likelihood.num_latents
        self._p, self.width = len(point.parameters), self._K * num_features + len(point.parameters)
        # Standard deviations of predictors need no more digits, and cost half as much.
        self._factor = None if point.factor is None else point.factor.astype(np.float32)
        # Independent weights have a triangular factor, of which the zeros are left out, panel by panel.
        self._is_triangular = point.factor is not None and not np.tril(point.factor, -1).any()
        width = -(-self._K * num_features // PANELS)
        self._panels = [slice(start, start + width) for start in range(0, self._K * num_features, width)]
        self._total: Sums | None = None

    def memory(self) -> np.ndarray:
        """Memory for the products of a block."""
        return np.empty((self.width, self.width))

    def part(self, Phi: np.ndarray, y: Any, offset: Any, row_weights: Any, size: int, memory: np.ndarray) -> Sums:
        """Sums of a block of rows, with features (k, m), which are overwritten; without descriptions.

        :param size: rows for which the program is compiled; fewer are filled up.
        """
        mean, covariance = self._predictors(Phi, offset)
        arrays = [_filled(array, size) for array in (mean, covariance, y, offset)]
        weights = _filled(np.ones(len(Phi)) if row_weights is None else row_weights, size, 0.0)
        found = of_rows(self.point.likelihood, *arrays, weights, self.point.parameters, self.point.is_start)
        log_prob, gradient, curvature = found[0], found[1][: len(Phi)], found[2][: len(Phi)]
        total = np.trace(curvature[:, : self._K, : self._K], axis1=1, axis2=2).sum()
        return Sums(log_prob, self._gradient(Phi, gradient), self._curvature(Phi, curvature, memory), total, None)

    def _predictors(self, Phi: np.ndarray, offset: Any) -> tuple[np.ndarray, np.ndarray | None]:
        """Means (k, K) and covariances (k, K, K) of the predictors of rows, the latter ``None`` at a point."""
        K, m = self._K, self._m
        mean = Phi @ self.point.weights.reshape(K, m).T
        if offset is not None:
            mean += offset.reshape(len(Phi), -1)
        if self._factor is None:
            return mean, None
        covariance, single = np.zeros((len(Phi), K, K)), Phi.astype(np.float32)
        for panel in self._panels:
            ends = min(m, panel.stop) if K == 1 and self._is_triangular else m
            roots = [single[:, :ends] @ self._factor[j * m : j * m + ends, panel] for j in range(K)]
            for i in range(K):
                for j in range(i + 1):
                    covariance[:, i, j] += np.einsum("kr,kr->k", roots[i], roots[j])
        for i in range(K):
            covariance[:, i, i + 1 :] = covariance[:, i + 1 :, i]
        return mean, covariance

    def _gradient(self, Phi: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        K = self._K
        return np.concatenate([(gradient[:, :K].T @ Phi).ravel(), gradient[:, K:].sum(axis=0)])

    def _curvature(self, Phi: np.ndarray, curvature: np.ndarray, out: np.ndarray) -> np.ndarray:
        K, m = self._K, self._m
        weights = K * m
        out[weights:, weights:] = curvature[:, K:, K:].sum(axis=0)
        for i in range(K):
            own = slice(i * m, (i + 1) * m)
            out[own, weights:] = Phi.T @ curvature[:, i, K:]
            out[weights:, own] = out[own, weights:].T
            for j in range(i + 1, K):
                other = slice(j * m, (j + 1) * m)
                out[own, other] = (Phi * curvature[:, i, j, None]).T @ Phi
                out[other, own] = out[own, other].T
        for i in range(K):
            own = slice(i * m, (i + 1) * m)
            scaled = np.multiply(Phi, np.sqrt(curvature[:, i, i, None]), out=Phi if i == K - 1 == 0 else None)
            out[own, own] = scaled.T @ scaled  # a symmetric rank-k update, half the work of a product
        return out

    def add(self, part: Sums, described: dict[str, Any]) -> None:
        """Add what :meth:`part` has made of other rows."""
        part = Sums(**{**vars(part), "described": described})
        if self._total is None:
            self._total = Sums(**{**vars(part), "curvature": part.curvature.copy()})
            return
        total = self._total
        total.curvature.__iadd__(part.curvature)
        added = {name: getattr(total, name) + getattr(part, name) for name in ("log_prob", "gradient", "total_weight")}
        joined = join_descriptions(total.described, described)
        self._total = Sums(curvature=total.curvature, described=joined, **added)

    @property
    def total(self) -> Sums | None:
        """The sums so far."""
        return self._total


def _filled(array: Any, size: int, value: float | None = None) -> Any:
    """Rows filled up to ``size`` with the last one, or with ``value``."""
    if array is None or len(array) == size:
        return array
    last = array[-1:] if value is None else np.full_like(array[-1:], value)
    return np.concatenate([array, np.repeat(last, size - len(array), axis=0)])


def of_rows(*arguments: Any) -> tuple[float, np.ndarray, np.ndarray]:
    """Log density of all rows, gradients (k, K + p) and curvatures (k, K + p, K + p), in float64 on the host.

    Curvatures in the predictors are positive semi-definite: negative ones count as none, and what a row pulls without
    any as next to none.
    """
    with jax.enable_x64(True), jax.default_device(_host_device()):
        found = _of_rows(*arguments)
        return float(found[0]), np.asarray(found[1]), np.asarray(found[2])


@functools.cache
def _host_device() -> Any:
    """The CPU, where the rows are; ``None``, for JAX's own choice, if JAX was started without it."""
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return None


@functools.partial(jax.jit, static_argnums=7)
def _of_rows(
    likelihood: Likelihood,
    mean: Any,
    covariance: Any,
    y: Any,
    offset: Any,
    row_weights: Any,
    parameters: Any,
    is_start: bool,
) -> tuple[Any, Any, Any]:
    K, p = likelihood.num_latents, len(parameters)
    if K == 1:
        mean, covariance = mean[:, 0], None if covariance is None else covariance[:, 0, 0]
    centre = mean
    if is_start:
        mean = likelihood.start(y)
    if p:
        found = (
            likelihood.joint_derivatives(mean, y, parameters)
            if covariance is None
            else likelihood.averaged_joint(mean, covariance, y, parameters)
        )
    elif covariance is None:
        found = likelihood.derivatives(mean, y, parameters)
    else:
        found = likelihood.averaged(mean, covariance, y, parameters)
    rows = len(row_weights)
    gradient, curvature = found.gradient.reshape(rows, K + p), found.curvature.reshape(rows, K + p, K + p)
    own = _positive(curvature[:, :K, :K], gradient[:, :K], likelihood.is_log_concave)
    curvature = curvature.at[:, :K, :K].set(own)
    if is_start:
        distance = (mean - centre).reshape(rows, K)
        gradient = gradient.at[:, :K].add(jnp.einsum("kij,kj->ki", own, distance))
    used = row_weights > 0
    log_prob = jnp.sum(jnp.where(used, row_weights * found.log_prob, 0))
    gradient = jnp.where(used[:, None], row_weights[:, None] * gradient, 0)
    curvature = jnp.where(used[:, None, None], row_weights[:, None, None] * curvature, 0)
    return log_prob, gradient, curvature


def _positive(curvature: jax.Array, gradient: jax.Array, is_log_concave: bool) -> jax.Array:
    """Curvatures (k, K, K) without negative directions, and with some along the gradient."""
    K = curvature.shape[-1]
    if K == 1:
        return jnp.maximum(curvature, LEAST_CURVATURE * gradient[:, :, None] ** 2)
    if not is_log_concave:
        values, vectors = jnp.linalg.eigh(curvature)
        curvature = jnp.einsum("kij,kj,klj->kil", vectors, jnp.maximum(values, 0), vectors)
    return curvature + LEAST_CURVATURE * gradient[:, :, None] * gradient[:, None, :]
