"""``log p(y | θ, Z)`` with inducing points: the bound of Titsias, DTC, FITC and PITC, and a bound from above.

With ``LLᵀ = k(Z, Z)``, ``V = L⁻¹k(Z, X)`` and ``Q = VᵀV``, all are normal densities of covariance ``Q + Λ``:

- DTC has ``Λ = σ²Ω⁻¹``; VFE is its density less ``tr Ω(K − Q)/2σ²`` (Titsias 2009, eq 9; Hughes-Hallett 2022, eq 2.12,
  where I has the size of Q in print);
- FITC has ``Λ = diag(K − Q) + σ²Ω⁻¹`` (Snelson & Ghahramani 2006), PITC blockdiag (Quiñonero-Candela & Rasmussen 2005).

Rows enter through sums of size m: ``A = VΛ⁻¹Vᵀ``, ``r = VΛ⁻¹y``, ``yᵀΛ⁻¹y`` and ``log|Λ|``, and with ``B = I + A``

    log N(y; 0, Q + Λ) = −½ [ n log 2π + log|Λ| + log|B| + yᵀΛ⁻¹y − rᵀB⁻¹r ].

The eigenvalues of B are at least one. Sums and their gradients: ``inducing_parts``. float64 only.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from .._internal import checks
from .._internal.batching import full_precision, vectorize
from ..kernels import Kernel
from ..statistics.kept_rows import ChunkedRows, Rows, SpreadRows
from .inducing_blocks import Parameters, Sums, block_members, in_blocks, independent
from .inducing_parts import Parts, held, part_size, summed, whitened

METHODS = ("vfe", "dtc", "fitc", "pitc", "pic")
#: Those with blocks of rows: of PIC new rows belong to them as well, and its evidence is that of PITC.
IN_BLOCKS = ("pitc", "pic")
#: Variances added to those at the inducing points, as shares of their mean: the first with which they have a factor.
JITTER = tuple(10.0**exponent for exponent in range(-10, -3))
#: Rounding errors that a jitter must be above.
ROUNDED = 10


def inducing_evidence(
    rows: Rows | ChunkedRows, kernel: Kernel, Z: Any, noise_scale: Any, method: str = "vfe", *, blocks: Any = None
) -> jax.Array:
    """``log p(y | θ, Z)`` of a GP seen through m inducing points, in nats; differentiable in kernel, points and noise.

    - ``"vfe"``: the collapsed bound of Titsias (2009, eq 9), never above the evidence of the exact GP, and equal to it
      where the points are the rows.
    - ``"dtc"``: the same without its trace term: a model with less variance away from the points.
    - ``"fitc"``, ``"pitc"``: models that keep the variance of each row, or the covariance of each block of rows.
    - ``"pic"`` (Snelson & Ghahramani 2007): that of PITC, whose blocks new rows belong to.

    O(n m²) time in memory O(m²) beyond the rows, also for gradients; PITC O(n b²) more for blocks of b rows, in memory
    O(b² + m²). A jitter of 1e-10 of the mean variance at the points, or the least power of ten above with which they
    have a Cholesky factor, makes duplicate points count once.

    :param rows: from :func:`~ppl_sgp.rows`.
    :param kernel: the covariance of f, of mean zero.
    :param Z: inducing points, shape (m, d), in the space of the inputs; anywhere.
    :param noise_scale: standard deviation of the noise of a row of weight one: a number, or one an output, shape (q,).
    :param method: ``"vfe"``, ``"dtc"``, ``"fitc"``, ``"pitc"`` or ``"pic"``.
    :param blocks: for PITC and PIC: integer labels of the rows, shape (n,), or a number of blocks, made by k-means.
    :return: shape (), or of several outputs (q,).
    :raises ValueError: for arguments that do not fit, float32, and a result that is not finite (under ``jit`` −∞).

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 200)[:, None]
        >>> rows = sgp.rows(X, np.sin(6 * X[:, 0]))
        >>> kernel, Z = sgp.SquaredExponential(0.3), np.linspace(0, 1, 8)[:, None]
        >>> with jax.enable_x64(True):  # or numpyro.enable_x64() at the start
        ...     bound = sgp.inducing_evidence(rows, kernel, Z, noise_scale=0.1)
        ...     bool(0 < sgp.inducing_upper_bound(rows, kernel, Z, noise_scale=0.1) - bound < 0.1)
        True
    """
    owner = "inducing_evidence"
    check_arguments(owner, rows, kernel, Z, noise_scale, method)
    parts = parts_of(owner, rows, len(Z), method, blocks)
    value = _evaluated(method, parts, rows, kernel, jnp.asarray(Z), noise_scale)
    return _finite(owner, value, noise_scale)


def inducing_upper_bound(rows: Rows | ChunkedRows, kernel: Kernel, Z: Any, noise_scale: Any) -> jax.Array:
    """A bound from above on the evidence of the exact GP, of the same cost as that from below (Titsias 2014).

    ``−½ [ n log 2π + log|Q + σ²I| + yᵀ(Q + (σ² + t)I)⁻¹y ]`` with ``t = tr(K − Q)``; with row weights for ``Ω^½ y``,
    whose noise is the same for all rows. What it exceeds :func:`inducing_evidence` by bounds what inducing points lose.

    :param rows: from :func:`~ppl_sgp.rows`.
    :param kernel: the covariance of f.
    :param Z: inducing points, shape (m, d).
    :param noise_scale: standard deviation of the noise: a number, or one an output, shape (q,).
    :return: nats, shape (), or of several outputs (q,).
    :raises ValueError: as :func:`inducing_evidence`.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> rows = sgp.rows(np.array([[0.0], [1.0]]), np.array([0.3, -0.4]))
        >>> Z, kernel = np.array([[0.5]]), sgp.Matern32(1.0)
        >>> with jax.enable_x64(True):
        ...     bool(sgp.inducing_upper_bound(rows, kernel, Z, 0.5) > sgp.inducing_evidence(rows, kernel, Z, 0.5))
        True
    """
    owner = "inducing_upper_bound"
    check_arguments(owner, rows, kernel, Z, noise_scale, "vfe")
    parts = parts_of(owner, rows, len(Z), "vfe")
    return _finite(owner, _evaluated("upper", parts, rows, kernel, jnp.asarray(Z), noise_scale), noise_scale)


@functools.partial(jax.jit, static_argnums=0)
def _evaluated(
    method: str, parts: Parts, rows: Rows | ChunkedRows, kernel: Kernel, Z: Any, noise_scale: Any
) -> jax.Array:
    value = evaluate(method, parts, kernel, Z, noise_scale, rows.values)
    return jnp.where(jnp.isnan(value), -jnp.inf, value)


def _finite(owner: str, value: jax.Array, noise_scale: Any) -> jax.Array:
    if checks.is_concrete(value) and not np.isfinite(np.asarray(value)).all():
        raise ValueError(
            f"{owner}: the result is not finite ({value}) for noise_scale {noise_scale}: the kernel at the inducing "
            "points is not finite or has no Cholesky factor, or the signal is beyond float64 times the noise. Check "
            "units and hyperparameters, or bound the noise away from zero."
        )
    return value


def evaluate(method: str, parts: Parts, kernel: Kernel, Z: Any, noise_scale: Any, values: Any) -> jax.Array:
    """The evidence of outputs ``values``, shape batch + (n,), without checks.

    :param method: one of ``METHODS``, or ``"upper"``.
    :param parts: from :func:`parts_of`.
    :param noise_scale: of any shape that broadcasts with the batch. Sums that depend on it, those of FITC and PITC, are
        taken for each.
    """
    if method in CORRELATED:
        return _of_correlated(CORRELATED[method], parts, kernel, Z, noise_scale, values)
    density, upper, trace_term = white_noise_terms(parts, kernel, Z, noise_scale, values)
    return upper if method == "upper" else density + trace_term if method == "vfe" else density


#: Methods whose sums depend on the noise, and the sums of a part of the rows.
CORRELATED = {"fitc": independent, "pitc": in_blocks, "pic": in_blocks}


def white_noise_terms(
    parts: Parts, kernel: Kernel, Z: Any, noise_scale: Any, values: Any
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The density of DTC, the bound from above, and the trace term of VFE, which is not positive."""
    kernel, Z, values = _float64((kernel, Z, values))
    n, batch = values.shape[-1], values.shape[:-1]
    flat = values.reshape(-1, n)
    with full_precision():
        sums = whitened(parts, kernel, Z, factor_at_points(kernel, Z), flat.T)
    weights = jnp.ones(n) if parts.weights is None else jnp.asarray(parts.weights)
    squares = (flat**2 @ weights).reshape(batch)
    # Rounding may make it negative where points are at all rows.
    lost = jnp.maximum(sums.variance - jnp.trace(sums.gram), 0)

    def one(noise_scale: jax.Array, projection: jax.Array, squares: jax.Array) -> tuple[jax.Array, jax.Array]:
        variance = noise_scale**2
        log_determinant, misfit = _terms(variance, sums.gram, projection, squares)
        most = _terms(variance + lost, sums.gram, projection, squares)[1]
        constant = n * jnp.log(2 * jnp.pi * variance) + log_determinant - jnp.sum(jnp.log(weights))
        return -0.5 * (constant + misfit), -0.5 * (constant + most)

    projection = sums.projection.T.reshape(*batch, len(Z))
    density, upper = vectorize(one, "(),(m),()->(),()", (noise_scale, projection, squares), jnp.float64)
    return density, upper, -0.5 * lost / jnp.asarray(noise_scale, jnp.float64) ** 2


def _of_correlated(terms: Any, parts: Parts, kernel: Kernel, Z: Any, noise_scale: Any, values: Any) -> jax.Array:
    parameters = parameters_of(kernel, Z)

    def one(noise_scale: jax.Array, y: jax.Array) -> jax.Array:
        sums: Sums = summed(terms, parts, (parameters, noise_scale), y[:, None])
        log_determinant, misfit = _terms(jnp.ones(()), sums.gram, sums.projection[:, 0], sums.squares[0])
        return -0.5 * (len(y) * jnp.log(2 * jnp.pi) + sums.log_noise + log_determinant + misfit)

    return vectorize(one, "(),(n)->()", (noise_scale, values), jnp.float64)


def parameters_of(kernel: Kernel, Z: Any) -> Parameters:
    """Kernel and points, in float64, with the inverse factor of the covariance at the points."""
    kernel, Z = _float64((kernel, Z))
    L = factor_at_points(kernel, Z)
    return Parameters(kernel, Z, solve_triangular(L, jnp.eye(len(L)), lower=True))


def _terms(
    variance: jax.Array, gram: jax.Array, projection: jax.Array, squares: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """``log|I + A/s|``, and ``yᵀ(Q + sI)⁻¹y`` from sums without noise, of variance s."""
    L = jnp.linalg.cholesky(jnp.eye(len(gram)) + gram / variance, symmetrize_input=False)
    explained = solve_triangular(L, projection / variance, lower=True)
    return 2 * jnp.sum(jnp.log(jnp.diagonal(L))), squares / variance - jnp.sum(explained**2)


def factor_at_points(kernel: Kernel, Z: jax.Array) -> jax.Array:
    """The Cholesky factor of the covariance at the points and a jitter, the least of ``JITTER`` that gives one.

    In float32 (stochastic fits) the least that is well above its rounding errors.
    """
    covariance = kernel(Z)
    mean = jnp.mean(jnp.diagonal(covariance))
    unit = jnp.where(mean > 0, mean, 1)
    resolved = [step for step in JITTER if step > ROUNDED * float(jnp.finfo(covariance.dtype).eps)]
    steps = jnp.asarray(resolved, covariance.dtype)

    def shifted(covariance: jax.Array, step: Any) -> jax.Array:
        return jnp.linalg.cholesky(covariance + steps[step] * unit * jnp.eye(len(covariance), dtype=covariance.dtype))

    def fails(step: Any) -> Any:
        L = shifted(jax.lax.stop_gradient(covariance), step)
        return (step < len(resolved) - 1) & ~jnp.isfinite(L).all()

    step = jax.lax.while_loop(fails, lambda step: step + 1, jnp.asarray(0))
    return shifted(covariance, step)


def parts_of(owner: str, rows: Rows | ChunkedRows, num_points: int, method: str, blocks: Any = None) -> Parts:
    """The rows in parts, as the method sums over them."""
    if method in IN_BLOCKS:
        if isinstance(rows, ChunkedRows):
            raise ValueError(
                f'{owner}: method "{method}" reads rows block by block, so they must be arrays; got {rows}.'
            )
        return parts_with(rows, num_points, block_members(blocks, rows.X, owner))
    if blocks is not None:
        raise ValueError(f'{owner}: `blocks` are of methods "pitc" and "pic"; leave them out, or choose that.')
    return parts_with(rows, num_points, None)


def parts_with(rows: Rows | ChunkedRows, num_points: int, members: Any) -> Parts:
    """The rows in parts of known members (blocks, size), or without any in their order."""
    size = part_size(rows.num_rows, num_points) if members is None else members.shape[-1]
    shape = (rows.num_rows, rows.input_dim, size)
    if isinstance(rows, ChunkedRows):
        return Parts(None, rows.row_weights, members, *shape, rows.inputs.reader(size))
    spread = rows.spread if isinstance(rows, SpreadRows) and members is None else None
    return Parts(held(rows.X), rows.row_weights, members, *shape, spread=spread)


def check_arguments(owner: str, rows: Any, kernel: Any, Z: Any, noise_scale: Any, method: str) -> None:
    """Refuse wrong types and shapes, noise that is not positive, unknown methods and float32."""
    if not isinstance(rows, (Rows, ChunkedRows)):
        raise ValueError(
            f"{owner}: `rows` must come from sgp.rows(X, y); got {type(rows).__name__}. Features at points that are "
            "free cannot be compressed once."
        )
    if not isinstance(kernel, Kernel):
        raise ValueError(
            f"{owner}: `kernel` must be a kernel such as sgp.SquaredExponential(0.5); got {type(kernel).__name__}."
        )
    if method not in METHODS:
        raise ValueError(f"{owner}: `method` must be one of {METHODS}; got {method!r}.")
    checks.positive("noise_scale", noise_scale, owner)
    check_points(owner, Z, rows.input_dim)
    Z = Z if hasattr(Z, "dtype") else np.asarray(Z)
    dtype = checks.common_dtype(*jax.tree.leaves(kernel), Z, noise_scale)
    if dtype != jnp.float64:
        raise ValueError(
            f"{owner} needs float64, since it squares the condition number of the covariance at the points; got "
            f"{dtype}. Call numpyro.enable_x64() before creating arrays, and pass parameters of float64."
        )
    if jnp.shape(noise_scale)[-1:] not in ((), (1,), np.shape(rows.y)[1:]) and rows.num_outputs > 1:
        raise ValueError(
            f"{owner}: `noise_scale` must be a number for all outputs, or one for each of {rows.num_outputs}; got "
            f"shape {jnp.shape(noise_scale)}."
        )


def check_points(owner: str, Z: Any, input_dim: int, name: str = "Z") -> None:
    """Refuse points that are not finite, or not of shape (m, d) with m of at least one."""
    Z = checks.inputs_matrix(Z, None, owner, name)
    if np.shape(Z)[1] != input_dim or np.shape(Z)[0] == 0:
        raise ValueError(
            f"{owner}: `{name}` must have shape (m, {input_dim}), a point a row in the space of the inputs; got "
            f"{np.shape(Z)}."
        )
    if checks.is_concrete(Z):
        checks.require_finite(name, np.asarray(Z), owner)


def _float64(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), tree)
