"""What bases share whose features are made for one kernel, with hyperparameters that are frozen from then on."""

from __future__ import annotations

import abc
import dataclasses
import json
from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._internal import checks
from .._internal.pytree import is_static
from ..kernels import Kernel, Product
from ..priors import DiagonalPrior, WeightPrior
from .basis import Basis, common_variance

#: Rows whose correlation with the nearest point of the box around the points is below this are out of the domain.
FAR = 0.1
#: Numbers of features that are evaluated together.
BLOCK_SIZE = 2**21
#: Eigenvalues below this share of the largest are rounding errors.
ROUNDING = 1e-14


class FrozenKernelBasis(Basis):
    """Features φ with ``φ(x)ᵀφ(z) ≈ k(x, z)`` for one kernel k of unit amplitude; the amplitude stays free.

    :ivar hyperparameters: the factors of k and their hyperparameters, from :func:`freeze`: static, so known
        under ``jit`` too.
    """

    approximates_kernel = True

    hyperparameters: str

    @abc.abstractmethod
    def frozen_variance(self, X: np.ndarray) -> np.ndarray:
        """``k(x, x)`` of the frozen kernel at inputs (n, d), shape (n,), float64."""

    def residual_variance(self, X: Any) -> np.ndarray:
        """``k(x, x) − φ(x)ᵀφ(x)`` of the frozen kernel of unit amplitude, shape (1, n), float64, at least 0."""
        X = self._host_inputs(X)
        return (self.frozen_variance(X) - np.sum(self.features(X, np) ** 2, axis=1)).clip(min=0)[None]

    def residual_amplitude(self, prior: WeightPrior) -> jax.Array:
        """The common prior variance of the weights, shape ``batch + (1,)``; zero if they do not share one."""
        return common_variance(prior)[..., None]

    def weight_prior(self, kernel: Kernel) -> DiagonalPrior:
        """Independent weights, all with the amplitude of ``kernel`` as their standard deviation.

        :param kernel: the kernel the basis was made for, with any amplitude, which may be traced.
        :return: a :class:`~ppl_sgp.DiagonalPrior` of shape (m,).
        :raises ValueError: for another kernel, or hyperparameters that differ or cannot be read: features are frozen.
        """
        owner, frozen = type(self).__name__, json.loads(self.hyperparameters)
        remedy = (
            "Its features are frozen, and only the amplitude may vary. To learn lengthscales use FourierBasis or "
            "InterpolationBasis; to free the variance of each feature, `DiagonalPrior(scale)`."
        )
        made_for, got = " * ".join(name for name, _ in frozen), type(kernel).__name__
        if isinstance(kernel, Kernel):
            got = " * ".join(_name(factor) for factor in kernel.factors)
        if got != made_for:
            raise ValueError(f"{owner} was made for the kernel {made_for}; got {got}. {remedy}")
        amplitudes = []
        for factor, (name, values) in zip(kernel.factors, frozen, strict=True):
            for path, value in _leaves(factor):
                if path not in values:
                    amplitudes.append(value)
                elif not checks.is_concrete(value):
                    raise ValueError(f"{owner}: `{name}{path}` is traced, but must be {_short(values[path])}. {remedy}")
                elif not _agree(value, values[path]):
                    raise ValueError(
                        f"{owner} was made for `{name}{path}` {_short(values[path])}; got {_short(value)}. {remedy}"
                    )
        dtype = checks.common_dtype(*jax.tree.leaves(kernel))
        log_amplitude = sum((jnp.log(jnp.asarray(a, dtype)) for a in amplitudes), start=jnp.zeros((), dtype))
        return DiagonalPrior.from_log_scale(jnp.broadcast_to(log_amplitude, (self.num_features,)))


def freeze(kernel: Kernel, owner: str) -> tuple[Kernel, str]:
    """The kernel with unit amplitude and float64 hyperparameters, and a static description of the latter.

    :raises ValueError: if it is no kernel, a sum, or traced.
    """
    if not isinstance(kernel, Kernel):
        raise ValueError(
            f"{owner}: `kernel` must be a kernel such as sgp.SquaredExponential(0.5); got {type(kernel).__name__}."
        )
    if not checks.is_concrete(kernel):
        raise ValueError(
            f"{owner}: `kernel` is traced, but the basis is computed once on the host. Make it outside `jit`, `grad` "
            "and NumPyro models."
        )
    if any(term is not factor for factor in kernel.factors for term in factor.terms):
        raise ValueError(
            f"{owner}: `kernel` has a sum in it, whose terms would lose their amplitudes. Make a basis for each term "
            "and `sgp.stack` them."
        )
    units, description = [], []
    for factor in kernel.factors:
        frozen = {path: np.asarray(value, dtype=np.float64) for path, value in _leaves(factor)}
        frozen.pop(".amplitude", None)
        leaves = [frozen.get(path, np.float64(1.0)) for path, _ in _leaves(factor)]
        units.append(jax.tree.unflatten(jax.tree.structure(factor), leaves))
        description.append([_name(factor), {path: value.tolist() for path, value in frozen.items()}])
    return units[0] if len(units) == 1 else Product(tuple(units)), json.dumps(description)


def evaluate(function: Callable[..., Any], tree: Any, X: Any, xp: ModuleType) -> Any:
    """``function(tree, X)``, written in JAX: in the dtype of ``X``, or for NumPy inputs in float64 NumPy.

    :param function: a function of a module, compiled once for each shape of its arguments.
    :param tree: a pytree of floating and integer arrays; floating ones are cast to the dtype of ``X``.
    """
    if xp is np:
        with jax.enable_x64(True), jax.ensure_compile_time_eval():
            return np.asarray(jax.jit(function)(_cast(tree, X.dtype), X))
    return function(_cast(tree, X.dtype), X)


def evaluate_rows(function: Callable[..., Any], tree: Any, X: Any, xp: ModuleType, width: int) -> Any:
    """:func:`evaluate` of a function of each row by itself, for NumPy inputs a block at a time.

    Compiled products of whole matrices become fifty times slower from some 10⁷ entries on.

    :param width: numbers that are evaluated for a row; there may be fewer features.
    """
    size = max(1, BLOCK_SIZE // width)
    if xp is not np or len(X) <= size:
        return evaluate(function, tree, X, xp)
    out = np.empty(())
    for start in range(0, len(X), size):
        block = X[start : start + size]
        # The last block repeats its last row, so that all have one shape.
        padded = np.concatenate([block, np.repeat(block[-1:], size - len(block), axis=0)])
        values = evaluate(function, tree, padded, np)
        if start == 0:
            out = np.empty((len(X), *values.shape[1:]))
        out[start : start + size] = values[: len(block)]
    return out


def covariances(tree: tuple[Any, ...], X: jax.Array) -> jax.Array:
    """``k(X, points)``, shape (n, k), of a kernel and points (k, d); for :func:`evaluate`."""
    kernel, points = tree
    return kernel(X, points)


def variances(kernel: Kernel, X: jax.Array) -> jax.Array:
    """``k(x, x)``, shape (n,), of a kernel; for :func:`evaluate`."""
    return kernel.diag(X)


def share_far(kernel: Kernel, points: np.ndarray, X: Any) -> float:
    """The share of rows (n, d) that a kernel hardly correlates with the bounding box of points (k, d).

    Zero where rows cannot be read.
    """
    if not checks.is_concrete(X) or len(X) == 0:
        return 0.0
    X = np.asarray(X, dtype=np.float64)
    inside = np.clip(X, points.min(axis=0), points.max(axis=0))
    outside = (inside != X).any(axis=1)
    if not outside.any():
        return 0.0
    return np.sum(evaluate(_correlations, (kernel, inside[outside]), X[outside], np) < FAR) / len(X)


def _correlations(tree: tuple[Any, ...], X: jax.Array) -> jax.Array:
    """Correlations of rows with as many other points, (n,); 1 where f has no variance, so that nothing is lost."""
    kernel, points = tree
    covariance = jax.vmap(lambda x, u: kernel(x[None], u[None])[0, 0])(X, points)
    variances = kernel.diag(X) * kernel.diag(points)
    return jnp.where(variances > 0, covariance / jnp.sqrt(jnp.where(variances > 0, variances, 1)), 1)


def eigenpairs(covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues (r,) above rounding, largest first, and their eigenvectors (m, r)."""
    values, vectors = np.linalg.eigh(covariance)
    kept = np.flatnonzero(values > ROUNDING * values[-1])[::-1]
    return values[kept], vectors[:, kept]


def whitening(eigenvalues: jax.Array) -> jax.Array:
    """``λ^-½`` over the last axis; zero where λ is below the rounding of its dtype.

    There the feature is smaller than its own rounding error: in float32, some are that float64 resolves.
    """
    floor = jnp.finfo(eigenvalues.dtype).eps * jnp.max(eigenvalues, axis=-1, keepdims=True)
    return jnp.where(eigenvalues > floor, jax.lax.rsqrt(jnp.maximum(eigenvalues, floor)), 0)


def _cast(tree: Any, dtype: Any) -> Any:
    def cast(leaf):
        return jnp.asarray(leaf, dtype if jnp.issubdtype(jnp.result_type(leaf), jnp.floating) else None)

    return jax.tree.map(cast, tree)


def _leaves(kernel: Kernel) -> list[tuple[str, Any]]:
    """The hyperparameters with their names, such as ``.lengthscale``."""
    leaves = jax.tree_util.tree_flatten_with_path(kernel)[0]
    return [(jax.tree_util.keystr(path), value) for path, value in leaves]


def _name(kernel: Kernel) -> str:
    """The class, and static numbers such as an order."""
    statics = [f"{f.name}={getattr(kernel, f.name)}" for f in dataclasses.fields(kernel) if is_static(f)]  # type: ignore[arg-type]
    return type(kernel).__name__ + (f"({', '.join(statics)})" if statics else "")


def _agree(value: Any, frozen: Any) -> bool:
    """Equal to the precision of float32; a scalar agrees with as many equal numbers."""
    value, frozen = np.asarray(value, dtype=np.float64), np.asarray(frozen)
    shapes_fit = value.shape == frozen.shape or () in (value.shape, frozen.shape)
    return shapes_fit and np.allclose(value, frozen, rtol=1e-6, atol=0)


def _short(value: Any) -> str:
    return np.array2string(np.asarray(value), threshold=8)
