"""Statistics of any likelihood: its expansion to second order in the weights, of a size independent of n."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._internal import checks
from .._internal.batching import full_precision
from .._internal.pytree import rebuild, same_tree
from .._internal.shown import Plain
from ..bases.basis import Basis
from ..likelihoods.likelihood import Likelihood
from ..priors import WeightPrior
from ..statistics.compressed import Compressed, compress_quadratic
from ..statistics.consistency import require_consistent
from ..statistics.moments import Moments, join_descriptions
from ..statistics.statistics import KINDS, SufficientStatistics
from .records import Aside, Centre, ParameterPosterior, Pass, Record, Units
from .reference import prior_of_latents

FIELDS = ("basis", "moments", "compressed", "likelihood", "centre", "parameters", "units")


@jax.tree_util.register_pytree_with_keys_class
class CompressedLikelihood(SufficientStatistics):
    """n rows of any likelihood seen through a frozen basis, compressed to second order in the weights.

    ``log p(y | w) ≈ Q(w)``, a quadratic function whose pair (A, r) has the size of the weights and is valid for every
    prior of them: so this stands wherever :class:`~ppl_sgp.SufficientStatistics` do, with noise of scale one. Make one
    with :func:`~ppl_sgp.compress_likelihood`.

    :ivar likelihood: the likelihood.
    :ivar centre: the normal distribution of the weights around which it was expanded, with ``mean`` and ``factor``.
    :ivar parameters: parameters of the likelihood given the weights, ``ParameterPosterior``; their prior is
        integrated out of the quadratic function. ``None`` if all are fixed.
    :ivar record: how the expansion was found; :attr:`converged`, :attr:`reason` and :attr:`trace` read it.

    .. doctest::

        >>> import numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(-1, 1, 200)[:, None]
        >>> y = (np.sin(4 * X[:, 0]) + np.cos(77 * X[:, 0]) > 0).astype(float)
        >>> basis = sgp.LaplaceBasis.from_data(X, 12)
        >>> prior = basis.weight_prior(sgp.Matern52(0.4))
        >>> stats = sgp.compress_likelihood(basis, X, y, sgp.likelihoods.Bernoulli(), prior=prior)
        >>> stats.converged, stats.num_rows, stats.rank
        (True, 200, 12)
    """

    likelihood: Likelihood
    centre: Centre
    parameters: ParameterPosterior | None
    units: Units
    record: Record

    def __init__(
        self,
        basis: Basis,
        moments: Moments,
        compressed: Compressed,
        likelihood: Likelihood,
        centre: Centre,
        parameters: ParameterPosterior | None,
        units: Units,
        record: Record,
    ) -> None:
        self.__dict__.update(
            basis=basis,
            moments=moments,
            compressed=compressed,
            likelihood=likelihood,
            centre=centre,
            parameters=parameters,
            units=units,
            record=record,
        )

    # A pytree; how the expansion was found goes along, but makes no program compile anew.
    def tree_flatten_with_keys(self):
        return [(jax.tree_util.GetAttrKey(name), getattr(self, name)) for name in FIELDS], Aside(self.record)

    @classmethod
    def tree_unflatten(cls, aside, children):
        return rebuild(cls, {**dict(zip(FIELDS, children, strict=True)), "record": aside.value})

    @property
    def method(self) -> str:
        """``"averaged"`` or ``"mode"``."""
        return self.record.method

    @property
    def converged(self) -> bool:
        """Whether the next Newton step would be short: the expansion is around the posterior at the reference prior."""
        return self.record.converged

    @property
    def reason(self) -> str:
        """Why the passes ended."""
        return self.record.reason

    @property
    def trace(self) -> tuple[Pass, ...]:
        """The passes that were made: rows, objective, length of the next step in standard deviations, damping."""
        return self.record.trace

    @property
    def num_rows(self) -> Any:
        """The number of rows n (an int; a traced number under ``jit``)."""
        n = self.moments.num_rows / self.num_latents
        return int(n) if checks.is_concrete(n) and np.ndim(n) == 0 else n

    @property
    def num_latents(self) -> int:
        """Predictors of a row, K."""
        return self.likelihood.num_latents

    @property
    def num_features(self) -> int:
        """The number of features m, each of which has K weights."""
        return self.num_weights // self.num_latents

    @property
    def has_noise(self) -> bool:
        """No: curvatures take its place."""
        return False

    @property
    def total_weight(self) -> Any:
        """What curvatures of all rows in their predictors sum to."""
        return self.units.total_weight

    @property
    def output_scale(self) -> Any:
        """A typical standard deviation of f, the natural unit of amplitudes."""
        return self.units.scale

    @property
    def output_scales(self) -> Any:
        """The same: there is one output."""
        return self.units.scale

    def noise_scale_of(self, owner: str, noise_scale: Any) -> float:
        """One.

        :raises ValueError: for any other noise.
        """
        if noise_scale is None or (checks.is_concrete(noise_scale) and np.all(np.asarray(noise_scale) == 1)):
            return 1.0
        raise ValueError(
            f"{owner}: compressed likelihoods have no noise scale; leave `noise_scale` out. Parameters of the "
            "likelihood are those of its class in `sgp.likelihoods`."
        )

    def prior_of_weights(self, prior: WeightPrior) -> WeightPrior:
        """The prior of all K·m weights, those of the first predictor first: one of m weights holds for each, alike."""
        return prior_of_latents(prior, self.num_latents, self.num_features)

    def weights_by_latent(self, weights: Any) -> Any:
        """Weights (..., K·m) as (..., K, m), with which predictors are ``features @ weights.T``."""
        return weights.reshape(*weights.shape[:-1], self.num_latents, self.num_features)

    def log_likelihood(self, weights: Any, parameters: Any = None) -> jax.Array:
        """The expansion Q at weights (..., K·m), nats, in the units of ``log p(y | w)``. O(K²m²) each.

        :param parameters: parameters of the likelihood, unconstrained, (..., p): then the expansion of
            ``log p(y | w, λ)``, without it its integral over their prior. Draws of a model with these statistics, and
            of ``parameters`` given their weights, have the density ``exp(Q)`` times the priors.
        """
        w = jnp.asarray(weights)
        if parameters is not None and self.parameters is not None:
            return self.log_likelihood(w) + self.parameters.log_ratio(w, parameters)
        compressed = self.compressed
        factor, projection = jnp.asarray(compressed.factor, w.dtype), jnp.asarray(compressed.projection, w.dtype)
        with full_precision():
            flat = w.reshape(-1, self.num_weights)
            fitted = flat * factor[None, :] if factor.ndim == 1 else flat @ factor.T
            misfit = jnp.sum((fitted - projection[None, :-1]) ** 2, axis=1) + projection[-1]
            if compressed.gram_defect is not None:
                left = flat @ jnp.asarray(compressed.gram_defect, w.dtype)
                left = jnp.sum(left * flat, axis=1) - 2 * flat @ jnp.asarray(compressed.output_defect, w.dtype)
                misfit += left
        n, reference = self.moments.num_rows, compressed.reference_variance
        result = compressed.log_constant + 0.5 * n * jnp.log(jnp.asarray(reference, w.dtype)) - 0.5 * misfit
        return result.reshape(w.shape[:-1])

    def rotate(self, prior: WeightPrior | None = None, *, orthonormal: bool = False) -> CompressedLikelihood:
        """As :meth:`SufficientStatistics.rotate`, the centre included; for one predictor a row.

        :raises ValueError: as there, or for several predictors.
        """
        if self.num_latents > 1:
            raise ValueError(
                f"rotate: {type(self.likelihood).__name__} has {self.num_latents} predictors a row, whose weights the "
                "curvature couples: no rotation of the features makes them independent. Use the statistics as they are."
            )
        rotated = super().rotate(prior, orthonormal=orthonormal)
        W: Any = rotated.basis.rotation  # type: ignore[attr-defined]
        parameters = self.parameters
        centre = Centre(np.linalg.solve(W, self.centre.mean), np.linalg.solve(W, self.centre.factor))
        if parameters is not None:
            parameters = rebuild(ParameterPosterior, {**vars(parameters), "slope": parameters.slope @ W})
        return rebuild(type(self), {**vars(rotated), "centre": centre, "parameters": parameters})

    def __add__(self, other: Any) -> CompressedLikelihood:
        """Statistics of the rows of both, which must be different rows, expanded around one centre. O(m³).

        :raises ValueError: for another basis, likelihood or centre, or where the likelihood has free parameters.
        """
        if not isinstance(other, SufficientStatistics):
            return NotImplemented
        other = self._addable(other)
        total = {
            name: getattr(self.moments, name) + getattr(other.moments, name) for name in ("gram", "feature_output")
        }
        constant = float(self.log_likelihood_at_zero() + other.log_likelihood_at_zero())
        described = join_descriptions(self.moments.description, other.moments.description)
        moments, compressed = compress_quadratic(total["gram"], total["feature_output"], constant, described)
        units = Units(self.units.scale, self.units.total_weight + other.units.total_weight)
        return rebuild(type(self), {**vars(self), "moments": moments, "compressed": compressed, "units": units})

    def _addable(self, other: Any) -> CompressedLikelihood:
        """The other statistics, if their sum with these is good."""
        if not isinstance(other, CompressedLikelihood):
            raise ValueError(
                "Adding statistics: one is of a compressed likelihood, the other of Gaussian noise, whose scale a "
                "model samples. Observe each in a site of its own."
            )
        for name, what in (("likelihood", "likelihood"), ("basis", "basis")):
            if not same_tree(getattr(self, name), getattr(other, name)):
                raise ValueError(
                    f"Adding compressed likelihoods: they have another {what}. Only rows of one {what} make one sum."
                )
        if self.is_diagonal or other.is_diagonal:
            raise ValueError("Adding compressed likelihoods: add them before `rotate`.")
        if self.parameters is not None or other.parameters is not None:
            raise ValueError(
                "Adding compressed likelihoods: the likelihood's free parameters are integrated out of each, but all "
                "rows share them. Compress all rows together, or fix the parameters."
            )
        if not same_tree(self.centre, other.centre):
            raise ValueError(
                "Adding compressed likelihoods: they were expanded around different centres, each the posterior of "
                "its own rows, while the sum must be good at the posterior of all. Compress all rows together; or "
                "expand the others around the centre of the first, `sgp.compress_likelihood(..., centre=first)`."
            )
        return other

    def log_likelihood_at_zero(self) -> float:
        """Q at weights of zero, nats."""
        moments = self.moments
        return 0.5 * float(moments.log_weights - moments.num_rows * np.log(2 * np.pi) - moments.sum_squares)

    def update(self, X: Any, y: Any = None, row_weights: Any = None) -> SufficientStatistics:
        """Not offered: rows are added by ``self + sgp.compress_likelihood(basis, X, y, likelihood, centre=self)``.

        :raises ValueError: always.
        """
        raise ValueError(
            "update: expand the further rows around the same centre and add them, `stats + "
            "sgp.compress_likelihood(basis, X, y, likelihood, centre=stats)`: good while they are few against those "
            "before. Else compress all rows."
        )

    def forget(self, X: Any, y: Any = None, row_weights: Any = None) -> SufficientStatistics:
        """Not offered.

        :raises ValueError: always.
        """
        raise ValueError("forget: not for compressed likelihoods. Compress the rows that are left anew.")

    @property
    def parts(self) -> dict[str, Any]:
        """What files hold of it, by name."""
        names = [name for name in (*FIELDS, "record") if getattr(self, name) is not None]
        return {name: getattr(self, name) for name in names}

    @classmethod
    def of_parts(cls, parts: dict[str, Any], path: Any) -> CompressedLikelihood:
        """From the :attr:`parts` of a file.

        :raises ValueError: if they are no compressed likelihood, or do not fit together.
        """
        kinds = {
            "basis": Basis,
            "moments": Moments,
            "compressed": Compressed,
            "likelihood": Likelihood,
            "centre": Centre,
            "units": Units,
            "record": Record,
        }
        if not all(isinstance(parts.get(name), kind) for name, kind in kinds.items()):
            raise ValueError(f"{path} holds {sorted(parts)}, not a compressed likelihood as its `save` writes it.")
        require_consistent(parts["basis"], parts["moments"], path, parts["likelihood"].num_latents)
        values = {name: parts.get(name) for name in (*FIELDS, "record")}
        return rebuild(CompressedLikelihood, values)

    def facts(self) -> dict[str, Any]:
        """The likelihood, the sizes, and the order of what an evidence costs."""
        sizes = ("num_rows", "num_features", "num_latents", "rank")
        of_sizes = {name: getattr(self, name) for name in sizes}
        return {"likelihood": Plain(type(self.likelihood).__name__), **of_sizes, "evidence": self.evidence_cost}


KINDS["likelihood"] = CompressedLikelihood
