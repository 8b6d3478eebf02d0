"""Gibbs sampling of hyperparameters with weights marginalised, and of what makes rows of any likelihood Gaussian."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from numpyro.infer.hmc import HMC
from numpyro.infer.mcmc import MCMCKernel
from numpyro.util import is_prng_key

from ..evidence.weight_posterior import posterior_factors
from ..sites.tracing import trace_at
from .gibbs_rows import WEIGHTS, ExplicitWeights, GibbsRows, Sweep, marginal_site, require_constant_priors


class AugmentedState(NamedTuple):
    """The state of :class:`AugmentedGibbs`.

    :ivar z: values that are kept as draws: unconstrained hyperparameters, weights, parameters of the likelihood.
    :ivar inner: state of HMC.
    :ivar latent: latent variables of the rows.
    :ivar rng_key: random key of the next sweep.
    :ivar diverging: whether the trajectory of HMC diverged.
    """

    z: dict[str, jax.Array]
    inner: Any
    latent: Any
    rng_key: jax.Array
    diverging: jax.Array


class AugmentedGibbs(MCMCKernel):
    """A kernel for ``MCMC`` that draws from the exact posterior of a model whose rows are not Gaussian.

    ``mcmc.run(key, rows)``, with rows from :func:`~ppl_sgp.augmented_rows` or :func:`~ppl_sgp.latent_rows`. The model
    is an ordinary one of statistics: it is given those of the rows as latent variables make them Gaussian. A sweep:

    1. hyperparameters by HMC or NUTS given the latent variables, with the *weights marginalised*: the evidence of
       Gaussian rows, O(m³) a gradient or what the statistics' tier says;
    2. weights from their Gaussian posterior, O(m³);
    3. latent variables, as the rows say.

    Draws have the sites of the model and ``weights`` (m,), which make f at any inputs, ``basis(X_new) @ weights``; and
    free parameters of the likelihood by name. Chains run one after another or on devices of their own, not vectorised.

    :param inner_kernel: ``NUTS(model)`` or ``HMC(model)``; the model observes the statistics, its first argument, once,
        by :func:`~ppl_sgp.observe`.
    :raises ValueError: for another kernel; when run, for other rows, or for a model with another observed site, with
        sites that have a name twice, or with priors that depend on the latent variables.

    .. doctest::

        >>> import jax, numpy as np, numpyro, numpyro.distributions as dist, ppl_sgp as sgp
        >>> from numpyro.infer import MCMC, NUTS
        >>> def model(stats):
        ...     lengthscale = numpyro.sample("lengthscale", dist.LogNormal(-1.0, 0.5))
        ...     sgp.observe("y", stats, stats.basis.weight_prior(sgp.SquaredExponential(lengthscale)))
        >>> X = np.linspace(0, 1, 40)[:, None]
        >>> basis = sgp.FourierBasis.from_data(jax.random.key(0), X, 10)
        >>> rows = sgp.augmented_rows(basis, X, X[:, 0] > 0.5, sgp.likelihoods.Bernoulli())
        >>> mcmc = MCMC(sgp.AugmentedGibbs(NUTS(model)), num_warmup=20, num_samples=10, progress_bar=False)
        >>> mcmc.run(jax.random.key(1), rows)
        >>> {name: draws.shape for name, draws in sorted(mcmc.get_samples().items())}
        {'lengthscale': (10,), 'weights': (10, 10)}
    """

    sample_field = "z"
    default_fields = ("z", "diverging")

    def __init__(self, inner_kernel: HMC) -> None:
        if not isinstance(inner_kernel, HMC) or inner_kernel.model is None:
            raise ValueError(
                "AugmentedGibbs: `inner_kernel` must be `NUTS(model)` or `HMC(model)` of NumPyro, of a model of "
                f"statistics; got {type(inner_kernel).__name__}."
            )
        self._inner = inner_kernel

    @property
    def model(self) -> ExplicitWeights:
        """The model of the draws: of the rows, with weights kept."""
        return ExplicitWeights(self._inner.model)

    def init(
        self,
        rng_key: jax.Array,
        num_warmup: int,
        init_params: Any,
        model_args: tuple[Any, ...],
        model_kwargs: dict[str, Any] | None,
    ) -> AugmentedState:
        """First state: hyperparameters where HMC starts, or at unconstrained ``init_params``."""
        if not is_prng_key(rng_key):
            raise ValueError('AugmentedGibbs runs one chain at a time: use `chain_method="sequential"` or "parallel".')
        rows, rest = _split(model_args)
        kwargs = model_kwargs or {}
        rng_key, key_inner, key_start, key_other, key_weights = jax.random.split(rng_key, 5)
        latent = rows.start(key_start)
        arguments = (rows.statistics(latent), *rest)
        inner = self._inner.init(key_inner, num_warmup, init_params, arguments, kwargs)
        others = (rows.statistics(rows.start(key_other)), *rest)
        self._check_model(inner.z, arguments, others, kwargs, rows.recorded(latent))
        weights = self._sweep(key_weights, inner.z, arguments, kwargs).weights
        return AugmentedState(self._z(inner, weights, rows, latent), inner, latent, rng_key, jnp.asarray(False))

    def sample(
        self, state: AugmentedState, model_args: tuple[Any, ...], model_kwargs: dict[str, Any] | None
    ) -> AugmentedState:
        """One sweep."""
        rows, rest = _split(model_args)
        kwargs = model_kwargs or {}
        rng_key, key_weights, key_latent = jax.random.split(state.rng_key, 3)
        arguments = (rows.statistics(state.latent), *rest)
        inner = self._inner.refresh(state.inner, arguments, kwargs)
        inner = self._inner.sample(inner, arguments, kwargs)
        sweep = self._sweep(key_weights, inner.z, arguments, kwargs)
        latent = rows.updated(key_latent, state.latent, sweep)
        return AugmentedState(self._z(inner, sweep.weights, rows, latent), inner, latent, rng_key, inner.diverging)

    def postprocess_fn(self, model_args: tuple[Any, ...], model_kwargs: dict[str, Any] | None) -> Any:
        """Draws in the units of the model, with its deterministic sites."""
        rows, rest = _split(model_args)
        statistics = rows.statistics(rows.start(jax.random.key(0)))
        of_inner = self._inner.postprocess_fn((statistics, *rest), model_kwargs or {})

        def constrain(z: dict[str, Any]) -> dict[str, Any]:
            beside = {name: value for name, value in z.items() if name not in self._inner._inv_transforms}
            return {**of_inner({name: value for name, value in z.items() if name not in beside}), **beside}

        return constrain

    def get_diagnostics_str(self, state: AugmentedState) -> str:
        """What the progress bar says: of HMC."""
        return self._inner.get_diagnostics_str(state.inner)

    def _z(self, inner: Any, weights: jax.Array, rows: GibbsRows, latent: Any) -> dict[str, jax.Array]:
        return {**inner.z, WEIGHTS: weights, **rows.recorded(latent)}

    def _sweep(self, key: jax.Array, z: Any, arguments: tuple[Any, ...], kwargs: dict[str, Any]) -> Sweep:
        """The observed site at hyperparameters, and weights drawn given it."""
        _, site = marginal_site(self._trace(z, arguments, kwargs))
        mean, factor = posterior_factors(site.statistics, site.prior, site.noise_scale)
        noise = jax.random.normal(key, mean.shape, mean.dtype)
        weights = mean + (factor * noise if factor.ndim == 1 else factor @ noise)
        return Sweep(site.prior, site.noise_scale, weights)

    def _trace(self, z: Any, arguments: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        values = self._inner.get_constrain_fn(arguments, kwargs)(z)
        model = self._inner.model
        return trace_at(lambda statistics: model(statistics, *arguments[1:], **kwargs), arguments[0], values)

    def _check_model(self, z: Any, arguments: Any, others: Any, kwargs: dict[str, Any], recorded: Any) -> None:
        """Refuse names that are there twice, and priors that change with the latent variables."""
        first, second = (self._trace(z, each, kwargs) for each in (arguments, others))
        twice = [name for name in (WEIGHTS, *recorded) if name in first]
        if twice:
            raise ValueError(f"AugmentedGibbs: draws have {twice} besides the sites of the model; rename these.")
        require_constant_priors((first, second))


def _split(model_args: tuple[Any, ...]) -> tuple[GibbsRows, tuple[Any, ...]]:
    rows = model_args[0] if model_args else None
    if not isinstance(rows, GibbsRows):
        raise ValueError(
            "AugmentedGibbs: run it on rows, `mcmc.run(key, sgp.augmented_rows(basis, X, y, likelihood))` or "
            f"`sgp.latent_rows(...)`; got {type(rows).__name__}."
        )
    return rows, model_args[1:]
