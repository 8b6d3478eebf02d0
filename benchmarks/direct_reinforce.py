"""Exact gradients of DIRECT against REINFORCE: section 7.5.1 of Evans (2022).

Data: a random weighting of b = 20 random Fourier features of a squared exponential, and Gaussian noise. Weights have
m̄ = 3 levels, the noise variance a grid of 3, all priors uniform: 63 variational parameters, from the prior. DIRECT is
L-BFGS on the exact bound; REINFORCE (Williams 1992) is Adam on score-function gradients from t draws, of the same
bound, without a baseline and with the mean of the other draws as one. Both get the sufficient statistics: with the rows
themselves REINFORCE would be slower. All ELBOs are exact values. The best of several step sizes is shown for REINFORCE.

    python benchmarks/direct_reinforce.py
    python benchmarks/direct_reinforce.py --smoke
"""

from __future__ import annotations

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from common import duration, print_conclusion, print_header, print_table

import ppl_sgp as sgp
from ppl_sgp.direct.elbo import Variational
from ppl_sgp.direct.mixture import expected_terms
from ppl_sgp.direct.problem import Problem

STEP_SIZES = (0.01, 0.03, 0.1)


def problem(args: argparse.Namespace) -> tuple[sgp.SufficientStatistics, sgp.DiscreteRelaxation, tuple]:
    rng = np.random.default_rng(args.seed)
    X = rng.uniform(size=(args.rows, 1))
    basis = sgp.FourierBasis.sample(jax.random.key(args.seed), sgp.SquaredExponential(0.1), args.features, 1)
    y = basis.host_features(X) @ rng.normal(size=args.features) + 0.3 * rng.normal(size=args.rows)
    prior = sgp.DiscreteRelaxation.from_logits(np.linspace(-1.5, 1.5, 3), np.zeros(3))
    return sgp.sufficient_statistics(basis, X, y), prior, (np.array([0.1, 0.3, 1.0]), np.zeros(3))


def exact_elbo(p: Problem, logits: np.ndarray, noise: np.ndarray) -> float:
    log_probs, log_noise = (np.asarray(jax.nn.log_softmax(jnp.asarray(part))) for part in (logits, noise))
    q = Variational(np.zeros(1), log_probs[None], log_noise)
    return expected_terms(p, q)[0] - float(np.sum(np.exp(log_probs) * log_probs))


def reinforce(p: Problem, draws: int, baseline: bool, step_size: float, args: argparse.Namespace):
    """ELBO and seconds at every hundredth step."""
    levels, log_prior = jnp.asarray(p.prior.levels), jnp.asarray(p.prior.log_probs[0])
    gram, projection = jnp.asarray(p.gram), jnp.asarray(p.projection)
    variance, log_noise_prior = jnp.asarray(p.noise_scales**2), jnp.asarray(p.log_noise_prior)
    b = len(levels)

    def surrogate(parameters, key):
        log_q, log_noise = (jax.nn.log_softmax(part) for part in parameters)
        key_weights, key_noise = jax.random.split(key)
        codes = jax.random.categorical(key_weights, log_q, shape=(draws, b))
        noise = jax.random.categorical(key_noise, log_noise, shape=(draws,))
        w = levels[jnp.arange(b), codes]
        residual = p.sum_squares - 2 * w @ projection + jnp.sum((w @ gram) * w, axis=1)
        log_p = -0.5 * (p.num_rows * jnp.log(2 * jnp.pi * variance[noise]) + residual / variance[noise])
        log_p = log_p + jnp.sum(log_prior[jnp.arange(b), codes], axis=1) + log_noise_prior[noise]
        log_density = jnp.sum(log_q[jnp.arange(b), codes], axis=1) + log_noise[noise]
        reward = jax.lax.stop_gradient(log_p - log_density)
        if baseline:
            reward = (reward - reward.mean()) * draws / (draws - 1)
        return -jnp.mean(reward * log_density)

    optimiser = numpyro.optim.Adam(step_size)

    @jax.jit
    def hundred(state, key):
        def step(state, key):
            return optimiser.update(jax.grad(surrogate)(optimiser.get_params(state), key), state), None

        return jax.lax.scan(step, state, jax.random.split(key, 100))[0]

    state = optimiser.init((log_prior, log_noise_prior))
    hundred(state, jax.random.key(0))  # compiled outside the clock
    curve, started = [], time.perf_counter()
    for key in jax.random.split(jax.random.key(args.seed), args.steps // 100):
        state = jax.block_until_ready(hundred(state, key))
        curve.append((time.perf_counter() - started, exact_elbo(p, *map(np.asarray, optimiser.get_params(state)))))
    return curve


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="seconds")
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--features", type=int, default=20)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--draws", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.smoke:
        args.steps, args.draws = 200, [10]
    numpyro.enable_x64()
    print_header("Exact gradients against REINFORCE", {k: v for k, v in vars(args).items() if k != "smoke"})
    stats, prior, noise = problem(args)
    p = Problem.of(stats, prior, noise)
    start = exact_elbo(p, p.prior.log_probs[0], p.log_noise_prior)
    begun = time.perf_counter()
    result = sgp.direct.fit(stats, prior, noise_scale=noise)
    seconds = time.perf_counter() - begun
    print(f"ELBO of the prior {start:.2f}, of DIRECT {result.elbo:.4f}")
    rows = [["DIRECT", "", result.iterations, duration(seconds), f"{result.elbo:.3f}", ""]]
    best = -np.inf
    for draws in args.draws:
        for baseline in (False, True) if draws > 1 else (False,):
            curves = {size: reinforce(p, draws, baseline, size, args) for size in STEP_SIZES}
            size = max(curves, key=lambda each: curves[each][-1][1])
            curve = curves[size]
            best = max(best, curve[-1][1])
            close = [(100 * (i + 1), t) for i, (t, value) in enumerate(curve) if value > result.elbo - 1]
            near = f"{close[0][0]:,} steps, {duration(close[0][1])}" if close else "never"
            label = f"REINFORCE, {draws} draws" + (", baseline" if baseline else "")
            rows.append([label, size, args.steps, duration(curve[-1][0]), f"{curve[-1][1]:.3f}", near])
    heading = ["method", "step size", "iterations", "time", "ELBO at the end", "within a nat of DIRECT after"]
    print_table(heading, rows, "")
    claim = f"DIRECT ends highest: {result.elbo:.3f} against {best:.3f}"
    print_conclusion({claim: result.elbo >= best - 1e-3}, args.smoke)


if __name__ == "__main__":
    main()
