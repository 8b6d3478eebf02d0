"""Classes and counts: held-out density and calibration of `place` with a likelihood, and of other libraries.

A fifth of the rows, at most 5,000, are held out. Nothing is tuned on these sets, nor typed by hand:

  ppl_sgp place        place(key, X, y, likelihood=...), Bernoulli or NegativeBinomial; NUTS, 2 chains of 300 + 300
  linear               scikit-learn's LogisticRegressionCV and PoissonRegressor, inputs standardised
  linear, its features the same, on the features of the basis that `place` has found
  boosting             scikit-learn's HistGradientBoosting, log loss or Poisson
  sklearn GP           GaussianProcessClassifier on 1,000 rows, a lengthscale an input
  gpytorch SVGP        500 inducing points, Bernoulli; Adam, 20 epochs of 0.01 in batches of 1,024

Means of counts by the others become negative binomial, whose dispersion is fitted on a tenth of the training rows held
out. Calibration of classes is the expected error of ten bins of probability, of counts the mean distance from the
diagonal of the PIT (Czado, Gneiting & Held 2009) at 0.1 to 0.9, of 500 rows.
Methods and sets whose library is missing are left out.

    python benchmarks/likelihood_peers.py --csv FILE
    python benchmarks/likelihood_peers.py --smoke
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import numpyro
from common import print_header, print_table
from likelihood_sets import SETS
from numpyro.infer import MCMC, NUTS
from scipy.optimize import minimize_scalar
from scipy.stats import nbinom
from uci_files import append, done_before

import ppl_sgp as sgp

#: Rows that calibration of counts looks at: distribution functions of our negative binomial take 0.8 ms a row and draw.
CALIBRATED = 500
FIELDS = ("set", "method", "log_density", "calibration", "seconds")


class Missing(Exception):
    """A method does not apply to a set."""


class Predicted(NamedTuple):
    """Of each held-out row: its log density, and the distribution function below the outcome and up to it."""

    log_density: np.ndarray
    below: np.ndarray
    upto: np.ndarray


class Split:
    """Rows of one set."""

    def __init__(self, name: str, effort: float) -> None:
        rows, self.classes = SETS[name]
        X, y = rows()
        order, held = np.random.default_rng(0).permutation(len(X)), min(len(X) // 5, 5000)
        if effort < 1:
            order, held = order[:150], 50
        new, old = order[:held], order[held:]
        self.X, self.y, self.X_new, self.y_new, self.effort = X[old], y[old], X[new], y[new], effort
        centre, unit = self.X.mean(axis=0), self.X.std(axis=0)
        unit = np.where(unit > 0, unit, 1.0)
        self.Z, self.Z_new = (self.X - centre) / unit, (self.X_new - centre) / unit

    def times(self, count: int) -> int:
        return max(2, round(self.effort * count))

    @functools.cached_property
    def placed(self) -> sgp.Placed:
        likelihood = sgp.likelihoods.Bernoulli() if self.classes else sgp.likelihoods.NegativeBinomial()
        return sgp.place(jax.random.key(0), self.X, self.y, likelihood=likelihood)

    def of_probability(self, p: np.ndarray) -> Predicted:
        p, y = np.clip(p, 1e-12, 1 - 1e-12), self.y_new
        return Predicted(np.where(y > 0, np.log(p), np.log1p(-p)), p, p)

    def of_mean(self, fit: Callable[[np.ndarray, np.ndarray], Callable[[np.ndarray], np.ndarray]], Z: Any, Z_new: Any):
        tenth = len(Z) // 10
        mean = fit(Z[tenth:], self.y[tenth:])
        held, new = np.maximum(mean(Z[:tenth]), 1e-6), np.maximum(mean(Z_new), 1e-6)

        def loss(log_k: float) -> float:
            return -float(np.mean(_negative_binomial(held, np.exp(log_k)).logpmf(self.y[:tenth])))

        k = np.exp(minimize_scalar(loss, bounds=(-5, 12), method="bounded").x)
        found = _negative_binomial(new, k)
        return Predicted(found.logpmf(self.y_new), found.cdf(self.y_new - 1), found.cdf(self.y_new))


def _negative_binomial(mean: np.ndarray, k: float) -> Any:
    return nbinom(k, k / (k + mean))


def ours(split: Split) -> Predicted:
    placed, count = split.placed, split.times(300)
    mcmc = MCMC(
        NUTS(placed.model, init_strategy=placed.init_strategy()),
        num_warmup=count,
        num_samples=count,
        num_chains=2,
        chain_method="sequential",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(1), placed.statistics)
    draws = {name: values[::30] for name, values in mcmc.get_samples().items()}
    prediction = sgp.predict(placed.model, draws, placed.statistics, split.X_new)
    if split.classes:
        return split.of_probability(np.asarray(prediction.probabilities)[:, 1])
    some, y = slice(CALIBRATED), split.y_new[:CALIBRATED]
    first = sgp.predict(placed.model, draws, placed.statistics, split.X_new[some])
    below = np.where(y > 0, np.asarray(first.distribution_function(np.maximum(y - 1, 0))), 0.0)
    upto = np.asarray(first.distribution_function(y))
    return Predicted(np.asarray(prediction.log_density(split.y_new)), below, upto)


def linear(split: Split, Z: np.ndarray, Z_new: np.ndarray) -> Predicted:
    from sklearn.linear_model import LogisticRegressionCV, PoissonRegressor

    if split.classes:
        model = LogisticRegressionCV(scoring="neg_log_loss", cv=5, max_iter=2000).fit(Z, split.y)
        return split.of_probability(model.predict_proba(Z_new)[:, 1])
    return split.of_mean(lambda Z, y: PoissonRegressor(alpha=1e-3, max_iter=1000).fit(Z, y).predict, Z, Z_new)


def linear_on_features(split: Split) -> Predicted:
    features = split.placed.basis
    return linear(split, *(np.asarray(features(X))[:, 1:] for X in (split.X, split.X_new)))


def boosting(split: Split) -> Predicted:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    if split.classes:
        model = HistGradientBoostingClassifier(early_stopping=True, random_state=0).fit(split.X, split.y)
        return split.of_probability(model.predict_proba(split.X_new)[:, 1])
    regressor = HistGradientBoostingRegressor(loss="poisson", random_state=0)
    return split.of_mean(lambda Z, y: regressor.fit(Z, y).predict, split.X, split.X_new)


def sklearn_gp(split: Split) -> Predicted:
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    if not split.classes:
        raise Missing("classes only")
    d, rows = split.X.shape[1], slice(1000)
    kernel = ConstantKernel(1.0) * RBF(np.full(d, 0.5 * d**0.5))
    model = GaussianProcessClassifier(kernel, random_state=0).fit(split.Z[rows], split.y[rows])
    return split.of_probability(model.predict_proba(split.Z_new)[:, 1])


def gpytorch_svgp(split: Split) -> Predicted:
    import gpytorch
    import torch

    if not split.classes:
        raise Missing("it has no likelihood of counts")
    torch.manual_seed(0)
    X, y, X_new = (torch.tensor(array) for array in (split.Z, split.y, split.Z_new))
    d = X.shape[1]
    points = X[torch.randperm(len(X))[:500]].clone()

    class Model(gpytorch.models.ApproximateGP):
        def __init__(self) -> None:
            posterior = gpytorch.variational.CholeskyVariationalDistribution(len(points))
            super().__init__(gpytorch.variational.VariationalStrategy(self, points, posterior, True))
            self.mean = gpytorch.means.ConstantMean()
            self.covariance = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=d))
            self.covariance.base_kernel.lengthscale = 0.5 * d**0.5

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.covariance(x))

    model, likelihood = Model().double(), gpytorch.likelihoods.BernoulliLikelihood()
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, len(X))
    batches: Any = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, y), batch_size=1024, shuffle=True)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(split.times(20)):
        for batch, outcomes in batches:
            optimiser.zero_grad()
            (-bound(model(batch), outcomes)).backward()
            optimiser.step()
    model.eval()
    with torch.no_grad():
        return split.of_probability(likelihood(model(X_new)).mean.numpy())


METHODS: dict[str, Callable[[Split], Predicted]] = {
    "ppl_sgp place": ours,
    "linear": lambda split: linear(split, split.Z, split.Z_new),
    "linear, its features": linear_on_features,
    "boosting": boosting,
    "sklearn GP": sklearn_gp,
    "gpytorch SVGP": gpytorch_svgp,
}


def calibration(split: Split, found: Predicted) -> float:
    """See the head of this file."""
    if split.classes:
        bins = np.clip((10 * found.upto).astype(int), 0, 9)
        gaps = [abs(np.sum((found.upto - split.y_new)[bins == each])) for each in range(10)]
        return float(np.sum(gaps) / len(bins))
    at = np.arange(0.1, 0.95, 0.1)[:, None]
    below, upto = found.below[:CALIBRATED], found.upto[:CALIBRATED]
    return float(
        np.mean(np.abs(np.mean(np.clip((at - below) / np.maximum(upto - below, 1e-12), 0, 1), axis=1) - at[:, 0]))
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="150 rows of one set")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--csv", type=Path)
    args = parser.parse_args()
    if args.smoke:
        args.sets, args.csv = ["affairs"], None
    numpyro.enable_x64()
    print_header("Classes and counts", {k: v for k, v in vars(args).items() if k != "smoke"})
    rows = done_before(args.csv, FIELDS[:2])
    done = {(row["set"], row["method"]) for row in rows}
    for name in args.sets:
        try:
            split = Split(name, 0.05 if args.smoke else 1.0)
        except ImportError as reason:
            print(f"{name}: left out ({reason})", flush=True)
            continue
        for method in args.methods:
            if (name, method) in done:
                continue
            started = time.perf_counter()
            try:
                found = METHODS[method](split)
            except (Missing, ImportError) as reason:
                print(f"{name}, {method}: left out ({reason})", flush=True)
                continue
            taken = time.perf_counter() - started
            values = (name, method, float(np.mean(found.log_density)), calibration(split, found), taken)
            rows.append(dict(zip(FIELDS, values, strict=True)))
            append(args.csv, rows[-1])
            print(rows[-1], flush=True)
    print_table(FIELDS, [[row[name] for name in FIELDS] for row in rows])


if __name__ == "__main__":
    main()
