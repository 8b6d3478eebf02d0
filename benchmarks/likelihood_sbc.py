"""Simulation-based calibration of compressed likelihoods: outcomes of the exact one, at 500 truths from the prior.

Each truth makes a function, and that classes or counts at 1,000 inputs, which are compressed around the prior of
their own type-II maximum and sampled by NUTS, without correction by importance weights. If the expansion is good on
the average of the prior, ranks of the truths are uniform (Talts et al. 2018). Of the two sites the lesser p-value,
times two, is to be at least 0.01.

    OPENBLAS_NUM_THREADS=1 python benchmarks/likelihood_sbc.py
    python benchmarks/likelihood_sbc.py --smoke
"""

from __future__ import annotations

import argparse
from typing import Any

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from common import duration, print_conclusion, print_header, print_table, timed, verdict

import ppl_sgp as sgp

LIKELIHOODS = {"bernoulli": sgp.likelihoods.Bernoulli(), "poisson": sgp.likelihoods.Poisson()}


def prior_at(basis: Any, lengthscale: Any, amplitude: Any) -> Any:
    return basis.weight_prior((sgp.Matern52(lengthscale, amplitude), sgp.DiagonalPrior(1.0)))


def model(statistics: sgp.CompressedLikelihood) -> None:
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(np.log(0.4), 0.4))
    amplitude = numpyro.sample("amplitude", dist.LogNormal(0.0, 0.5))
    sgp.observe("y", statistics, prior_at(statistics.basis, lengthscale, amplitude))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that the script runs")
    parser.add_argument("--likelihoods", nargs="+", default=list(LIKELIHOODS), choices=list(LIKELIHOODS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--features", type=int, default=20)
    parser.add_argument("--simulations", type=int, default=500)
    parser.add_argument("--warmup", type=int, default=300)
    parser.add_argument("--draws", type=int, default=99)
    parser.add_argument("--thin", type=int, default=4)
    args = parser.parse_args()
    if args.smoke:
        args.rows, args.features, args.simulations, args.warmup, args.draws, args.thin = 100, 6, 20, 20, 9, 1
    numpyro.enable_x64()
    print_header("Calibration of compressed likelihoods", {k: v for k, v in vars(args).items() if k != "smoke"})
    X = np.random.default_rng(args.seed).uniform(-1, 1, (args.rows, 1))
    basis = sgp.stack(sgp.LaplaceBasis(args.features, centre=[0.0], boundary=[2.0]), sgp.ConstantBasis(1))
    table, outcomes = [], {}
    for name in args.likelihoods:
        likelihood, reference = LIKELIHOODS[name], prior_at(basis, 0.4, 1.0)

        def compress(y: Any, likelihood: Any = likelihood, reference: Any = reference) -> sgp.CompressedLikelihood:
            return sgp.compress_likelihood(basis, X, y, likelihood, reference, model=model)

        statistics = compress(X[:, 0] > 0)
        key = jax.random.key(args.seed)
        settings = {"num_warmup": args.warmup, "num_draws": args.draws, "thinning": args.thin}
        seconds, ranks = timed(
            lambda statistics=statistics, compress=compress, key=key, settings=settings: sgp.likelihood_sbc(
                model, statistics, X, key, args.simulations, compress=compress, **settings
            )
        )
        p_values = {site: float(p) for site, p in sgp.rank_uniformity(ranks).items()}
        passed = min(1.0, len(p_values) * min(p_values.values())) >= 0.01
        outcomes[f"{name}: calibrated at 1%"] = passed
        shown = ", ".join(f"{site} {p:.3f}" for site, p in p_values.items())
        table.append([name, duration(seconds), int(ranks["diverging"].sum()), shown, verdict(passed, args.smoke)])
        print(table[-1], flush=True)
    columns = ["likelihood", "time", "divergences", "p-values", "as wanted"]
    print_table(columns, table, f"{args.simulations} truths, {args.rows:,} rows.")
    print_conclusion(outcomes, args.smoke)


if __name__ == "__main__":
    main()
