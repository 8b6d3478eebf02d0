"""Rows of logistic likelihoods and scale mixtures, Gaussian given one latent variable each."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._internal import checks
from .._internal.batching import full_precision
from .._internal.pytree import pytree_dataclass, rebuild
from ..bases.basis import Basis
from ..expansion.compressed_likelihood import Centre, CompressedLikelihood, Record, Units
from ..likelihoods import Likelihood
from ..statistics.compressed import Compressed
from ..statistics.moments import Moments, describe
from .augmentation import RowGaussians, augmented
from .augmented_gibbs import GibbsRows, Sweep
from .slice_sampling import each_in_turn


#: An expansion that is exact for the rows as they are has no centre, and no passes led to it.
_NOWHERE = Centre(np.zeros(0), np.zeros((0, 0)))
_AUGMENTED = Record(np.zeros((0, 4)), "augmented", True, "exact given latent variables")


class Augmentation(NamedTuple):
    """Latent variables of all rows, and free parameters of the likelihood.

    :ivar rows: the rows as Gaussians.
    :ivar parameters: coordinates on the real line, shape (p,).
    """

    rows: RowGaussians
    parameters: jax.Array


@pytree_dataclass
class AugmentedRows(GibbsRows):
    """Rows in memory, with their features; made by :func:`augmented_rows`.

    :param basis: the basis.
    :param features: Φ, shape (n, m).
    :param y: outcomes, as the likelihood has them.
    :param offset: known parts of the predictors, shape (n,).
    :param likelihood: the likelihood.
    :param prior_loc: prior means of its free parameters, shape (p,).
    :param prior_scale: their prior standard deviations, shape (p,).
    :param moments: of the inputs; sums over outcomes are those of no rows.
    :param units: for default priors.
    """

    basis: Basis
    features: Any
    y: Any
    offset: Any
    likelihood: Likelihood
    prior_loc: Any
    prior_scale: Any
    moments: Moments
    units: Units

    def start(self, key: jax.Array) -> Augmentation:
        """Drawn given f = 0 and parameters at their prior means."""
        parameters = jnp.asarray(self.prior_loc, self._dtype)
        eta, y = (jnp.asarray(part, self._dtype) for part in (self.offset, self.y))
        return Augmentation(augmented(self.likelihood, key, eta, y, parameters), parameters)

    def statistics(self, latent: Augmentation) -> CompressedLikelihood:
        """The rows given ω: an expansion of the likelihood that is exact. One QR of (n, m + 1), O(n m²)."""
        precision, information = latent.rows
        root, m = jnp.sqrt(precision), self.features.shape[1]
        outcomes = information / root - root * jnp.asarray(self.offset, root.dtype)
        with full_precision():
            pseudo = jnp.linalg.qr(jnp.concatenate([root[:, None] * self._features, outcomes[:, None]], 1), mode="r")
            R, c = pseudo[:m, :m], pseudo[:m, m]
            gram, projected = R.T @ R, R.T @ c
        # What ω and y alone say is no function of hyperparameters: rss, like all constants, is left out.
        zero, one = jnp.zeros((), root.dtype), jnp.ones((), root.dtype)
        moments = self.moments.plain(gram=gram, feature_output=projected, output_products=c @ c)
        compressed = Compressed(
            factor=R,
            projection=jnp.append(c, zero),
            rank=one * len(R),
            reference_variance=one,
            log_constant=zero,
            gram_defect=None,
            output_defect=None,
            float32_suffices=True,
        )
        return CompressedLikelihood(
            self.basis, moments, compressed, self.likelihood, _NOWHERE, None, self.units, _AUGMENTED
        )

    def updated(self, key: jax.Array, latent: Augmentation, sweep: Sweep) -> Augmentation:
        """Parameters given weights, with ω integrated out, then ω given both. O(n m)."""
        key_parameters, key_rows = jax.random.split(key)
        with full_precision():
            eta = self._features @ sweep.weights.astype(self._dtype) + jnp.asarray(self.offset, self._dtype)
        y = jnp.asarray(self.y, self._dtype)

        def log_likelihood(parameters: jax.Array) -> jax.Array:
            return jnp.sum(self.likelihood.log_prob(eta, y, parameters))

        prior = (jnp.asarray(part, self._dtype) for part in (self.prior_loc, self.prior_scale))
        parameters = each_in_turn(key_parameters, latent.parameters, *prior, log_likelihood)
        return Augmentation(augmented(self.likelihood, key_rows, eta, y, parameters), parameters)

    def recorded(self, latent: Augmentation) -> dict[str, jax.Array]:
        """Free parameters of the likelihood, in their own units."""
        return self.likelihood.constrained(latent.parameters)

    def with_outcomes(self, y: Any) -> AugmentedRows:
        """The same rows with other outcomes, which are not checked: for simulation studies."""
        return rebuild(AugmentedRows, {**vars(self), "y": y})

    @property
    def num_rows(self) -> int:
        """The number of rows n."""
        return self.features.shape[0]

    @property
    def _dtype(self) -> Any:
        return jnp.result_type(float)

    @property
    def _features(self) -> jax.Array:
        return jnp.asarray(self.features, self._dtype)


def augmented_rows(basis: Basis, X: Any, y: Any, likelihood: Likelihood, *, offset: Any = None) -> AugmentedRows:
    """Rows for :class:`~ppl_sgp.AugmentedGibbs`, made Gaussian by one latent variable each: no approximation.

    Of these likelihoods: Bernoulli (``link="logit"``). Each sweep is one pass over the rows, O(n m²), and all of them
    are kept in memory, with their features: (n, m) numbers. For many rows compress the likelihood instead.

    Pólya-Gamma variables are drawn to within 1e-9 nats a row of the exact log likelihood for predictors within ±10,
    and 3e-7 within ±20 (see ``ppl_sgp.inference.polya_gamma``); those of scale mixtures are exact.

    :param basis: the frozen basis.
    :param X: inputs, shape (n, d).
    :param y: outcomes, as the likelihood has them: (n,), or with columns.
    :param likelihood: such as ``sgp.likelihoods.Bernoulli()``.
    :param offset: known parts of the predictors, shape (n,).
    :return: rows: the argument of ``mcmc.run``.
    :raises ValueError: for a likelihood that is no such mixture, shapes that do not fit, or entries that are not
        finite or outside the support.

    .. doctest::

        >>> import numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 5)[:, None]
        >>> sgp.augmented_rows(sgp.LinearBasis(1), X, X[:, 0] > 0.5, sgp.likelihoods.Bernoulli()).num_rows
        5
    """
    owner = "augmented_rows"
    Phi, y, offset, description = checked_rows(basis, X, y, likelihood, offset, owner)
    free = likelihood.free_parameters(y)
    loc, scale = (np.array([getattr(each, part) for each in free], dtype=np.float64) for part in ("loc", "scale"))
    m = basis.num_features
    moments = Moments(np.zeros((m, m)), np.zeros(m), np.float64(0.0), **description)
    curvature = likelihood.derivatives(offset, y, loc).curvature
    units = Units(likelihood.predictor_scale(y), float(np.sum(np.maximum(curvature, 0))))
    rows = AugmentedRows(basis, Phi, y, offset, likelihood, loc, scale, moments, units)
    jax.eval_shape(rows.start, jax.random.key(0))  # refuses likelihoods that have no latent variables
    return rows


def checked_rows(
    basis: Basis, X: Any, y: Any, likelihood: Any, offset: Any, owner: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
    """Features (n, m), outcomes, offsets (n,) and the description of the inputs, of rows that are what they should be.

    :raises ValueError: as :func:`augmented_rows`.
    """
    if not isinstance(likelihood, Likelihood) or likelihood.num_latents != 1:
        raise ValueError(
            f"{owner}: `likelihood` must be one of `sgp.likelihoods` with one predictor a row, such as "
            f"`sgp.likelihoods.Bernoulli()`; got {likelihood!r}."
        )
    X = checks.finite_inputs(X, basis.input_dim, owner)
    y = likelihood.check(y, owner=owner)
    if len(y) != len(X):
        raise ValueError(f"{owner}: `X` has {len(X)} rows but `y` has {len(y)}; they must match.")
    offset = np.zeros(len(X)) if offset is None else checks.host_numbers("offset", offset, owner).astype(np.float64)
    if offset.shape != (len(X),):
        raise ValueError(f"{owner}: `offset` must have shape ({len(X)},), a number a row; got {offset.shape}.")
    checks.require_finite("offset", offset, owner)
    Phi = basis.host_features(X)
    return Phi, y, offset, describe(X, np.zeros(len(X)), None)
