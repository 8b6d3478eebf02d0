"""Lengthscales sampled (type-I) over adapted random features, over frozen ones, and over the exact GP of some rows.

Split 0 of UCI sets, training rows, standardised. The reference is NUTS on the exact GP of ``--rows`` rows; where it
knows a lengthscale (standard deviation of the logarithm below 0.35) medians are compared. Targets: R-hat below 1.01,
and medians within 20%. The message of `adapt_features` is printed for each set, since too few features settle on
lengthscales that are too long.

    python benchmarks/adaptive_features.py --data FOLDER --sets concrete,wine,elevators,kin40k

Without a folder, generated rows, as a smoke test.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpyro
from common import print_conclusion, print_header, print_table
from numpyro.diagnostics import split_gelman_rubin
from numpyro.infer import MCMC, NUTS
from uci_files import read

import ppl_sgp as sgp
from ppl_sgp.placement.exact_on_subset import OnSubset, Subset, fit_exact

KNOWN, MOST_RATIO, MOST_R_HAT = 0.35, 1.2, 1.01


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with a folder for each set")
    parser.add_argument("--sets", default="concrete,wine", help="names, separated by commas")
    parser.add_argument("--features", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=1500, help="rows of the exact GP")
    parser.add_argument("--warmup", type=int, default=50, help="of a chain, for the step size alone")
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument("--exact-draws", type=int, default=150, help="draws of the exact GP, a chain")
    parser.add_argument("--without-frozen", action="store_true", help="not the features that `from_data` draws")
    parser.add_argument("--chains", type=int, default=2)
    return parser.parse_args()


def standardised(folder: Path | None, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Training rows of split 0, in units of their standard deviations."""
    X, y, test = read(folder, name)
    X, y = X[~test[:, 0]], y[~test[:, 0]]
    X = X[:, X.std(axis=0) > 1e-12]
    return (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()


def sampled(model: Any, data: Any, fit: sgp.EvidenceFit, warmup: int, draws: int, chains: int) -> dict[str, Any]:
    """Medians and spreads of log lengthscales, the worst R-hat of all sites, and seconds.

    From the type-II point, with the curvature there as the mass, which is kept: few steps a draw.
    """
    started = time.perf_counter()
    mass = fit.inverse_mass_matrix(model, data)
    mcmc = MCMC(
        NUTS(
            model,
            init_strategy=fit.init_strategy(),
            dense_mass=True,
            inverse_mass_matrix=mass,
            adapt_mass_matrix=False,
        ),
        num_warmup=warmup,
        num_samples=draws,
        num_chains=chains,
        chain_method="sequential",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(0), data)
    by_chain = {name: np.asarray(values) for name, values in mcmc.get_samples(group_by_chain=True).items()}
    seconds = time.perf_counter() - started
    logs = np.log(by_chain["lengthscale"]).reshape(chains * draws, -1)
    hyper = [by_chain[name] for name in ("lengthscale", "amplitude", "noise_scale")]
    return {
        "median": np.exp(np.median(logs, axis=0)),
        "sd": logs.std(axis=0),
        "noise": float(np.median(by_chain["noise_scale"])),
        "r_hat": max(float(np.max(split_gelman_rubin(values))) for values in hyper),
        "seconds": seconds,
    }


def one_set(name: str, args: argparse.Namespace) -> tuple[list[list[Any]], str, dict[str, bool]]:
    """A row of the table for each way, the message of the rounds, and the outcomes of the targets."""
    X, y = standardised(args.data, name)
    key, model = jax.random.key(0), sgp.models.fourier_gp()
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the message is printed
        adapted = sgp.adapt_features(key, X, y, model, num_features=args.features)
    adapting = time.perf_counter() - started
    run = (args.warmup, args.draws, args.chains)
    ways = {"adapted": (adapting, sampled(model, adapted.statistics, adapted.fit, *run))}
    if not args.without_frozen:
        started = time.perf_counter()
        frozen = sgp.sufficient_statistics(sgp.FourierBasis.from_data(key, X, args.features), X, y)
        fit = sgp.fit_evidence(model, frozen)
        fitting = time.perf_counter() - started
        ways["frozen"] = (fitting, sampled(model, frozen, fit, *run))
    rows = np.random.default_rng(0).permutation(len(y))[: args.rows]
    subset = Subset(sgp.rows(X[rows], y[rows]), adapted.statistics)
    short = (args.warmup, args.exact_draws, args.chains)
    started = time.perf_counter()
    fit = fit_exact(model, subset)
    fitting = time.perf_counter() - started
    exact = sampled(OnSubset(model), subset, fit, *short)
    ways["exact GP"] = (fitting, exact)
    known = exact["sd"] < KNOWN
    table = []
    for way, (before, found) in ways.items():
        ratio = found["median"][known] / exact["median"][known]
        worst = float(np.exp(np.max(np.abs(np.log(ratio))))) if known.any() else 1.0
        typical = float(np.exp(np.mean(np.log(ratio)))) if known.any() else 1.0
        table.append(
            [name, way, *X.shape, int(known.sum()), typical, worst]
            + [found[column] for column in ("noise", "r_hat")]
            + [before, found["seconds"]]
        )
    outcomes = {
        f"{name}: R-hat of the adapted basis below {MOST_R_HAT}": table[0][8] < MOST_R_HAT,
        f"{name}: medians of the adapted basis within 20% of the exact GP's": table[0][6] < MOST_RATIO,
    }
    return table, f"{name}: {adapted.message}", outcomes


def main() -> None:
    args = arguments()
    numpyro.enable_x64()
    if args.data is None:
        args.sets, args.features, args.rows = "generated", 60, 40
        args.warmup = args.draws = args.exact_draws = 20
    print_header("Adapted random features", vars(args))
    table, messages, outcomes = [], [], {}
    for name in args.sets.split(","):
        rows, message, reached = one_set(name, args)
        table += rows
        messages.append(message)
        outcomes |= reached
    columns = [
        "set",
        "way",
        "n",
        "d",
        "known",
        "typical ratio",
        "worst ratio",
        "noise",
        "R-hat",
        "before [s]",
        "NUTS [s]",
    ]
    print_table(columns, table, "ratio: of medians of lengthscales to the exact GP's, where it knows them")
    print("\n".join(messages))
    print_conclusion(outcomes, args.data is None)


if __name__ == "__main__":
    main()
