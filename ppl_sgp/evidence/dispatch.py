"""``log p(y | θ)`` from compressed data, in the cheapest form for the prior and the statistics."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._internal import checks
from .._internal.constants import constant
from .._internal.pytree import rebuild
from ..priors import WeightPrior
from ..statistics.compressed import FLOAT32_NATS, FLOAT32_NOISE, Compressed
from ..statistics.kept_rows import Rows
from ..statistics.statistics import SufficientStatistics, with_compressed
from . import joint, scaled
from .rounding import ANNOUNCED, rounding_error

#: Of the compressed form, what an evidence cannot be differentiated in.
CONSTANTS = ("factor", "reference_variance", "log_constant", "gram_defect", "output_defect")


def log_evidence(statistics: SufficientStatistics, prior: WeightPrior, noise_scale: Any = None) -> jax.Array:
    """``log p(y | θ)`` in nats, with all constants: the density of the n rows, not of their compression.

    Differentiable in the prior and the noise, by closed forms; forward mode and Hessians work too.
    Costs what :func:`~ppl_sgp.evidence_cost` says, always independent of n. The statistics themselves
    are constants: a derivative in them is refused. Not finite under ``jit``, it is −∞.

    :param statistics: from :func:`~ppl_sgp.sufficient_statistics`.
    :param prior: prior of the weights: diagonal, dense, Householder-rotated, Kronecker or in blocks.
    :param noise_scale: standard deviation of the noise, shape () or batch. With several outputs the
        last batch axis runs over them. Left out for compressed likelihoods.
    :return: shape of the joint batch of outputs, prior and noise; () for one output.
    :raises ValueError: if arguments do not fit, in float32 where it cannot resolve the evidence of these data, or if
        the result is not finite and can be read. Where more than 0.1 nats of it are rounding of sums of products, it
        warns.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> X, y = np.array([[0.0], [1.0]]), np.array([0.3, -0.4])
        >>> basis = sgp.FourierBasis.sample(jax.random.key(0), sgp.SquaredExponential(1.0), 4, 1)
        >>> stats = sgp.sufficient_statistics(basis, X, y)
        >>> prior = basis.weight_prior(sgp.SquaredExponential(1.0, amplitude=0.5))
        >>> sgp.log_evidence(stats, prior, noise_scale=0.1).shape
        ()
    """
    prior = checked_prior(statistics, prior)
    noise_scale = statistics.noise_scale_of("log_evidence", noise_scale)
    checks.positive("noise_scale", noise_scale, "log_evidence")
    joint_batch("log_evidence", statistics, noise_scale=noise_scale, prior=prior)
    dtype = checks.common_dtype(*jax.tree.leaves(prior), noise_scale)
    require_precision("log_evidence", statistics, dtype, noise_scale)
    value = evaluate(statistics, prior, noise_scale, statistics.projection)
    if not checks.is_concrete(value):
        return jnp.where(jnp.isnan(value), -jnp.inf, value)
    if not np.isfinite(np.asarray(value)).all():
        raise ValueError(
            f"log_evidence: the result is not finite ({value}) for noise_scale {noise_scale} and prior standard "
            f"deviations between {prior.variance.min() ** 0.5} and {prior.variance.max() ** 0.5}: the ratio of the "
            f"largest signal to the noise is beyond {value.dtype}. {_remedy(statistics, value.dtype)}"
        )
    lost = jnp.max(rounding_error(statistics, prior, noise_scale))
    if lost > ANNOUNCED:
        checks.warn(
            f"log_evidence: about {lost:.1g} nats are rounding: sums of products have too few digits for these "
            f"features and this noise. {_remedy(statistics, value.dtype)}"
        )
    return value


def _remedy(statistics: SufficientStatistics, dtype: Any) -> str:
    bound = "bound the noise away from zero, or make the prior narrower."
    if dtype != jnp.float64:
        return f"Call numpyro.enable_x64() first, or {bound}"
    if statistics.compressed.gram_defect is not None:
        return f'Compute the statistics with `method="qr"`, or {bound}'
    return bound.capitalize()


def evidence_cost(statistics: SufficientStatistics, prior: WeightPrior) -> str:
    """The cost of one evidence with all its gradients, for this kind of prior on these statistics.

    :param statistics: from :func:`~ppl_sgp.sufficient_statistics`.
    :param prior: any prior of the kind in question; its numbers do not matter.
    :return: ``"O(m)"`` for a diagonal prior on rotated statistics, ``"O(k·m)"`` for k reflections on
        orthonormal ones, ``"O(m·rank²)"`` for a diagonal prior at low rank, else ``"O(m³)"``.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 30)[:, None]
        >>> basis = sgp.FourierBasis.sample(jax.random.key(0), sgp.Matern32(0.3), 10, 1)
        >>> stats = sgp.sufficient_statistics(basis, X, np.zeros(30))
        >>> sgp.evidence_cost(stats, sgp.DiagonalPrior(1.0)), sgp.evidence_cost(stats.rotate(), sgp.DiagonalPrior(1.0))
        ('O(m³)', 'O(m)')
    """
    prior = checked_prior(statistics, prior)
    axes = prior.diagonal_along(statistics.num_orthonormal)
    if axes is None:
        return "O(m³)"
    return statistics.evidence_cost if axes.to_axes is None else axes.cost


def checked_prior(statistics: SufficientStatistics, prior: Any) -> WeightPrior:
    """The prior of all weights of the statistics; anything that is not one over those of their basis is refused."""
    if not isinstance(prior, WeightPrior):
        raise ValueError(
            f"`prior` must be a weight prior such as `basis.weight_prior(kernel)` or `sgp.DiagonalPrior(scale)`; "
            f"got {type(prior).__name__}."
        )
    if not isinstance(statistics, SufficientStatistics):
        kept = " The evidence of rows is that of an exact GP: `sgp.ExactGP`." if isinstance(statistics, Rows) else ""
        raise ValueError(
            "`statistics` must come from sgp.sufficient_statistics(basis, X, y); got "
            f"{type(statistics).__name__}.{kept}"
        )
    statistics.require_one_group("The evidence")
    prior = statistics.prior_of_weights(prior)
    if prior.num_weights not in (None, 1, statistics.num_weights):
        raise ValueError(
            f"`prior` has {prior.num_weights} weights but the statistics have {statistics.num_features} features: "
            "make the prior from `statistics.basis`."
        )
    if prior.diagonal_along(statistics.num_orthonormal) is None:
        dtype = checks.common_dtype(*jax.tree.leaves(prior))
        if dtype != jnp.float64:
            raise ValueError(
                f"{type(prior).__name__} needs float64, since its evidence squares a condition number; got {dtype}. "
                "Call numpyro.enable_x64() before creating arrays."
            )
    return prior


def joint_batch(owner: str, data: SufficientStatistics | Rows, **parameters: Any) -> tuple[int, ...]:
    """The joint batch shape of the outputs and of what is given for them; what does not fit is refused.

    :param data: statistics or rows.
    :param parameters: by name, priors and arrays whose axes are all of the batch.
    """
    outputs = jnp.shape(data.output_scales)
    shapes = {
        name: value.batch_shape if isinstance(value, WeightPrior) else jnp.shape(value)
        for name, value in parameters.items()
    }
    try:
        return jnp.broadcast_shapes(outputs, *shapes.values())
    except ValueError:
        given = ", ".join(f"`{name}` has batch shape {shape}" for name, shape in shapes.items() if shape)
        raise ValueError(
            f"{owner}: the data are of {data.num_outputs} output(s); {given}, which does not go with that. "
            "The last axis of a batch runs over the outputs: pass one for all, one for each, or a batch of k by shape "
            "(k, 1)."
        ) from None


def require_precision(owner: str, statistics: SufficientStatistics, dtype: Any, noise_scale: Any = None) -> None:
    """Refuse float32 where the evidence of these data would be off by more than about 0.1 nat.

    :param noise_scale: that of the only evidence asked for; default any that the data may ask for.
    """
    compressed, moments = statistics.compressed, statistics.moments
    if dtype == jnp.float64 or compressed.float32_suffices:
        return
    reason = "it is of millions of nats, or the noise is below 3e-4 of the signal"  # all that is known under `jit`
    if checks.is_concrete(compressed.log_constant, moments):
        size = float(np.max(np.abs(compressed.log_constant)))
        signal = np.sqrt(moments.sum_squares / moments.num_rows)
        known = noise_scale is not None and checks.is_concrete(noise_scale)
        ratio = np.min((np.asarray(noise_scale) if known else np.sqrt(compressed.reference_variance)) / signal)
        if known and size <= FLOAT32_NATS and ratio >= FLOAT32_NOISE:
            return
        reason = (
            f"a log evidence of about {size:.1e} nats is rounded to {np.spacing(np.float32(size)):.2g}"
            if size > FLOAT32_NATS
            else f"the {'noise' if known else 'residual standard deviation'} is {ratio:.1e} of the signal"
        )
    raise ValueError(
        f"{owner}: float32 cannot resolve the evidence of these data: {reason}. Call numpyro.enable_x64() "
        "before creating arrays."
    )


# One program also where a model is evaluated eagerly, as when NumPyro looks for initial values.
@jax.jit
def evaluate(statistics: SufficientStatistics, prior: WeightPrior, noise_scale: Any, projection: Any) -> jax.Array:
    """The evidence for compressed data ``projection``, of any batch shape, without checks."""
    dtype = checks.common_dtype(*jax.tree.leaves(prior), noise_scale)
    statistics = _constants(statistics)
    axes = prior.diagonal_along(statistics.num_orthonormal)
    if axes is None:
        return joint.evaluate(statistics, prior, noise_scale, projection, dtype)
    if axes.to_axes is not None:
        projection = _along_axes(axes.to_axes, jnp.asarray(projection, dtype))
    return scaled.evaluate(statistics, axes.prior, noise_scale, projection, dtype)


def _along_axes(to_axes: Callable[[jax.Array], jax.Array], projection: jax.Array) -> jax.Array:
    """Data of orthonormal features in coordinates along the principal axes of the prior."""
    c = jnp.moveaxis(projection[..., :-1], -1, 0)
    rotated = to_axes(c.reshape(len(c), -1)).reshape(c.shape)
    return jnp.concatenate([jnp.moveaxis(rotated, 0, -1), projection[..., -1:]], axis=-1)


def _constants(statistics: SufficientStatistics) -> SufficientStatistics:
    """The same, but differentiating in anything an evidence uses other than the projection is refused."""
    moments, compressed = statistics.moments, statistics.compressed
    held = {name: jax.tree.map(_held, getattr(moments, name)) for name in ("gram", "num_rows")}
    values = {name: jax.tree.map(_held, value) for name, value in vars(compressed).items() if name in CONSTANTS}
    return with_compressed(
        statistics.basis,
        rebuild(type(moments), {**vars(moments), **held}),
        rebuild(Compressed, {**vars(compressed), **values}),
    )


_held = functools.partial(
    constant,
    "log_evidence: statistics are constants; a derivative in their Gram matrix or factor was asked for, which is not "
    "defined. Differentiate in the prior, the noise or the projection, and pass statistics through "
    "`jax.lax.stop_gradient` if they are part of what is differentiated.",
)
