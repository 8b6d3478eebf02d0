"""The methods of `peers.py`: from training rows to means and variances of y at the test rows. Imports are within."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Split(NamedTuple):
    """Standardised rows of one split, and the size of everything."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    features: int
    inducing: int
    effort: float  # a factor of numbers of iterations: below one for a smoke run

    def times(self, count: int) -> int:
        return max(2, round(self.effort * count))


class Missing(Exception):
    """A method does not apply to a set, or its library is not there."""


Moments = tuple[np.ndarray, np.ndarray]  # mean and variance of y at the test rows, or draws of them along axis 0


def reweighted(split: Split, type_one: bool) -> Moments:
    import jax
    from numpyro.infer import MCMC, NUTS
    from uci_protocol import exact_gp_hyperparameters

    import ppl_sgp as sgp
    from ppl_sgp.kernels.hyperprior_scales import log_normal_by_mode

    rows = np.random.default_rng(0).permutation(len(split.X))[:1000]
    lower, upper = split.X.min(axis=0), split.X.max(axis=0)
    lower, upper = lower - 0.05 * (upper - lower), upper + 0.05 * (upper - lower)
    shortest = (upper - lower) / 9
    lengthscale, amplitude, noise = exact_gp_hyperparameters(split.X[rows], split.y[rows], shortest, prior=True)
    basis = sgp.GridEigenBasis.from_kernel(sgp.SquaredExponential(lengthscale), (lower, upper), split.features, 10)
    stats = sgp.sufficient_statistics(basis, split.X, split.y).rotate()
    model = sgp.models.reweighted_basis(
        scale=log_normal_by_mode(1.0, 100.0, amplitude).expand([stats.num_features]).to_event(1),
        noise_scale=log_normal_by_mode(noise**2, 0.04),
    )
    fit = sgp.fit_evidence(model, stats, max_iterations=2000)
    draws = fit.samples
    if type_one:
        count = split.times(250)
        nuts = NUTS(model, init_strategy=fit.init_strategy())
        mcmc = MCMC(
            nuts, num_warmup=count, num_samples=count, num_chains=4, chain_method="sequential", progress_bar=False
        )
        mcmc.run(jax.random.key(0), stats)
        draws = {name: values[::5] for name, values in mcmc.get_samples().items()}
    prediction = sgp.predict(model, draws, stats, split.X_test)
    return np.asarray(prediction.mean), np.asarray(prediction.variance + prediction.noise_variance)


def placed(split: Split) -> Moments:
    import jax
    from numpyro.infer import MCMC, NUTS

    import ppl_sgp as sgp

    features = split.features if split.effort < 1 else None  # the default, but for a smoke run
    found = sgp.place(jax.random.key(0), split.X, split.y, num_features=features)
    print(found.report, flush=True)
    count = split.times(250)
    nuts = NUTS(found.model, init_strategy=found.init_strategy())
    mcmc = MCMC(nuts, num_warmup=count, num_samples=count, num_chains=4, chain_method="sequential", progress_bar=False)
    mcmc.run(jax.random.key(1), found.statistics)
    draws = {name: values[::5] for name, values in mcmc.get_samples().items()}
    prediction = sgp.predict(found.model, draws, found.statistics, split.X_test)
    return np.asarray(prediction.mean), np.asarray(prediction.variance + prediction.noise_variance)


def gpytorch_sparse(split: Split, variational: bool) -> Moments:
    import gpytorch
    import torch

    torch.manual_seed(0)
    X, y, X_test = (torch.tensor(array) for array in (split.X, split.y, split.X_test))
    d = X.shape[1]
    points = X[torch.randperm(len(X))[: split.inducing]].clone()

    def kernel():
        made = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=d)).double()
        made.base_kernel.lengthscale, made.outputscale = 0.5 * d**0.5, 1.0
        return made

    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = 0.09
    if variational:

        class Model(gpytorch.models.ApproximateGP):
            def __init__(self):
                posterior = gpytorch.variational.CholeskyVariationalDistribution(len(points))
                super().__init__(gpytorch.variational.VariationalStrategy(self, points, posterior, True))
                self.mean, self.covariance = gpytorch.means.ZeroMean(), kernel()

            def forward(self, x):
                return gpytorch.distributions.MultivariateNormal(self.mean(x), self.covariance(x))

        model = Model().double()
        objective = gpytorch.mlls.VariationalELBO(likelihood, model, len(X))
        rows = torch.utils.data.TensorDataset(X, y)
        batches: Any = torch.utils.data.DataLoader(rows, batch_size=1024, shuffle=True)
        steps, rate = split.times(20), 0.01
    else:

        class Exact(gpytorch.models.ExactGP):
            def __init__(self):
                super().__init__(X, y, likelihood)
                self.mean = gpytorch.means.ZeroMean()
                self.covariance = gpytorch.kernels.InducingPointKernel(kernel(), points, likelihood)

            def forward(self, x):
                return gpytorch.distributions.MultivariateNormal(self.mean(x), self.covariance(x))

        model = Exact().double()
        objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        batches, steps, rate = [(X, y)], split.times(100), 0.1
    model.train()
    likelihood.train()
    optimiser = torch.optim.Adam({id(p): p for p in [*model.parameters(), *likelihood.parameters()]}.values(), lr=rate)
    for _ in range(steps):
        for batch, outputs in batches:
            optimiser.zero_grad()
            loss = -objective(model(batch), outputs)
            loss.backward()
            optimiser.step()
    model.eval()
    likelihood.eval()
    with torch.no_grad():
        predicted = [likelihood(model(part)) for part in X_test.split(1000)]
        return tuple(np.concatenate([getattr(p, name).numpy() for p in predicted]) for name in ("mean", "variance"))


def gpflow_sgpr(split: Split) -> Moments:
    import gpflow

    d = split.X.shape[1]
    points = split.X[np.random.default_rng(0).permutation(len(split.X))[: split.inducing]].copy()
    kernel = gpflow.kernels.SquaredExponential(lengthscales=np.full(d, 0.5 * d**0.5))
    model = gpflow.models.SGPR((split.X, split.y[:, None]), kernel, points, noise_variance=0.09)
    gpflow.optimizers.Scipy().minimize(
        model.training_loss, model.trainable_variables, options={"maxiter": split.times(100)}
    )
    mean, variance = model.predict_y(split.X_test)
    return mean.numpy()[:, 0], variance.numpy()[:, 0]


def numpyro_hsgp(split: Split) -> Moments:
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.contrib.hsgp.laplacian import eigenfunctions
    from numpyro.contrib.hsgp.spectral_densities import diag_spectral_density_squared_exponential
    from numpyro.infer import SVI, Predictive, Trace_ELBO
    from numpyro.infer.autoguide import AutoNormal

    d = split.X.shape[1]
    if d > 3:
        raise Missing(f"{d} inputs: a product of {d} bases")
    per_input = round(split.features ** (1 / d))
    middle = (split.X.min(axis=0) + split.X.max(axis=0)) / 2
    half = (split.X.max(axis=0) - split.X.min(axis=0)) / 2
    boundary = list(1.5 * half)
    Phi, Phi_test = (
        eigenfunctions(jnp.asarray(X - middle), boundary, [per_input] * d) for X in (split.X, split.X_test)
    )

    def model(Phi, y=None):
        lengthscale = numpyro.sample("lengthscale", dist.LogNormal(jnp.log(0.5 * d**0.5), 1.0).expand([d]).to_event(1))
        amplitude = numpyro.sample("amplitude", dist.LogNormal(0.0, 1.0))
        noise = numpyro.sample("noise", dist.LogNormal(jnp.log(0.3), 1.5))
        density = diag_spectral_density_squared_exponential(amplitude**2, lengthscale, boundary, [per_input] * d, d)
        z = numpyro.sample("z", dist.Normal().expand([Phi.shape[1]]).to_event(1))
        # Densities underflow at high frequencies, and the gradient of the root is not finite at zero.
        f = numpyro.deterministic("f", Phi @ (jnp.sqrt(jnp.maximum(density, 1e-30)) * z))
        numpyro.sample("y", dist.Normal(f, noise), obs=y)

    guide = AutoNormal(model)
    svi = SVI(model, guide, numpyro.optim.Adam(0.01), Trace_ELBO())
    result = svi.run(jax.random.key(0), split.times(2000), Phi, jnp.asarray(split.y), progress_bar=False)
    posterior = guide.sample_posterior(jax.random.key(1), result.params, sample_shape=(100,))
    f = Predictive(model, posterior, return_sites=["f"])(jax.random.key(2), Phi_test)["f"]
    return np.asarray(f), np.broadcast_to(np.asarray(posterior["noise"])[:, None] ** 2, f.shape)


def exact_gp(split: Split) -> Moments:
    import ppl_sgp as sgp

    chosen = np.random.default_rng(0).permutation(len(split.X))[: 2 * split.features]
    rows = sgp.rows(split.X[chosen], split.y[chosen])
    model = sgp.models.exact_gp()
    fit = sgp.fit_evidence(model, rows)
    prediction = sgp.predict(model, fit, rows, split.X_test)
    return np.asarray(prediction.mean), np.asarray(prediction.variance + prediction.noise_variance)


def sklearn_exact(split: Split) -> Moments:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    d = split.X.shape[1]
    rows = np.random.default_rng(0).permutation(len(split.X))[: 2 * split.features]
    kernel = ConstantKernel(1.0) * RBF(np.full(d, 0.5 * d**0.5), (1e-2, 1e4)) + WhiteKernel(0.09)
    model = GaussianProcessRegressor(kernel, n_restarts_optimizer=2, random_state=0).fit(split.X[rows], split.y[rows])
    mean, deviation = model.predict(split.X_test, return_std=True)
    return mean, deviation**2


#: By name: the package that it needs, and what it does.
METHODS: dict[str, tuple[str, Callable[[Split], Moments]]] = {
    "ppl_sgp": ("ppl_sgp", lambda split: reweighted(split, True)),
    "ppl_sgp type-II": ("ppl_sgp", lambda split: reweighted(split, False)),
    "ppl_sgp place": ("ppl_sgp", placed),
    "ppl_sgp exact GP": ("ppl_sgp", exact_gp),
    "gpytorch SGPR": ("gpytorch", lambda split: gpytorch_sparse(split, False)),
    "gpytorch SVGP": ("gpytorch", lambda split: gpytorch_sparse(split, True)),
    "gpflow SGPR": ("gpflow", gpflow_sgpr),
    "numpyro hsgp": ("numpyro", numpyro_hsgp),
    "sklearn exact GP": ("scikit-learn", sklearn_exact),
}
