"""Two million generated rows with a known function, end to end: type-II, NUTS over 1,000 variances, predictions.

The size of `electric` in Evans (2022), section 5.4.2, where 10,000 steps of MALA took 25 minutes on 24 cores. Here: a
squared exponential with a lengthscale an input from an exact GP on 1,000 rows (maximum a posteriori), 1,000 Fourier
features of it, one pass with features in float32, rotation with the kernel's prior, a free variance for each principal
direction, type-II, NUTS with 4 chains, and predictions of 200,000 new rows, mixed over draws. Targets: everything in
under 10 minutes and 2 GB, R-hat below 1.01, and 90% intervals that hold 90% of new outputs (within 1%).

    python benchmarks/electric.py
    python benchmarks/electric.py --smoke
"""

from __future__ import annotations

import argparse
import time

import jax
import numpy as np
import numpyro
from common import duration, peak_gib, print_conclusion, print_header, print_table
from generated import INPUTS, NOISE, ROWS, chunks, rows
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.infer import MCMC, NUTS
from scipy.special import ndtri
from uci_protocol import exact_gp_hyperparameters

import ppl_sgp as sgp
from ppl_sgp.kernels.hyperprior_scales import log_normal_by_mode

PREDICTED_DRAWS = 100  # thinned from the chains


class Steps:
    """Wall-clock times of named steps."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def done(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name], self._last = now - self._last, now


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="seconds")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--new-rows", type=int, default=200_000)
    parser.add_argument("--features", type=int, default=1000)
    parser.add_argument("--gp-rows", type=int, default=1000)
    parser.add_argument("--draws", type=int, default=1000, help="of each chain, after half as many of warm-up")
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.smoke:
        args.rows, args.new_rows, args.features, args.gp_rows, args.draws, args.chains = 5000, 1000, 40, 100, 50, 2
    numpyro.enable_x64()
    print_header("Two million rows, type-I", {k: v for k, v in vars(args).items() if k != "smoke"})
    steps = Steps()
    X, y = next(chunks(args.gp_rows))
    lengthscale, amplitude, noise = exact_gp_hyperparameters(X, y, np.full(INPUTS, 0.01), prior=True)
    steps.done(f"hyperparameters: exact GP on {len(X):,} rows")
    kernel = sgp.SquaredExponential(lengthscale, amplitude)
    basis = sgp.FourierBasis.sample(jax.random.key(args.seed), kernel, args.features, INPUTS)
    stats = sgp.sufficient_statistics(basis, chunks(args.rows), float32_features=True)
    steps.done(f"pass over {args.rows:,} rows, generating them included")
    rotated = stats.rotate(basis.weight_prior(kernel))
    model = sgp.models.reweighted_basis(
        scale=log_normal_by_mode(1.0, 100.0).expand([rotated.num_features]).to_event(1),
        noise_scale=log_normal_by_mode(noise**2, 0.04),
    )
    steps.done("rotation")
    fit = sgp.fit_evidence(model, rotated, max_iterations=2000)
    steps.done("type-II")
    mcmc = MCMC(
        NUTS(model, init_strategy=fit.init_strategy()),
        num_warmup=args.draws // 2,
        num_samples=args.draws,
        num_chains=args.chains,
        chain_method="sequential",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(args.seed + 1), rotated, extra_fields=("diverging", "num_steps"))
    by_chain = {name: np.asarray(values) for name, values in mcmc.get_samples(group_by_chain=True).items()}
    steps.done("NUTS")
    thin = max(1, args.chains * args.draws // PREDICTED_DRAWS)
    draws = {name: values[::thin] for name, values in mcmc.get_samples().items()}
    X_new, f_new = rows(10**6, args.new_rows)
    y_new = f_new + NOISE * np.random.default_rng([3, args.seed]).normal(size=len(f_new))
    prediction = sgp.predict(model, draws, rotated, X_new, max_memory=2e8)
    spread = np.sqrt(prediction.variance + prediction.noise_variance)
    inside = np.abs(y_new - prediction.mean) < ndtri(0.95) * spread
    of_function = np.abs(f_new - prediction.mean) < ndtri(0.95) * np.sqrt(prediction.variance)
    steps.done(f"prediction of {args.new_rows:,} rows")
    r_hat = max(float(np.max(split_gelman_rubin(values))) for values in by_chain.values())
    ess = min(float(np.min(effective_sample_size(values))) for values in by_chain.values())
    extra = mcmc.get_extra_fields()
    total, peak, coverage = sum(steps.seconds.values()), peak_gib(), float(inside.mean())
    table = [[name, duration(seconds)] for name, seconds in steps.seconds.items()]
    table += [
        ["all", duration(total)],
        ["peak memory", f"{peak:.2f} GiB"],
        ["type-II converged", str(fit.converged)],
        ["worst R-hat, least effective sample size", f"{r_hat:.4f}, {ess:.0f}"],
        ["divergences, steps a draw", f"{int(extra['diverging'].sum())}, {float(np.mean(extra['num_steps'])):.1f}"],
        ["noise (true value)", f"{float(np.mean(draws['noise_scale'])):.4f} ({NOISE})"],
        ["RMSE to the noise-free function", f"{float(np.sqrt(np.mean((prediction.mean - f_new) ** 2))):.4f}"],
        ["90% intervals hold of new outputs, of the function", f"{coverage:.4f}, {float(of_function.mean()):.4f}"],
    ]
    print_table(["step", ""], table)
    claims = {
        "everything in under 10 minutes": total < 600,
        "in under 2 GB": peak * 2**30 < 2e9,
        "R-hat below 1.01": r_hat < 1.01,
        "90% intervals hold 89 to 91% of new outputs": 0.89 < coverage < 0.91,
    }
    print_conclusion(claims, args.smoke)


if __name__ == "__main__":
    main()
