"""Where a factorised distribution over discrete weights is too certain: correlated features, by enumeration.

100 rows, two features of correlation ρ over them, noise of scale 3, a standard normal prior on 15 levels. Standard
deviation of the first weight, and nats that the bound lies below the log evidence, both from all 225 configurations;
for one component, for mixtures, and from 20,000 Gibbs sweeps.

Then which of ten nearly equal inputs, of three true ones, enter: 60 rows of a common factor and a fifth of it of each
input's own, weights 0 or 1 with probability 0.3 of 1, noise 1. Inclusion from all 1,024 configurations, from DIRECT,
and from Gibbs chains of 2,000 sweeps, each from a draw of the prior.

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


def inclusion(sweeps: int) -> list[list[str]]:
    """Probabilities of weights of one, by each way."""
    rng = np.random.default_rng(0)
    own, common = rng.normal(size=(60, 10)), rng.normal(size=(60, 1))
    Phi = common + 0.2 * own
    y = Phi[:, :3].sum(axis=1) + rng.normal(size=60)
    stats = sgp.sufficient_statistics(sgp.LinearBasis(10, bias=False), Phi, y)
    prior = sgp.DiscreteRelaxation.from_logits([0.0, 1.0], np.log([0.7, 0.3]))
    weights = np.array(list(itertools.product([0.0, 1.0], repeat=10)))
    joint = -0.5 * np.sum((y - weights @ Phi.T) ** 2, axis=1) + weights.sum(axis=1) * np.log(3 / 7)
    ways = {"exact": np.exp(joint - logsumexp(joint)) @ weights}
    for count in MIXTURES:
        ways[f"{count} component{'s' * (count > 1)}"] = sgp.direct.fit(
            stats, prior, noise_scale=1.0, num_mixtures=count
        ).mean
    mcmc = MCMC(
        sgp.models.discrete_weights(prior, 1.0).gibbs(),
        num_warmup=100, num_samples=sweeps, num_chains=4, chain_method="sequential", progress_bar=False,
    )  # fmt: skip
    mcmc.run(jax.random.key(0), stats)
    for number, draws in enumerate(np.asarray(mcmc.get_samples(group_by_chain=True)["weights"])):
        ways[f"Gibbs, chain {number + 1}"] = draws.mean(axis=0)
    return [[way, *(f"{value:.3f}" for value in values)] for way, values in ways.items()]


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
    print_table(["inclusion of", *map(str, range(1, 11))], inclusion(200 if args.smoke else 2000), "")


if __name__ == "__main__":
    main()
