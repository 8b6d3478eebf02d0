"""Rows of any likelihood through latent outcomes with a nugget, some of which a sweep updates.

Outcomes depend on ``u = f(X) + σε`` alone. Given u the rows are Gaussian, with statistics ``Φᵀu`` and ``uᵀu`` that a
change of one u changes in O(m) (Evans 2022, section 5.3.5). With orthonormal features over the rows, ``Φ = QR``, and
``W = (I + R S⁻¹Rᵀ/σ²)⁻¹``, the precision of u is

    Λ = σ⁻²(I − QQᵀ + Q W Qᵀ),     Λ(u − Φμ) = σ⁻²[u − Qc + Q W(c − Rμ)],     c = Qᵀu,

sums of positive semi-definite terms, where ``σ⁻²(1 − φᵀP⁻¹φ)`` of the thesis cancels. Given all others ``uᵢ`` has the
prior ``N(uᵢ − (Λ(u − Φμ))ᵢ/Λᵢᵢ, 1/Λᵢᵢ)`` and the likelihood ``p(yᵢ | uᵢ)``.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from .._internal import checks
from .._internal.batching import full_precision
from .._internal.pytree import pytree_dataclass, static
from ..bases.basis import Basis
from ..evidence.joint import dense_factor
from ..evidence.scaled import cholesky
from ..likelihoods import Likelihood
from ..priors import WeightPrior
from ..statistics.compressed import compressed_of
from ..statistics.moments import Moments
from ..statistics.statistics import SufficientStatistics, with_compressed
from .gibbs_rows import GibbsRows, Sweep, checked_rows, prior_of_parameters
from .slice_sampling import elliptical_slice

#: Latent outcomes are updated in blocks of so many, or of m if that is more: precisions within a block are a matrix.
LEAST_BLOCK = 32
#: Share of the rows between one that is updated and the next, near it: so that neighbours are seldom together.
STRIDE = (5**0.5 - 1) / 2


class Latents(NamedTuple):
    """Latent outcomes, what the evidence needs of them, and free parameters of the likelihood.

    :ivar values: u, shape (n,).
    :ivar projected: c = Qᵀu, shape (k,).
    :ivar sum_squares: uᵀu.
    :ivar parameters: coordinates on the real line, shape (p,).
    """

    values: jax.Array
    projected: jax.Array
    sum_squares: jax.Array
    parameters: jax.Array


@pytree_dataclass
class LatentRows(GibbsRows):
    """Rows in memory, with orthonormal features; made by :func:`latent_rows`.

    :param template: statistics of other outcomes at these inputs.
    :param orthonormal: Q, shape (n, k): ``features = Q R`` with R the factor of the statistics.
    :param y: outcomes, as the likelihood has them.
    :param offset: known parts of the predictors, shape (n,).
    :param prior_loc: prior means of free parameters of the likelihood, shape (p,).
    :param prior_scale: their prior standard deviations, shape (p,).
    :param given_values: the likelihood of y given ``u + offset``.
    :param num_updates: latent outcomes updated in a sweep.
    """

    template: SufficientStatistics
    orthonormal: Any
    y: Any
    offset: Any
    prior_loc: Any
    prior_scale: Any
    given_values: Likelihood
    num_updates: int = static()

    @property
    def likelihood(self) -> Likelihood:
        """The likelihood of y given ``u + offset``."""
        return self.given_values

    def start(self, key: jax.Array) -> Latents:
        """What outcomes alone say, with a spread: noise would be driven to zero by values without any."""
        dtype = jnp.result_type(float)
        values = self.likelihood.start(jnp.asarray(self.y, dtype)) - jnp.asarray(self.offset, dtype)
        values = values + self.template.output_scale * jax.random.normal(key, values.shape, dtype)
        return self._latents(values, jnp.asarray(self.prior_loc, dtype))

    def statistics(self, latent: Latents) -> SufficientStatistics:
        """Those of u. O(m²)."""
        rss = jnp.maximum(latent.sum_squares - jnp.sum(latent.projected**2), 0)
        return self.template._with_outputs(jnp.append(latent.projected, rss))

    def updated(self, key: jax.Array, latent: Latents, sweep: Sweep) -> Latents:
        """Some latent outcomes, each given all others, weights integrated out. O(m²) each; O(m) on rotated statistics.

        Free parameters of the likelihood, if there are any, take O(n).
        """
        n, k = self.orthonormal.shape
        key_rows, key_blocks, key_parameters = jax.random.split(key, 3)
        blocks = -(-self.num_updates // min(n, max(LEAST_BLOCK, k)))
        size = -(-self.num_updates // blocks)
        # In 64 bits on the host: products of many rows and a stride overflow JAX's integers.
        steps = (np.arange(blocks * size, dtype=np.int64) * _stride(n) % n).reshape(blocks, size)
        rows = (jax.random.randint(key_rows, (), 0, n, jnp.int32) + jnp.asarray(steps, jnp.int32)) % n

        def block(latent: Latents, arguments: tuple[jax.Array, jax.Array]) -> tuple[Latents, None]:
            return self._block(*arguments, latent, sweep), None

        with full_precision():
            latent = jax.lax.scan(block, latent, (jax.random.split(key_blocks, blocks), rows))[0]
        eta = latent.values + jnp.asarray(self.offset, latent.values.dtype)
        return latent._replace(parameters=self._parameters(key_parameters, eta, latent.parameters))

    def recorded(self, latent: Latents) -> dict[str, jax.Array]:
        """Free parameters of the likelihood, in their own units."""
        return self.likelihood.constrained(latent.parameters)

    def outcomes(self, key: jax.Array, weights: jax.Array, noise_scale: jax.Array, parameters: jax.Array) -> jax.Array:
        """Outcomes drawn given weights."""
        key_values, key_outcomes = jax.random.split(key)
        factor = dense_factor(self.template, weights.dtype)
        with full_precision():
            f = jnp.asarray(self.orthonormal, weights.dtype) @ (factor @ weights)
        noise = noise_scale * jax.random.normal(key_values, f.shape, f.dtype)
        return self._drawn(key_outcomes, f + noise, parameters)

    def _latents(self, values: jax.Array, parameters: jax.Array) -> Latents:
        with full_precision():
            projected = values @ jnp.asarray(self.orthonormal, values.dtype)
        return Latents(values, projected, jnp.sum(values**2), parameters)

    def _block(self, key: jax.Array, rows: jax.Array, latent: Latents, sweep: Sweep) -> Latents:
        """Latent outcomes of a block of rows, one after the other."""
        dtype = latent.values.dtype
        Q, y, offset = (jnp.asarray(part, dtype)[rows] for part in (self.orthonormal, self.y, self.offset))
        before = latent.values[rows]
        precision, pull = self._conditionals(Q, before, latent.projected, sweep)
        least = jnp.finfo(dtype).eps

        def one(state: tuple[jax.Array, jax.Array], arguments: Any) -> tuple[Any, None]:
            values, pull = state
            key, t = arguments
            own = jnp.maximum(precision[t, t], least)
            mean, scale = values[t] - pull[t] / own, sweep.noise_scale * own**-0.5

            def log_likelihood(u: jax.Array) -> jax.Array:
                return self.likelihood.log_prob(u + offset[t], y[t], latent.parameters)

            drawn = elliptical_slice(key, values[t], mean, scale, log_likelihood)
            return (values.at[t].set(drawn), pull + precision[t] * (drawn - values[t])), None

        count = len(rows)
        (values, _), _ = jax.lax.scan(one, (before, pull), (jax.random.split(key, count), jnp.arange(count)))
        return Latents(
            latent.values.at[rows].set(values),
            latent.projected + (values - before) @ Q,
            latent.sum_squares + jnp.sum((values - before) * (values + before)),
            latent.parameters,
        )

    def _conditionals(
        self, Q: jax.Array, values: jax.Array, projected: jax.Array, sweep: Sweep
    ) -> tuple[jax.Array, jax.Array]:
        """``σ²Λ`` within a block and ``σ²Λ(u − Φμ)`` at its rows."""
        prior, noise_variance = sweep.prior, sweep.noise_scale**2
        factor = jnp.asarray(self.template.compressed.factor, Q.dtype)
        m = self.template.moments.gram.shape[-1]
        mean = jnp.broadcast_to(jnp.zeros((), Q.dtype) if prior.mean is None else prior.mean, (m,))
        axes = prior.diagonal_along(0) if factor.ndim == 1 else None
        if axes is not None:
            shrunk = Q / (1 + factor**2 * jnp.broadcast_to(axes.prior.variance, (m,)) / noise_variance)[None, :]
            within, deviation = shrunk @ Q.T, projected - factor * mean
            back = shrunk @ deviation
        else:
            R = dense_factor(self.template, Q.dtype)
            L = cholesky(R @ prior.apply(R.T) / noise_variance)
            half = solve_triangular(L, Q.T, lower=True)
            within = half.T @ half
            back = solve_triangular(L, projected - R @ mean, lower=True) @ half
        return jnp.eye(len(Q), dtype=Q.dtype) - Q @ Q.T + within, values - Q @ projected + back


def latent_rows(
    basis: Basis,
    X: Any,
    y: Any,
    likelihood: Likelihood,
    *,
    offset: Any = None,
    num_updates: int | None = None,
    rotate: WeightPrior | None = None,
) -> LatentRows:
    """Rows for :class:`~ppl_sgp.AugmentedGibbs`, of any likelihood: outcomes depend on f through a noisy latent value.

    The model is one of Gaussian data, ``u = f(X) + noise``, with its ``noise_scale``; y depends on u. The noise is part
    of the model, a *nugget*: overdispersion of counts; of a threshold (``P(y = 1) = 1{u > 0}``) the probit. Keep it
    away from zero: the smaller it is, the less each latent value can move given all others. Hyperparameters see u
    alone, at the cost of Gaussian data, independent of n; a sweep updates ``num_updates`` of the n latent values, O(m²)
    each, with weights integrated out (Evans 2022, section 5.3.5). The fewer, the slower chains mix: see the guide.

    :param basis: the frozen basis.
    :param X: inputs, shape (n, d). Features take (n, m) numbers; set-up takes O(n m²).
    :param y: outcomes, as the likelihood has them: (n,), or with columns.
    :param likelihood: any with one predictor a row. Its free parameters take O(n) a sweep.
    :param offset: known parts of the predictors, shape (n,).
    :param num_updates: latent values updated in each sweep, perhaps a few more; default all, at most 1,000 or 4m.
    :param rotate: a prior of mean zero: features are rotated as ``stats.rotate(prior)`` has it, and weights among the
        draws are those of ``rows.basis``. A model of ``sgp.DiagonalPrior(amplitude)`` then costs O(m) a gradient.
    :return: rows: the argument of ``mcmc.run``.
    :raises ValueError: for shapes that do not fit, or entries that are not finite or outside the support.

    .. doctest::

        >>> import numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 5)[:, None]
        >>> sgp.latent_rows(sgp.LinearBasis(1), X, [0, 2, 1, 3, 5], sgp.likelihoods.Poisson()).num_updates
        5
    """
    owner = "latent_rows"
    Phi, y, offset, description = checked_rows(basis, X, y, likelihood, offset, owner)
    n, m = Phi.shape
    if num_updates is None:
        num_updates = max(1000, 4 * m)
    num_updates = min(n, checks.whole_number("num_updates", num_updates, 1, owner))
    # Any outcomes of the right size: default priors take the scale of the latent values from them.
    scale = likelihood.predictor_scale(y)
    outcomes = np.cos(2 * np.pi * STRIDE * np.arange(n))
    outcomes *= scale / np.sqrt(np.mean(outcomes**2))
    statistics, Q = orthonormalised(basis, Phi, outcomes, description)
    if rotate is not None:
        R, count = statistics.compressed.factor, len(statistics.compressed.factor)
        statistics = statistics.rotate(rotate)
        rotation = np.asarray(statistics.basis.rotation)  # type: ignore[attr-defined]
        # In descending order of norms; where these are rounding any orthonormal columns will do.
        turned, upper = np.linalg.qr(R @ rotation[:, :count])
        Q = np.concatenate([Q @ (turned * np.where(np.diag(upper) < 0, -1, 1)), np.zeros((n, m - count))], axis=1)
    return LatentRows(statistics, Q, y, offset, *prior_of_parameters(likelihood, y), likelihood, num_updates)


def orthonormalised(
    basis: Basis, Phi: np.ndarray, outcomes: np.ndarray, description: dict[str, Any]
) -> tuple[SufficientStatistics, np.ndarray]:
    """Statistics of rows with the Q (n, k) that goes with their factor. Orthonormal also where features are dependent.

    Singular vectors of features of unit norm: so directions do not depend on units.
    """
    norms = np.linalg.norm(Phi, axis=0)
    norms = np.where(norms > 0, norms, 1.0)
    Q, singular, right = np.linalg.svd(Phi / norms, full_matrices=False)
    c = Q.T @ outcomes
    moments = Moments(Phi.T @ Phi, Phi.T @ outcomes, np.sum(outcomes**2), **description)
    projection = np.append(c, np.sum((outcomes - Q @ c) ** 2))
    compressed = compressed_of(moments, singular[:, None] * right * norms, projection, len(c), None, None)
    return with_compressed(basis, moments, compressed), Q


def _stride(num_rows: int) -> int:
    """A step near the golden section of the rows that meets all of them before it meets one again."""
    near = max(1, round(STRIDE * num_rows))
    return next(step for step in range(near, num_rows + near + 1) if math.gcd(step, num_rows) == 1)
