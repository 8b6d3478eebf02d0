"""A basis, two kernels and a prior, as a user writes them: of public names alone."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ppl_sgp as sgp


@sgp.pytree_dataclass
class HatBasis(sgp.Basis):
    """Piecewise linear functions of one input on equally spaced knots, 1 at their own; weights are the values there."""

    knots: Any
    closed: bool = sgp.static(default=False)  # whether the first and the last knot are one

    approximates_kernel = True

    @property
    def num_features(self):
        return self.knots.shape[-1] - self.closed

    @property
    def input_dim(self):
        return 1

    def features(self, X, xp):
        knots = xp.asarray(self.knots, dtype=X.dtype)
        hats = xp.clip(1 - xp.abs(X - knots[None, :]) / (knots[1] - knots[0]), 0, 1)
        return xp.concatenate([hats[:, :1] + hats[:, -1:], hats[:, 1:-1]], axis=1) if self.closed else hats

    def check_domain(self, X):
        if isinstance(X, jax.core.Tracer) or not len(X):
            return
        if X.min() < self.knots[0] or X.max() > self.knots[-1]:
            raise ValueError("HatBasis: inputs lie outside the knots.")

    def weight_prior(self, kernel):
        return sgp.DensePrior(kernel(jnp.asarray(self.knots, jnp.result_type(float))[: self.num_features, None]))


@sgp.pytree_dataclass
class Brownian(sgp.Kernel):
    """``amplitude² min(x, x')`` of one positive input: no spectrum, and no separable relative."""

    amplitude: Any = 1.0

    def __call__(self, X, X2=None):
        X, X2 = jnp.asarray(X), jnp.asarray(X if X2 is None else X2)
        return jnp.asarray(self.amplitude, X.dtype) ** 2 * jnp.minimum(X, X2.T)

    def diag(self, X):
        X = jnp.asarray(X)
        return jnp.asarray(self.amplitude, X.dtype) ** 2 * X[:, 0]


@sgp.pytree_dataclass
class Band(sgp.Spectral, sgp.Kernel):
    """``amplitude² sinc(2 width (x − x'))`` of one input: equal power at all frequencies up to ``width``."""

    width: Any
    amplitude: Any = 1.0

    spectral_shape = (1, 1)  # what `frequencies_from` takes: a normal and a uniform for a frequency

    @property
    def variance(self):
        return self.amplitude**2

    def __call__(self, X, X2=None):
        X, X2 = jnp.asarray(X), jnp.asarray(X if X2 is None else X2)
        return jnp.asarray(self.variance, X.dtype) * jnp.sinc(2 * jnp.asarray(self.width, X.dtype) * (X - X2.T))

    def diag(self, X):
        X = jnp.asarray(X)
        return jnp.broadcast_to(jnp.asarray(self.variance, X.dtype), X.shape[:1])

    def log_spectral_density(self, frequencies):
        frequency = jnp.abs(jnp.asarray(frequencies)[..., 0])
        width = jnp.asarray(self.width, frequency.dtype)
        height = jnp.log(jnp.asarray(self.variance, frequency.dtype)) - jnp.log(2 * width)
        return jnp.where(frequency <= width, height, -jnp.inf)

    def sample_frequencies(self, key, shape):
        return self.width * jax.random.uniform(key, shape, minval=-1.0)

    def frequencies_from(self, normals, uniforms):
        return np.asarray(self.width) * (2 * uniforms - 1)


@sgp.pytree_dataclass
class AutoregressivePrior(sgp.WeightPrior):
    """``w₁ = scale z₁``, ``wⱼ = correlation wⱼ₋₁ + scale √(1 − correlation²) zⱼ``: a stationary chain of m weights."""

    scale: Any
    correlation: Any
    size: int = sgp.static()

    mean = None

    @property
    def num_weights(self):
        return self.size

    @property
    def variance(self):
        return jnp.full(self.size, self.scale**2)

    @property
    def _root(self):
        steps = jnp.arange(self.size)
        lag = steps[:, None] - steps[None, :]
        correlation = jnp.asarray(self.correlation)
        chain = jnp.where(lag >= 0, correlation ** jnp.asarray(jnp.maximum(lag, 0), correlation.dtype), 0)
        new = jnp.where(steps > 0, jnp.sqrt(1 - correlation**2), 1)
        return self.scale * chain * new[None, :]

    def apply(self, vectors):
        return self._root @ (self._root.T @ vectors)

    def apply_root(self, vectors):
        return self._root @ vectors
