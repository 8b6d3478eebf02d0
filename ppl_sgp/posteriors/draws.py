"""Posterior draws of hyperparameters, turned into posteriors of the weights, a batch at a time.

Shared by prediction and leave-one-out: both need, for every draw, the Gaussian posterior of the
weights that the model implies for the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.distributions.distribution import ExpandedDistribution, MaskedDistribution

from .._internal import checks
from ..bases.effective_share import FEW_FEATURES, effective_share
from ..sites.compressed_distribution import CompressedDistribution
from ..sites.compressed_normal import CompressedNormal
from ..sites.tracing import draw_once
from ..statistics.statistics import SufficientStatistics
from .weight_posterior import posterior_factors


class WeightDraws(NamedTuple):
    """A batch of b draws, float64: posterior means (b, q, m), factors of the covariances, noise scales (b, q).

    Factors have shape (b, q, m, r), or (b, q, m), standard deviations, where weights are independent.
    """

    loc: np.ndarray
    factor: np.ndarray
    noise_scale: np.ndarray

    @property
    def independent(self) -> bool:
        """Whether the weights are independent in every draw."""
        return self.factor.ndim == self.loc.ndim

    def summed_covariance(self) -> np.ndarray:
        """Sum of the covariances over draws, shape (q, m, m). One matrix product an output."""
        if self.independent:
            variances = np.sum(self.factor**2, axis=0)
            return variances[..., None] * np.eye(variances.shape[-1])
        wide = np.moveaxis(self.factor, 0, 2).reshape(*self.factor.shape[1:3], -1)
        return wide @ wide.swapaxes(-1, -2)

    def variance(self, Phi: np.ndarray) -> np.ndarray:
        """Variance of f at features (n, m), shape (b, q, n)."""
        if self.independent:
            return self.factor**2 @ (Phi**2).T
        variance = [[np.sum((Phi @ factor) ** 2, axis=-1) for factor in outputs] for outputs in self.factor]
        return np.array(variance)

    def pointwise(self, Phi: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean and variance (b, q, n) of f at features (n, m), and noise (b, q)."""
        return self.loc @ Phi.T, self.variance(Phi), self.noise_scale

    def weights(self, z: np.ndarray) -> np.ndarray:
        """Weights from standard normal draws, both of shape (b, q, m)."""
        if self.independent:
            return self.loc + self.factor * z
        return self.loc + np.einsum("bqij,bqj->bqi", self.factor, z[..., : self.factor.shape[-1]])


class KnownDraws:
    """Weight posteriors that are there already, all of them one batch.

    :param basis: the basis of the weights.
    :param weights: the posteriors.
    """

    def __init__(self, basis: Any, weights: WeightDraws) -> None:
        self.basis, self._weights = basis, weights
        self.num_draws = self.batch_size = len(weights.loc)
        self.num_outputs = weights.loc.shape[1]

    def __iter__(self) -> Iterator[WeightDraws]:
        yield self._weights

    def take(self, indices: np.ndarray) -> WeightDraws:
        """Chosen draws."""
        return WeightDraws(*(part[indices] for part in self._weights))

    def pointwise(self, Phi: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Mean and variance (b, q, n) of f at features (n, m), and noise (b, q)."""
        yield self._weights.pointwise(Phi)


class Draws:
    """The weight posteriors of all draws, evaluated when asked for.

    :param model: a NumPyro model of one argument, the statistics.
    :param samples: draws by site name, each with the draws along its first axis (``mcmc.get_samples()``).
    :param statistics: the statistics the model was fitted to.
    :param site: name of the observed site; needed only if the model has several.
    :param max_memory: bytes that a batch may take.
    :raises ValueError: if the model has no such site, or ``samples`` lack one of its latent sites.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        samples: dict[str, Any],
        statistics: SufficientStatistics,
        site: str | None,
        max_memory: float,
    ) -> None:
        self._model, self._statistics = model, statistics
        self._samples, self._site = checked_samples(model, samples, statistics, site)
        self.num_draws = _num_draws(self._samples)
        first = {name: value[0] for name, value in self._samples.items()}
        per_draw = 8 * 4 * jax.eval_shape(self._one, first)[1].size
        #: Draws whose posteriors fit the memory cap together.
        self.batch_size = int(min(self.num_draws, max(1, max_memory // per_draw)))
        # Mapped, not vmapped: on a CPU a batched triangular solve is much slower than one at a time.
        self._posterior = jax.jit(lambda batch: jax.lax.map(self._one, batch))
        self.precision = np.finfo(np.float64)
        self._warned = False

    @property
    def basis(self) -> Any:
        """The basis the data were seen through."""
        return self._statistics.basis

    @property
    def num_outputs(self) -> int:
        """The number of outputs q."""
        return self._statistics.num_outputs

    def _one(self, parameters: dict[str, Any]) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        fn = compressed_sites(_trace(self._model, self._statistics, parameters))[self._site]
        q, m = self.num_outputs, self._statistics.num_features
        noise_scale = jnp.broadcast_to(fn.noise_scale, (q,))
        if isinstance(fn, CompressedNormal):
            loc, factor, effective = fn.weights, jnp.zeros_like(fn.weights), jnp.asarray(1.0)
        else:
            loc, factor = posterior_factors(fn.statistics, fn.prior, fn.noise_scale)
            effective = effective_share(self.basis, fn.prior.log_variance)
        factor = jnp.broadcast_to(factor, (q, *factor.shape[loc.ndim - 1 :]))
        return jnp.broadcast_to(loc, (q, m)), factor, noise_scale, effective

    def __iter__(self) -> Iterator[WeightDraws]:
        effective = []
        for start in range(0, self.num_draws, self.batch_size):
            # The last batch overlaps none: it is shorter, at the price of one more compilation.
            batch = {name: value[start : start + self.batch_size] for name, value in self._samples.items()}
            weights, share = self._evaluate(batch)
            effective.append(share)
            yield weights
        self._warn_few_features(np.concatenate(effective))

    def _warn_few_features(self, share: np.ndarray) -> None:
        low = float(np.quantile(share, 0.05))
        if self._warned or low >= FEW_FEATURES:
            return
        self._warned = True
        checks.warn(
            f"For 5% of the draws at most {low:.1%} of the Fourier features of a kernel carry weight, so it is poorly "
            "approximated there. Draw the basis closer to the posterior lengthscales (FourierBasis.sample with a "
            "list of kernels from the posterior), from shorter lengthscales, or with more features.",
            stacklevel=5,
        )

    def take(self, indices: np.ndarray) -> WeightDraws:
        """The weight posteriors of chosen draws, all at once."""
        return self._evaluate({name: value[indices] for name, value in self._samples.items()})[0]

    def _evaluate(self, batch: dict[str, np.ndarray]) -> tuple[WeightDraws, np.ndarray]:
        *parts, share = self._posterior(batch)
        self.precision = np.finfo(parts[0].dtype)
        weights = WeightDraws(*(np.asarray(part, dtype=np.float64) for part in parts))
        if not all(np.isfinite(part).all() for part in weights):
            raise ValueError(
                "The weights' posterior is not finite for some draws: look for hyperparameters that are not finite, "
                f"or beyond {self.precision.dtype} (then call numpyro.enable_x64() first)."
            )
        return weights, np.atleast_1d(share)

    def pointwise(self, Phi: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Mean and variance (b, q, n) of f at features (n, m), and noise (b, q), batch by batch."""
        for draws in self:
            yield draws.pointwise(Phi)


def map_sites(
    function: Callable[[CompressedDistribution, dict[str, Any]], Any],
    model: Callable[..., Any],
    samples: dict[str, Any],
    statistics: SufficientStatistics,
    site: str | None = None,
) -> Any:
    """``function`` of the observed site's distribution and of the draw, at each draw, stacked along a first axis."""
    checked, name = checked_samples(model, samples, statistics, site)
    _num_draws(checked)

    def at(draw):
        return function(compressed_sites(_trace(model, statistics, draw))[name], draw)

    return jax.jit(lambda draws: jax.lax.map(at, draws))(checked)


def checked_samples(
    model: Callable[..., Any], samples: dict[str, Any], statistics: SufficientStatistics, site: str | None
) -> tuple[dict[str, np.ndarray], str]:
    """Draws of the model's latent sites alone, and the name of its observed site."""
    if not isinstance(samples, Mapping):
        raise ValueError(
            f"`samples` must be a dictionary of draws by site name; got {type(samples).__name__}. Pass "
            "`mcmc.get_samples()`."
        )
    latent, name = inspect_sites(model, statistics, site)
    missing = [key for key in latent if key not in samples]
    if missing:
        raise ValueError(
            f"`samples` lack the latent sites {missing} of the model; pass `mcmc.get_samples()` or draws of "
            f"all of {sorted(latent)}."
        )
    return {key: np.asarray(samples[key]) for key in latent}, name


def _trace(model: Callable[..., Any], statistics: SufficientStatistics, parameters: dict[str, Any]) -> dict[str, Any]:
    seeded = handlers.seed(handlers.substitute(model, parameters), jax.random.key(0))
    return handlers.trace(seeded).get_trace(statistics)


def compressed_sites(trace: dict[str, Any]) -> dict[str, Any]:
    """The observed compressed data of a model, by site name."""
    found = {}
    for name, site in trace.items():
        fn = site.get("fn")
        while isinstance(fn, (MaskedDistribution, ExpandedDistribution)):
            fn = fn.base_dist
        if site["type"] == "sample" and isinstance(fn, CompressedDistribution):
            found[name] = fn
    return found


def inspect_sites(
    model: Callable[..., Any], statistics: SufficientStatistics, site: str | None
) -> tuple[list[str], str]:
    """Names of a model's latent sites, and of its compressed data, without evaluating anything."""
    latent: list[str] = []
    sites: list[str] = []

    def run():
        trace = draw_once(model, statistics)
        sites.extend(compressed_sites(trace))
        latent.extend(
            name for name, s in trace.items() if s["type"] == "sample" and not s["is_observed"] and name not in sites
        )

    jax.eval_shape(run)
    if site is None and len(sites) == 1:
        return latent, sites[0]
    if site in sites:
        return latent, site
    raise ValueError(
        f"The model must have one site made by `sgp.observe` or `sgp.observe_weights`; it has {sites or 'none'}"
        + (f", and {site!r} is not among them." if site is not None else ". Say which with `site=`." if sites else ".")
    )


def _num_draws(samples: dict[str, np.ndarray]) -> int:
    lengths: dict[str, Any] = {name: value.shape[0] if value.ndim else None for name, value in samples.items()}
    distinct = set(lengths.values())
    if len(distinct) != 1 or None in distinct:
        raise ValueError(
            f"`samples` must hold arrays with the draws along their first axis; got first axes {lengths}. "
            "Pass `mcmc.get_samples()` (not grouped by chain)."
        )
    return int(distinct.pop())
