"""Where a factorised distribution over discrete weights is too certain: two correlated features, by enumeration.

100 rows, two features of correlation ρ over them, noise of scale 3, a standard normal prior on 15 levels. Standard
deviation of the first weight, and nats that the bound lies below the log evidence, both from all 225 configurations;
for one component, for mixtures, and from 20,000 Gibbs sweeps.

    python benchmarks/direct_mean_field.py
"""

from __future__ import annotations

import argparse
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from common import print_header, print_table
from numpyro.infer import MCMC
from scipy.special import logsumexp

import ppl_sgp as sgp

ROWS, NOISE, CORRELATIONS, MIXTURES = 100, 3.0, (0.0, 0.5, 0.9, 0.99), (1, 5)


def correlated(rho: float) -> tuple[np.ndarray, np.ndarray]:
    """Features with just this correlation, and outputs."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(ROWS, 2))
    Z = 10 * np.linalg.qr(Z - Z.mean(axis=0))[0]
    Phi = np.stack([Z[:, 0], rho * Z[:, 0] + (1 - rho**2) ** 0.5 * Z[:, 1]], axis=1)
    return Phi, Phi @ [1.0, -0.5] + NOISE * rng.normal(size=ROWS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweeps", type=int, default=20_000)
    parser.add_argument("--smoke", action="store_true", help="few sweeps")
    args = parser.parse_args()
    numpyro.enable_x64()
    print_header("Mean field and correlated weights", {"sweeps": args.sweeps, "mixtures": MIXTURES})
    prior = sgp.DiscreteRelaxation(dist.Normal(0.0, 1.0))
    configurations = jnp.asarray(list(itertools.product(np.asarray(prior.levels), repeat=2)))
    table = []
    for rho in CORRELATIONS:
        Phi, y = correlated(rho)
        stats = sgp.sufficient_statistics(sgp.LinearBasis(2, bias=False), Phi, y)
        likelihood = sgp.CompressedNormal(stats, configurations, NOISE).log_prob(stats.projection)
        joint = np.asarray(likelihood + prior.log_prob(configurations).sum(axis=1))
        evidence = logsumexp(joint)
        probs, w = np.exp(joint - evidence), np.asarray(configurations[:, 0])
        row = [rho, f"{np.sqrt(probs @ w**2 - (probs @ w) ** 2):.3f}"]
        for count in MIXTURES:
            result = sgp.direct.fit(stats, prior, noise_scale=NOISE, num_mixtures=count)
            row += [f"{result.variance[0] ** 0.5:.3f}", f"{evidence - result.elbo:.2f}"]
        kernel = sgp.models.discrete_weights(prior, NOISE).gibbs()
        sweeps = 200 if args.smoke else args.sweeps
        mcmc = MCMC(kernel, num_warmup=100, num_samples=sweeps, progress_bar=False)
        mcmc.run(jax.random.key(0), stats)
        table.append([*row, f"{np.std(mcmc.get_samples()['weights'][:, 0]):.3f}"])
    heading = ["ρ", "exact sd"]
    for count in MIXTURES:
        heading += [f"sd, {count} component{'s' * (count > 1)}", "nats below"]
    print_table([*heading, "sd, Gibbs"], table, "")


if __name__ == "__main__":
    main()
