"""One split of the protocol of Evans (2022), section 5.4.2: data, frozen basis, type-I and type-II, scores.

`uci_type1.py` runs it over sets and splits, and says how.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.infer import MCMC, NUTS
from scipy.optimize import minimize

import ppl_sgp as sgp
from ppl_sgp.kernels.hyperprior_scales import log_normal_by_mode

WAYS = ("rotated", "marginal", "kept")
GRID_POINTS = 10
PREDICTED_DRAWS = 200  # thinned from the chains


def exact_gp_hyperparameters(
    X: np.ndarray, y: np.ndarray, shortest: np.ndarray, prior: bool
) -> tuple[np.ndarray, float, float]:
    """Lengthscales of at least ``shortest``, amplitude and noise scale of an exact GP, for standardised data.

    By maximum likelihood, or, with ``prior``, maximum a posteriori (of logarithms) under the default hyper-priors of
    `models.fourier_gp`. The best of three starts, each run to its end: there are poor local maxima. O(n³) a step.
    """
    d = X.shape[1]
    centre = np.log(np.r_[np.full(d, 0.5 * np.sqrt(d)), 1.0, 0.3])
    precision = np.r_[np.ones(d + 1), 1.5**-2] if prior else np.zeros(d + 2)

    def negative(log_theta):
        theta = jnp.exp(log_theta)
        scaled = X / theta[:-2]
        norms = jnp.sum(scaled**2, axis=1)
        squares = jnp.maximum(norms[:, None] + norms - 2 * scaled @ scaled.T, 0.0)
        K = theta[-2] ** 2 * jnp.exp(-0.5 * squares) + theta[-1] ** 2 * jnp.eye(len(y))
        L = jnp.linalg.cholesky(K)
        alpha = jax.scipy.linalg.solve_triangular(L, y, lower=True)
        misfit = 0.5 * alpha @ alpha + jnp.sum(jnp.log(jnp.diagonal(L)))
        return misfit + 0.5 * precision @ (log_theta - centre) ** 2

    evaluate = jax.jit(jax.value_and_grad(negative))
    lower = np.r_[np.log(shortest), -4.0, -7.0]
    bounds = list(zip(lower, np.r_[np.full(len(shortest), 7.0), 6.0, 2.0], strict=True))

    def minimised(start):
        return minimize(
            lambda t: tuple(map(np.asarray, evaluate(t))),
            np.maximum(start, lower),
            jac=True,
            bounds=bounds,
            method="L-BFGS-B",
            options={"maxiter": 1000},
        )

    starts = [np.log(np.r_[np.full(d, c * np.sqrt(d)), 1.0, 0.3]) for c in (0.3, 1.0, 3.0)]
    theta = np.exp(min(map(minimised, starts), key=lambda end: end.fun).x)
    return theta[:-2], float(theta[-2]), float(theta[-1])


def weights_kept(model: Callable[..., Any], noise_scale: float) -> Callable[..., Any]:
    """The same model with explicit weights, of statistics rotated with their type-II prior. O(m²) a gradient."""

    def kept(rotated):
        scale = numpyro.sample("scale", model.scale)
        noise = numpyro.sample("noise_scale", model.noise_scale)
        v, w = sgp.whitened_weights("w", rotated, noise_scale)
        numpyro.factor("prior", dist.Normal(0.0, scale).to_event(1).log_prob(w))
        sgp.observe_weights("y", rotated, v, noise)

    return kept


def sample(model: Callable[..., Any], stats: Any, init: Any, args: Any, seed: int) -> tuple[dict, dict[str, float]]:
    """Draws, thinned for prediction, and how well the chains mixed, over every site."""
    mcmc = MCMC(
        NUTS(model, init_strategy=init),
        num_warmup=args.warmup,
        num_samples=args.draws,
        num_chains=args.chains,
        chain_method="sequential",
        progress_bar=False,
    )
    started = time.perf_counter()
    mcmc.run(jax.random.key(seed), stats, extra_fields=("diverging", "num_steps"))
    by_chain = {name: np.asarray(values) for name, values in mcmc.get_samples(group_by_chain=True).items()}
    seconds = time.perf_counter() - started
    step = max(1, args.chains * args.draws // PREDICTED_DRAWS)
    kept = ("scale", "noise_scale")
    ess = np.concatenate([np.atleast_1d(effective_sample_size(np.log(by_chain[name]))) for name in kept])
    total = args.chains * args.draws  # the estimate turns negative where draws are all but antithetic
    return {name: values[::step] for name, values in mcmc.get_samples().items() if name in kept}, {
        "r_hat": max(float(np.max(split_gelman_rubin(values))) for values in by_chain.values()),
        "divergences": int(mcmc.get_extra_fields()["diverging"].sum()),
        "steps": float(np.mean(mcmc.get_extra_fields()["num_steps"])),
        "least_ess": float(np.min(np.where(ess > 0, np.minimum(ess, total), total))),
        "nuts_seconds": seconds,
    }


def one_split(X: np.ndarray, y: np.ndarray, test: np.ndarray, args: Any, seed: int) -> dict[str, Any]:
    """Fit the training rows, score the test rows; RMSE and log density in the units of y."""
    started = time.perf_counter()
    spread = X[~test].std(axis=0)
    varying = spread > 1e-12
    X = (X[:, varying] - X[~test][:, varying].mean(axis=0)) / spread[varying]
    unit = float(y[~test].std())
    y = (y - y[~test].mean()) / unit
    rows = np.random.default_rng(seed).permutation(np.flatnonzero(~test))[:1000]
    lower, upper = X[~test].min(axis=0), X[~test].max(axis=0)
    lower, upper = lower - 0.05 * (upper - lower), upper + 0.05 * (upper - lower)
    spacing = (upper - lower) / (GRID_POINTS - 1)  # eigenfunctions of shorter lengthscales vanish between grid points
    lengthscale, amplitude, noise = exact_gp_hyperparameters(X[rows], y[rows], spacing, prior=False)
    kernel = sgp.SquaredExponential(lengthscale)
    basis = sgp.GridEigenBasis.from_kernel(kernel, (lower, upper), args.features, GRID_POINTS)
    stats = sgp.sufficient_statistics(basis, X[~test], y[~test])
    stats = stats.rotate() if args.way == "rotated" else stats
    model = sgp.models.reweighted_basis(
        scale=log_normal_by_mode(1.0, 100.0, amplitude).expand([stats.num_features]).to_event(1),
        noise_scale=log_normal_by_mode(noise**2, 0.04),
    )
    fit = sgp.fit_evidence(model, stats, max_iterations=2000)
    if args.way == "kept":
        kept = weights_kept(model, fit.values["noise_scale"])
        rotated = stats.rotate(sgp.DiagonalPrior(fit.values["scale"]))
        draws, mixing = sample(kept, rotated, fit.init_strategy(), args, seed)
    else:
        draws, mixing = sample(model, stats, fit.init_strategy(), args, seed)
    scores = {}
    for name, samples in {"type1": draws, "type2": fit.samples}.items():
        prediction = sgp.predict(model, samples, stats, X[test])
        scores[f"{name}_rmse"] = unit * float(np.sqrt(np.mean((prediction.mean - y[test]) ** 2)))
        scores[f"{name}_log_density"] = float(np.mean(prediction.log_density(y[test]))) - float(np.log(unit))
    return {
        "n": len(y),
        "d": X.shape[1],
        "rank": stats.rank,
        **scores,
        **mixing,
        "seconds": time.perf_counter() - started,
    }
