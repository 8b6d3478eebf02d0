"""Noise that varies with x, by a compressed likelihood of two predictors, against NUTS on the weights of both.

``y = sin 4x + exp(−1.5 + 1.2 sin 3x) ε``, ten Laplace functions and a level for the mean and for the log noise, at
fixed priors. The claim: from 400 rows on, means are within 0.1 posterior standard deviations of those of NUTS with the
exact likelihood, and standard deviations within 10%.

    python benchmarks/heteroscedastic.py            # some minutes on 2 cores
    python benchmarks/heteroscedastic.py --smoke
"""

from __future__ import annotations

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from common import print_conclusion, print_header, print_table
from numpyro.infer import MCMC, NUTS

import ppl_sgp as sgp

GRID = np.linspace(-0.95, 0.95, 9)[:, None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that the script runs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rows", type=int, nargs="+", default=[100, 400])
    parser.add_argument("--functions", type=int, default=10)
    parser.add_argument("--draws", type=int, default=2000)
    args = parser.parse_args()
    if args.smoke:
        args.rows, args.functions, args.draws = [60], 4, 20
    numpyro.enable_x64()
    print_header("Noise that varies with x", {k: v for k, v in vars(args).items() if k != "smoke"})
    table, outcomes = [], {}
    for n in args.rows:
        rng = np.random.default_rng(args.seed)
        X = rng.uniform(-1, 1, (n, 1))
        y = np.sin(4 * X[:, 0]) + np.exp(-1.5 + 1.2 * np.sin(3 * X[:, 0])) * rng.standard_normal(n)
        basis = sgp.stack(sgp.LaplaceBasis.from_data(X, args.functions, 2.0), sgp.ConstantBasis(1))
        each = basis.weight_prior((sgp.SquaredExponential(0.6), sgp.DiagonalPrior(2.0)))
        prior, m, Phi = sgp.stack(each, each), basis.num_features, basis.host_features(GRID)
        start = time.perf_counter()
        stats = sgp.compress_likelihood(basis, X, y, sgp.likelihoods.HeteroscedasticNormal(), prior)
        seconds = time.perf_counter() - start
        posterior = sgp.weight_posterior(stats, prior)
        covariance = np.asarray(posterior.covariance_matrix)
        training, scale = jnp.asarray(basis.host_features(X)), jnp.asarray(each.scale)

        def exact(y=y, training=training, scale=scale, m=m):
            z = numpyro.sample("z", dist.Normal(0, 1).expand([2, m]).to_event(2))
            eta = training @ (z * scale).T
            numpyro.sample("y", dist.Normal(eta[:, 0], jnp.exp(eta[:, 1])), obs=y)

        start = time.perf_counter()
        mcmc = MCMC(NUTS(exact), num_warmup=args.draws // 4, num_samples=args.draws, progress_bar=False)
        mcmc.run(jax.random.key(0))
        of_nuts = time.perf_counter() - start
        draws = np.einsum("nm,skm->skn", Phi, np.asarray(mcmc.get_samples()["z"] * scale))
        worst = []
        for k, name in enumerate(("mean", "log noise")):
            block = slice(k * m, (k + 1) * m)
            mean = Phi @ np.asarray(posterior.mean)[block]
            sd = np.sqrt(np.einsum("ij,jk,ik->i", Phi, covariance[block, block], Phi))
            true, true_sd = draws[:, k].mean(axis=0), draws[:, k].std(axis=0)
            off, ratio = np.abs((mean - true) / true_sd).max(), sd / true_sd
            worst.append((off, np.abs(ratio - 1).max()))
            table.append([n, name, off, ratio.min(), ratio.max(), seconds, of_nuts])
        if n >= 400:
            outcomes[f"{n} rows: means within 0.1 sd, standard deviations within 10%"] = all(
                a < 0.1 and b < 0.1 for a, b in worst
            )
    columns = ["rows", "predictor", "mean off, in sd", "sd ratio, least", "most", "seconds", "NUTS"]
    print_table(columns, table, "At nine inputs, against NUTS with the exact likelihood.")
    print_conclusion(outcomes, args.smoke)


if __name__ == "__main__":
    main()
