"""Relevance vectors with their precisions sampled: three samplers of one posterior, effective draws a second.

Concrete, split 0; inputs and y standardised on the training rows; m centres by k-means, a squared exponential of
lengthscale 0.7√d. NUTS over precisions (O(m³) a gradient), NUTS over whitened weights and precisions (O(m²)), and Gibbs
(O(m³) a sweep), under a Gamma and a horseshoe hyper-prior. Effective draws are of the noise, and the least and the
median over the log scales of the weights; seconds are those of the run with its compilation. Which of several similar
centres carries a weight is a matter of many modes: look at R-hat as well.

    OPENBLAS_NUM_THREADS=1 python benchmarks/rvm_type1.py --data DIRECTORY
    python benchmarks/rvm_type1.py --smoke
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpyro
from common import print_header, print_table
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.infer import MCMC, NUTS
from uci_files import read

import ppl_sgp as sgp

HYPER_PRIORS = {"Gamma": sgp.models.GammaPrecision(), "horseshoe": sgp.models.Horseshoe()}
#: Draws, and as many to warm up: a Gibbs sweep is cheaper than a NUTS transition, and a worse one.
DRAWS = {"marginal": 1, "whitened": 1, "Gibbs": 10}


def statistics_of(args: argparse.Namespace) -> tuple[sgp.SufficientStatistics, np.ndarray, np.ndarray]:
    X, y, masks = read(args.data, args.set)
    test = masks[:, 0]
    spread = X[~test].std(axis=0)
    X = (X - X[~test].mean(axis=0)) / np.where(spread > 0, spread, 1)
    y = (y - y[~test].mean()) / y[~test].std()
    kernel = sgp.SquaredExponential(0.7 * X.shape[1] ** 0.5)
    basis = sgp.CentredBasis.from_data(jax.random.key(args.seed), X[~test], args.centres - 1, kernel)
    return sgp.sufficient_statistics(basis, X[~test], y[~test]), X[test], y[test]


def log_scales(samples: dict[str, Any]) -> np.ndarray:
    if "precision" in samples:
        return -0.5 * np.log(samples["precision"])
    return np.log(samples["local_scale"])


def run(way: str, hyper_prior: Any, stats: sgp.SufficientStatistics, args: argparse.Namespace) -> tuple[Any, float]:
    model = sgp.models.relevance_vector_machine(hyper_prior, weights="whitened" if way == "whitened" else "marginal")
    mcmc = MCMC(
        model.gibbs() if way == "Gibbs" else NUTS(model),
        num_warmup=args.draws * DRAWS[way],
        num_samples=args.draws * DRAWS[way],
        num_chains=args.chains,
        chain_method="sequential",
        progress_bar=False,
    )
    fields = () if way == "Gibbs" else ("diverging", "num_steps")
    started = time.perf_counter()
    mcmc.run(jax.random.key(args.seed), model.rotate(stats) if way == "whitened" else stats, extra_fields=fields)
    jax.block_until_ready(mcmc.get_samples())
    return mcmc, time.perf_counter() - started


def report(name: str, way: str, mcmc: Any, seconds: float, data: Any, args: argparse.Namespace) -> list[Any]:
    stats, X, y = data
    grouped = {k: np.asarray(v) for k, v in mcmc.get_samples(group_by_chain=True).items()}
    scales = log_scales(grouped)
    each = np.minimum(effective_sample_size(scales), scales[..., 0].size)
    noise = float(effective_sample_size(np.log(grouped["noise_scale"])))
    thinned = {k: v[:: DRAWS[way]] for k, v in mcmc.get_samples().items()}
    prediction = sgp.predict(sgp.models.relevance_vector_machine(HYPER_PRIORS[name]), thinned, stats, X)
    fields = mcmc.get_extra_fields()
    return [
        name,
        way,
        f"{seconds:.0f} s",
        len(mcmc.get_samples()["noise_scale"]),
        "" if way == "Gibbs" else f"{np.mean(fields['num_steps']):.0f}",
        "" if way == "Gibbs" else int(np.sum(fields["diverging"])),
        f"{noise / seconds:.3g}",
        f"{each.min() / seconds:.3g}",
        f"{np.median(each) / seconds:.3g}",
        f"{float(np.max(split_gelman_rubin(scales))):.2f}",
        float(np.sqrt(np.mean((prediction.mean - y) ** 2))),
        float(np.mean(prediction.log_density(y))),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="generated rows, a few centres")
    parser.add_argument("--data", type=Path, help="folder of the data sets, as for uci_type1.py")
    parser.add_argument("--set", default="concrete")
    parser.add_argument("--centres", type=int, default=300, help="m, the constant included")
    parser.add_argument("--draws", type=int, default=200, help="of NUTS; ten times as many of Gibbs")
    parser.add_argument("--chains", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.smoke:
        args.data, args.set, args.centres, args.draws = None, "yacht", 8, 20
    elif args.data is None:
        parser.error("--data is needed, except with --smoke")
    numpyro.enable_x64()
    print_header("Samplers of relevance vectors", {k: v for k, v in vars(args).items() if k not in ("smoke", "data")})
    data = statistics_of(args)
    rows = []
    for name, hyper_prior in HYPER_PRIORS.items():
        for way in DRAWS:
            mcmc, seconds = run(way, hyper_prior, data[0], args)
            rows.append(report(name, way, mcmc, seconds, data, args))
            print(rows[-1], flush=True)
            jax.clear_caches()
    columns = ["hyper-prior", "way", "time", "draws", "steps", "divergent", "ESS/s, noise", "ESS/s, least", "median"]
    print_table([*columns, "worst R-hat", "RMSE", "log density"], rows, "In units of the sd of y.")


if __name__ == "__main__":
    main()
