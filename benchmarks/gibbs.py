"""Effective draws of Gibbs samplers for classes: what a sweep is worth, and what it costs in multiply-adds.

Bernoulli rows of a function of one input, lengthscale and amplitude sampled. Exact Gibbs by Pólya-Gamma variables, NUTS
on the compressed likelihood, and NUTS on explicit weights have one posterior. Sparse latent updates (Evans 2022,
section 5.3.5) have a nugget of the given size besides, n, n/4 or m of whose values a sweep updates. Nothing is timed:
effective draws a sweep are those of the slower of the two hyperparameters, and costs are counted, by the leading terms

    Pólya-Gamma   2 n m² + (g + 4) m³        compressed   g m³
    latent        ñ m (m + b) + (g + 4) m³   explicit     4 g n m

with g gradients a sweep, blocks of b = max(32, m), and one pass over the rows of 10 n m² for compression, left out.

    python benchmarks/gibbs.py
    python benchmarks/gibbs.py --smoke
"""

from __future__ import annotations

import argparse
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from common import print_header, print_table
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS

import ppl_sgp as sgp

LIKELIHOOD = sgp.likelihoods.Bernoulli()


def hyperparameters() -> Any:
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(-1.5, 0.7))
    return sgp.Matern52(lengthscale, numpyro.sample("amplitude", dist.LogNormal(0.5, 0.7)))


def marginal(nugget: float | None = None) -> Any:
    def model(statistics):
        sgp.observe("y", statistics, statistics.basis.weight_prior(hyperparameters()), nugget)

    return model


def explicit(rows: tuple[Any, Any, Any]) -> None:
    basis, Phi, y = rows
    eta = sgp.latent("f", basis, basis.weight_prior(hyperparameters()))(features=Phi)
    numpyro.sample("y", dist.BernoulliLogits(eta), obs=y)


def simulated(n: int, m: int, seed: int) -> tuple[Any, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 1))
    y = rng.uniform(size=n) < 1 / (1 + np.exp(-2 * np.sin(5 * X[:, 0])))
    return sgp.LaplaceBasis.from_data(X, m), X, y.astype(np.float64)


def measured(kernel: Any, argument: Any, field: str, args: argparse.Namespace) -> tuple[float, float]:
    """Effective draws a sweep, of the slower hyperparameter, and gradients a sweep."""
    mcmc = MCMC(kernel, num_warmup=args.warmup, num_samples=args.draws, progress_bar=False)
    mcmc.run(jax.random.key(args.seed), argument, extra_fields=(field,))
    draws = mcmc.get_samples(group_by_chain=True)
    effective = min(float(effective_sample_size(np.log(draws[name]))) for name in ("lengthscale", "amplitude"))
    return min(effective, args.draws) / args.draws, float(jnp.mean(mcmc.get_extra_fields()[field]))


def lines(n: int, args: argparse.Namespace) -> list[list[str]]:
    m = args.features
    basis, X, y = simulated(n, m, args.seed)
    result = []

    def add(name: str, found: tuple[float, float], cost: Any) -> None:
        effective, gradients = found
        work = cost(gradients) / effective
        result.append([f"{n:,}", name, f"{effective:.3f}", f"{gradients:.1f}", f"{work / 1e6:.2f}"])

    def gibbs(rows: Any, nugget: float | None = None) -> tuple[float, float]:
        return measured(sgp.AugmentedGibbs(NUTS(marginal(nugget))), rows, "inner.num_steps", args)

    add("Pólya-Gamma", gibbs(sgp.augmented_rows(basis, X, y, LIKELIHOOD)), lambda g: 2 * n * m**2 + (g + 4) * m**3)
    reference = basis.weight_prior(sgp.Matern52(0.3, 1.5))
    statistics = sgp.compress_likelihood(basis, X, y, LIKELIHOOD, prior=reference)
    add("compressed", measured(NUTS(marginal()), statistics, "num_steps", args), lambda g: g * m**3)
    found = measured(NUTS(explicit), (basis, jnp.asarray(basis.host_features(X)), y), "num_steps", args)
    add("explicit weights", found, lambda g: 4 * g * n * m)
    block = max(32, m)
    for nugget in args.nuggets:
        for count in sorted({n, n // 4, m}, reverse=True):
            rows = sgp.latent_rows(basis, X, y, LIKELIHOOD, num_updates=count)
            cost = lambda g, count=count: count * m * (m + block) + (g + 4) * m**3  # noqa: E731
            add(f"latent, nugget {nugget}, {count:,} updated", gibbs(rows, nugget), cost)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[200, 1000, 5000])
    parser.add_argument("--features", type=int, default=20)
    parser.add_argument("--nuggets", type=float, nargs="+", default=[1.0, 0.3])
    parser.add_argument("--warmup", type=int, default=300)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    args = parser.parse_args()
    if args.smoke:
        args.rows, args.nuggets, args.warmup, args.draws = [100], [1.0], 50, 100
    numpyro.enable_x64()
    print_header("Effective draws of Gibbs samplers for classes", vars(args))
    for n in args.rows:
        titles = ["n", "sampler", "effective draws a sweep", "gradients a sweep", "10⁶ multiply-adds an effective draw"]
        print_table(titles, lines(n, args))


if __name__ == "__main__":
    main()
