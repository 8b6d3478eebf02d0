"""Simulation-based calibration of the ready models: 500 data sets of a million rows each, none of them ever made.

`sgp.simulation_based_calibration` draws hyperparameters from the prior, lets the observed site draw what n rows
compress to (of exact GPs and inducing points, the rows), samples the posterior by NUTS or Gibbs, and ranks the true
values among thinned draws. If evidence, gradients and draws of the site are right, ranks are uniform (Talts et al.
2018). The last model claims 0.95 of the noise that its data have, and must fail. Of sites with several entries the
least p-value is multiplied by their number.

    OPENBLAS_NUM_THREADS=1 python benchmarks/sbc.py
    python benchmarks/sbc.py --smoke
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

NOISE = dist.LogNormal(np.log(0.3), 0.5)
SMOOTH = {"lengthscale": dist.LogNormal(np.log(0.3), 0.4), "amplitude": dist.LogNormal(0.0, 0.5), "noise_scale": NOISE}
SCALES = dist.LogNormal(0.0, 0.5)


def understated(statistics: Any) -> None:
    """`fourier_gp` of data with 1/0.95 of the noise that it says."""
    values = {name: numpyro.sample(name, prior) for name, prior in SMOOTH.items()}
    kernel = sgp.Matern52(values["lengthscale"], values["amplitude"])
    sgp.observe("y", statistics, statistics.basis.weight_prior(kernel), values["noise_scale"] / 0.95)


def statistics_of(basis: Any, n: int, seed: int) -> sgp.SufficientStatistics:
    """n uniform inputs, in chunks. The outputs do not matter: every simulation draws its own."""
    rng = np.random.default_rng(seed)
    sizes = [min(20_000, n - start) for start in range(0, n, 20_000)]
    return sgp.sufficient_statistics(basis, ((rng.uniform(size=(k, 1)), rng.standard_normal(k)) for k in sizes))


def rank_of(data: Any) -> int:
    """What an evaluation grows with: the rank of statistics, or the number of rows that are kept."""
    return data.num_rows if isinstance(data, sgp.Rows) else int(data.compressed.rank)


def studies(args: argparse.Namespace) -> dict[str, tuple[Any, Any, dict[str, Any]]]:
    """By name: the model, its statistics, and a kernel other than NUTS or another model that data come from."""
    inputs = np.linspace(0, 1, 1001)[:, None]
    fourier = sgp.FourierBasis.from_data(jax.random.key(args.seed), inputs, args.features, sgp.Matern52)
    laplace = sgp.LaplaceBasis.from_data(inputs, args.features, 1.5)
    centred = sgp.CentredBasis(np.linspace(0, 1, 8)[:, None], sgp.Matern32(0.2))
    few = sgp.FourierBasis.from_data(jax.random.key(args.seed), inputs, 8, sgp.Matern52)
    stats = statistics_of(fourier, args.rows, args.seed)
    small = statistics_of(few, args.rows, args.seed)
    rotated = small.rotate()
    machine = sgp.models.relevance_vector_machine(sgp.models.GammaPrecision(3.0, 1.0), noise_scale=NOISE)
    of_centres = statistics_of(centred, args.rows, args.seed)
    eight = sgp.LaplaceBasis.from_data(inputs, 8, 1.5)
    # Noise that leaves several levels possible.
    discrete = sgp.models.discrete_weights(
        sgp.DiscreteRelaxation(dist.Normal(0.0, 1.0), num_levels=7),
        noise_scale=dist.LogNormal(np.log(0.5 * args.rows**0.5), 0.5),
    )
    fourier_gp = sgp.models.fourier_gp(sgp.Matern52, **SMOOTH)

    def reweighted(reflections: int = 0) -> Any:
        return sgp.models.reweighted_basis(reflections, scale=SCALES.expand([8]).to_event(1), noise_scale=NOISE)

    rng = np.random.default_rng(args.seed)
    few_rows = sgp.rows(rng.uniform(size=(args.exact_rows, 1)), rng.standard_normal(args.exact_rows))
    points = np.linspace(0, 1, 5)[:, None]
    spectrum = sgp.models.free_spectrum_gp(scale=SCALES.expand([4]).to_event(1), noise_scale=NOISE)
    return {
        "fourier_gp": (fourier_gp, stats, {}),
        "basis_gp": (sgp.models.basis_gp(sgp.Matern52, **SMOOTH), statistics_of(laplace, args.rows, args.seed), {}),
        "reweighted_basis": (reweighted(), small, {}),
        "reweighted_basis, rotated": (reweighted(), rotated, {}),
        "reweighted_basis, one reflection": (reweighted(1), small.rotate(orthonormal=True), {}),
        "free_spectrum_gp": (spectrum, small, {}),
        "relevance_vector_machine": (machine, of_centres, {}),
        "relevance_vector_machine, Gibbs": (machine, of_centres, {"kernel": machine.gibbs}),
        "discrete_weights, Gibbs": (discrete, statistics_of(eight, args.rows, args.seed), {"kernel": discrete.gibbs}),
        "exact_gp": (sgp.models.exact_gp(sgp.Matern52, **SMOOTH), few_rows, {}),
        "inducing_gp, FITC": (sgp.models.inducing_gp(points, sgp.Matern52, method="fitc", **SMOOTH), few_rows, {}),
        "noise understated": (fourier_gp, stats, {"generator": understated}),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that the script runs")
    parser.add_argument("--models", nargs="+", help="names of the table; default all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=30)
    parser.add_argument("--exact-rows", type=int, default=50, help="rows of GPs that keep them")
    parser.add_argument("--simulations", type=int, default=500)
    parser.add_argument("--warmup", type=int, default=300)
    parser.add_argument("--draws", type=int, default=99)
    parser.add_argument("--thin", type=int, default=6)
    args = parser.parse_args()
    if args.smoke:
        args.rows, args.features, args.simulations, args.warmup, args.draws, args.thin = 40_000, 8, 20, 50, 9, 2
        args.exact_rows = 12
    numpyro.enable_x64()
    settings = {name: value for name, value in vars(args).items() if name != "smoke"}
    print_header("Simulation-based calibration of the ready models", settings)
    table, outcomes = [], {}
    known = studies(args)
    if unknown := set(args.models or ()) - set(known):
        parser.error(f"no model {sorted(unknown)}; there are {list(known)}")
    for name in args.models or known:
        model, statistics, other = known[name]
        seconds, ranks = timed(
            lambda model=model, statistics=statistics, other=other: sgp.simulation_based_calibration(
                model,
                statistics,
                jax.random.key(args.seed + 1),
                args.simulations,
                **other,
                num_warmup=args.warmup,
                num_draws=args.draws,
                thinning=args.thin,
            )
        )
        p_values = {site: np.ravel(p.values) for site, p in sgp.rank_uniformity(ranks).items()}
        # Bonferroni: the least of k independent p-values is below 0.01/k once in a hundred times.
        least = {site: min(1.0, float(p.min() * p.size)) for site, p in p_values.items()}
        wrong = "generator" in other
        passed = (least["noise_scale"] < 0.01) if wrong else (min(least.values()) >= 0.01)
        outcomes[f"{name}: {'found out' if wrong else 'calibrated'} at 1%"] = passed
        shown = ", ".join(f"{site} {p:.3f}" for site, p in least.items())
        table.append([name, rank_of(statistics), duration(seconds), int(ranks["diverging"].sum()), shown])
        table[-1].append(verdict(passed, args.smoke))
        print(table[-1], flush=True)
        jax.clear_caches()
    columns = [
        "model",
        "rank or rows",
        "time",
        "divergences",
        "p-values, times the number of entries of a site",
        "as wanted",
    ]
    kept = f"of exact GPs and inducing points at {args.exact_rows}"
    print_table(columns, table, f"{args.simulations} simulations at the statistics of {args.rows:,} rows, {kept}.")
    print_conclusion(outcomes, args.smoke)


if __name__ == "__main__":
    main()
