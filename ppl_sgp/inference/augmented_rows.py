"""Rows of logistic likelihoods and scale mixtures, Gaussian given one latent variable each."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._internal.batching import full_precision
from .._internal.pytree import pytree_dataclass, rebuild
from ..bases.basis import Basis
from ..expansion.compressed_likelihood import CompressedLikelihood
from ..expansion.records import Centre, Record, Units
from ..likelihoods import Likelihood
from ..statistics.compressed import Compressed
from ..statistics.moments import Moments
from .augmentation import RowGaussians, augmented
from .gibbs_rows import GibbsRows, Sweep, checked_rows, prior_of_parameters

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

    :param template: the rows at some values of the latent variables.
    :param features: Φ, shape (n, m).
    :param y: outcomes, as the likelihood has them.
    :param offset: known parts of the predictors, shape (n,).
    :param prior_loc: prior means of free parameters of the likelihood, shape (p,).
    :param prior_scale: their prior standard deviations, shape (p,).
    """

    template: CompressedLikelihood
    features: Any
    y: Any
    offset: Any
    prior_loc: Any
    prior_scale: Any

    @property
    def likelihood(self) -> Likelihood:
        """The likelihood."""
        return self.template.likelihood

    def start(self, key: jax.Array) -> Augmentation:
        """Drawn given predictors that outcomes alone suggest, and parameters at their prior means."""
        parameters, y = jnp.asarray(self.prior_loc, self._dtype), jnp.asarray(self.y, self._dtype)
        return Augmentation(augmented(self.likelihood, key, self.likelihood.start(y), y, parameters), parameters)

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
        moments = self.template.moments.plain(gram=gram, feature_output=projected, output_products=c @ c)
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
        return rebuild(CompressedLikelihood, {**vars(self.template), "moments": moments, "compressed": compressed})

    def updated(self, key: jax.Array, latent: Augmentation, sweep: Sweep) -> Augmentation:
        """Parameters given weights, with ω integrated out, then ω given both. O(n m)."""
        key_parameters, key_rows = jax.random.split(key)
        with full_precision():
            eta = self._features @ sweep.weights.astype(self._dtype) + jnp.asarray(self.offset, self._dtype)
        parameters = self._parameters(key_parameters, eta, latent.parameters)
        y = jnp.asarray(self.y, self._dtype)
        return Augmentation(augmented(self.likelihood, key_rows, eta, y, parameters), parameters)

    def recorded(self, latent: Augmentation) -> dict[str, jax.Array]:
        """Free parameters of the likelihood, in their own units."""
        return self.likelihood.constrained(latent.parameters)

    def outcomes(self, key: jax.Array, weights: jax.Array, noise_scale: jax.Array, parameters: jax.Array) -> jax.Array:
        """Outcomes drawn given weights."""
        return self._drawn(key, self._features @ weights.astype(self._dtype), parameters)

    @property
    def _dtype(self) -> Any:
        return jnp.result_type(float)

    @property
    def _features(self) -> jax.Array:
        return jnp.asarray(self.features, self._dtype)


def augmented_rows(basis: Basis, X: Any, y: Any, likelihood: Likelihood, *, offset: Any = None) -> AugmentedRows:
    """Rows for :class:`~ppl_sgp.AugmentedGibbs`, made Gaussian by one latent variable each: no approximation.

    Logistic likelihoods (Bernoulli with ``link="logit"``, binomial, negative binomial) and scale mixtures of normals
    (Student's t, asymmetric Laplace), whose free parameters are drawn as well. Each sweep is one pass over the rows,
    O(n m²), and all of them are kept in memory, with their features: (n, m) numbers. For many rows compress the
    likelihood instead.

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
    loc, scale = prior_of_parameters(likelihood, y)
    m = basis.num_features
    curvature = likelihood.derivatives(offset, y, loc).curvature
    units = Units(likelihood.predictor_scale(y), float(np.sum(np.maximum(curvature, 0))))
    empty = rebuild(
        CompressedLikelihood,
        {
            "basis": basis,
            "moments": Moments(np.zeros((m, m)), np.zeros(m), np.float64(0.0), **description),
            "likelihood": likelihood,
            "centre": _NOWHERE,
            "parameters": None,
            "units": units,
            "record": _AUGMENTED,
        },
    )
    rows = AugmentedRows(empty, Phi, y, offset, loc, scale)
    return rebuild(AugmentedRows, {**vars(rows), "template": rows.statistics(rows.start(jax.random.key(0)))})
