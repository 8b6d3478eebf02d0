"""Hyper-priors under which most weights are all but zero and a few are not.

Weights are measured in units uⱼ, with which feature j alone has the mean square of y, so that nothing depends on the
units of y or of a feature. Each hyper-prior has ``sample``, which returns prior standard deviations of the weights, and
``update``, a Gibbs update given the weights of the sites it lists as ``conjugate``.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from .._internal import checks

FEATURE = {"event_dims": ["feature"]}


@dataclasses.dataclass(frozen=True)
class GammaPrecision:
    """A Gamma prior of each weight's precision (Tipping 2001, eq 6), so that weights are Student's t.

    ``αⱼuⱼ² ~ Gamma(shape, rate)``: wⱼ/uⱼ has ``2·shape`` degrees of freedom and scale ``√(rate/shape)``. Tipping's
    limit of zero for both is improper. Site: ``precision`` (m,).

    :param shape: 0.5 makes Cauchy weights.
    :param rate: default ``shape/m``, a scale of uⱼ/√m: m such weights together make about the size of y.
    :raises ValueError: if one of them is not positive.

    .. doctest::

        >>> import ppl_sgp as sgp
        >>> sgp.models.GammaPrecision(shape=1.0, rate=1e-4)
        GammaPrecision(shape=1.0, rate=0.0001)
    """

    shape: float = 0.5
    rate: float | None = None

    def __post_init__(self) -> None:
        """Refuse what is not positive."""
        checks.positive("shape", self.shape, "GammaPrecision")
        checks.positive("rate", 1.0 if self.rate is None else self.rate, "GammaPrecision")

    @property
    def conjugate(self) -> tuple[str, ...]:
        """Sites with a conditional in closed form."""
        return ("precision",)

    def sample(self, unit: jax.Array, noise: Any) -> jax.Array:
        """Prior standard deviations of the weights, shape (m,)."""
        prior = dist.Gamma(self.shape, self._rate(unit)).to_event(1)
        return numpyro.sample("precision", prior, infer=FEATURE) ** -0.5

    def update(self, key: jax.Array, weights: jax.Array, sites: dict[str, Any], unit: jax.Array, noise: Any) -> dict:
        """Draw ``precision`` given the weights."""
        return {"precision": dist.Gamma(self.shape + 0.5, self._rate(unit) + 0.5 * weights**2).sample(key)}

    def _rate(self, unit: jax.Array) -> jax.Array:
        return (self.shape / len(unit) if self.rate is None else self.rate) * unit**2


@dataclasses.dataclass(frozen=True)
class Horseshoe:
    """Half-Cauchy scales, with a common factor, and a slab that bounds them if asked for.

    ``wⱼ ~ N(0, (uⱼτλ̃ⱼ)²)`` with ``λⱼ ~ C⁺(0, 1)`` (Carvalho, Polson & Scott 2010) and
    ``τ ~ C⁺(0, τ₀)``, ``τ₀ = p₀/(m − p₀) · σ/(s√n)`` for p₀ weights expected to matter, s the root mean square of y
    (Piironen & Vehtari 2017, eq 3.12). Without a slab λ̃ = λ; with one, ``λ̃² = c²λ²/(c² + τ²λ²)`` and
    ``c² = slab_scale² · InverseGamma(2, 2)``: the regularised horseshoe (eqs 2.8-2.9), whose scales are not conjugate.
    Sites: ``local_scale`` (m,) for λ, ``global_scale`` for τ/τ₀, ``slab`` for c²/slab_scale².

    :param relevant: p₀.
    :param slab_scale: in units of uⱼ; ``None`` for no slab.
    :raises ValueError: if one of them is not positive.

    .. doctest::

        >>> import ppl_sgp as sgp
        >>> sgp.models.Horseshoe(relevant=5, slab_scale=2.0)
        Horseshoe(relevant=5, slab_scale=2.0)
    """

    relevant: float = 5.0
    slab_scale: float | None = None

    def __post_init__(self) -> None:
        """Refuse what is not positive."""
        checks.positive("relevant", self.relevant, "Horseshoe")
        checks.positive("slab_scale", 1.0 if self.slab_scale is None else self.slab_scale, "Horseshoe")

    @property
    def conjugate(self) -> tuple[str, ...]:
        """Sites with a conditional in closed form."""
        return ("local_scale",) if self.slab_scale is None else ()

    def sample(self, unit: jax.Array, noise: Any) -> jax.Array:
        """Prior standard deviations of the weights, shape (m,)."""
        m = len(unit)
        if self.relevant >= m:
            raise ValueError(
                f"Horseshoe: `relevant`={self.relevant} weights of {m} are expected to matter; it must be fewer."
            )
        local = numpyro.sample("local_scale", dist.HalfCauchy(1.0).expand([m]).to_event(1), infer=FEATURE)
        tau = self._global(numpyro.sample("global_scale", dist.HalfCauchy(1.0)), m, noise)
        if self.slab_scale is None:
            return unit * tau * local
        slab = self.slab_scale**2 * numpyro.sample("slab", dist.InverseGamma(2.0, 2.0))
        # The harmonic sum of squares, arranged so that neither limit overflows.
        return unit * tau * local * (1 + (tau * local) ** 2 / slab) ** -0.5

    def update(self, key: jax.Array, weights: jax.Array, sites: dict[str, Any], unit: jax.Array, noise: Any) -> dict:
        """Draw ``local_scale`` given the weights, by a slice for ``η = λ⁻²``.

        ``p(η | w) ∝ exp(−μη)/(1 + η)`` with ``μ = w²/(2u²τ²)``: given ``v ~ U(0, 1/(1 + η))`` it is an exponential cut
        at 1/v − 1 (Polson, Scott & Windle 2014, supplement).
        """
        tau = self._global(sites["global_scale"], len(unit), noise)
        mu = 0.5 * (weights / (unit * tau)) ** 2
        eta = sites["local_scale"] ** -2.0
        key_slice, key_eta = jax.random.split(key)
        # The bound 1/v − 1 for v = V/(1 + η), V uniform, arranged to keep its digits.
        uniform = 1 - jax.random.uniform(key_slice, eta.shape, eta.dtype)
        bound = (eta + 1 - uniform) / uniform
        level = jax.random.uniform(key_eta, eta.shape, eta.dtype)
        flat = mu * bound < 1e-6  # the exponential is uniform there, to rounding
        rate = jnp.where(flat, 1.0, mu)
        cut = -jnp.log1p(level * jnp.expm1(-rate * bound)) / rate
        eta = jnp.where(flat, level * bound, cut)
        return {"local_scale": jnp.maximum(eta, jnp.finfo(eta.dtype).tiny) ** -0.5}

    def _global(self, relative: Any, num_weights: int, noise: Any) -> Any:
        return relative * noise * (self.relevant / (num_weights - self.relevant))


def checked_hyper_prior(hyper_prior: Any, owner: str) -> GammaPrecision | Horseshoe:
    """The hyper-prior, or the default one for ``None``."""
    chosen = GammaPrecision() if hyper_prior is None else hyper_prior
    if not isinstance(chosen, (GammaPrecision, Horseshoe)):
        raise ValueError(
            f"{owner}: `hyper_prior` must be a sgp.models.GammaPrecision or a sgp.models.Horseshoe; got "
            f"{type(chosen).__name__}."
        )
    return chosen
