"""Time of one evidence with its gradient: closed forms against dense and automatic alternatives.

(a) against ``numpyro.distributions.LowRankMultivariateNormal``, which reads all n rows each time;
(b) against automatic differentiation of the same m×m Cholesky factorisation, and against the LAPACK
    calls (dpotrf, dpotri) that any form of this gradient needs at least.

    python benchmarks/evidence.py            # about 4 minutes on 2 cores
    python benchmarks/evidence.py --smoke    # seconds, meaningless times
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from common import duration, interleaved_medians, print_conclusion, print_header, print_table, timed, verdict
from jax.scipy.linalg import solve_triangular
from scipy.linalg import lapack

import ppl_sgp as sgp

INPUT_DIM = 8  # so many inputs that random features are far from collinear: the Gram matrix has full rank
LOOP_STEPS = 1000


def problem(seed: int, n: int, m: int) -> tuple[sgp.SufficientStatistics, np.ndarray, np.ndarray]:
    """Statistics of full rank, with the rows they stand for."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, INPUT_DIM))
    y = np.sin(X[:, 0]) * np.cos(X[:, 1]) + 0.5 * X[:, 2] + 0.1 * rng.standard_normal(n)
    basis = sgp.FourierBasis.sample(jax.random.key(seed), sgp.SquaredExponential(1.5), m, INPUT_DIM)
    stats = sgp.sufficient_statistics(basis, X, y)
    if stats.evidence_cost != "O(m³)" or int(stats.compressed.rank) != m:
        raise SystemExit(f"these features must have full rank, or another form would be timed: {stats}")
    return stats, X, y


def per_feature(stats, parameters):
    """Ours, in m log scales and a log noise scale."""
    log_scale, log_noise = parameters
    return sgp.log_evidence(stats, sgp.DiagonalPrior.from_log_scale(log_scale), jnp.exp(log_noise))


def through_kernel(stats, parameters):
    """Ours, in the logarithms of lengthscale, amplitude and noise scale."""
    return sgp.log_evidence(stats, kernel_prior(stats.basis, parameters), jnp.exp(parameters[2]))


def kernel_prior(basis, parameters):
    return basis.weight_prior(sgp.SquaredExponential(jnp.exp(parameters[0]), jnp.exp(parameters[1])))


def low_rank(data, parameters):
    """NumPyro's density of the n rows, in m log scales and a log noise scale."""
    Phi, y = data
    log_scale, log_noise = parameters
    diagonal = jnp.full(len(y), jnp.exp(2 * log_noise))
    return dist.LowRankMultivariateNormal(jnp.zeros(len(y)), Phi * jnp.exp(log_scale), diagonal).log_prob(y)


def low_rank_through_kernel(data, parameters):
    """NumPyro's density of the n rows, in the logarithms of lengthscale, amplitude and noise scale."""
    basis, rows = data
    return low_rank(rows, (kernel_prior(basis, parameters).log_scale, parameters[2]))


def plain_cholesky(moments, parameters):
    """The textbook formula with B = σ²I + γ^½Aγ^½ = LLᵀ, to be differentiated automatically."""
    log_scale, log_noise = parameters
    m, n, variance, root = len(log_scale), moments.num_rows, jnp.exp(2 * log_noise), jnp.exp(log_scale)
    B = variance * jnp.eye(m) + root[:, None] * moments.gram * root
    L = jnp.linalg.cholesky(B, symmetrize_input=False)
    v = solve_triangular(L, root * moments.feature_output, lower=True)
    quadratic = (moments.sum_squares - v @ v) / variance
    log_determinant = 2 * jnp.sum(jnp.log(jnp.diagonal(L))) + (n - m) * 2 * log_noise
    return -0.5 * (quadratic + log_determinant + n * jnp.log(2 * jnp.pi))


def lapack_only(B: np.ndarray) -> Callable[[], Any]:
    """dpotrf + dpotri of one matrix, and nothing else."""

    def run():
        factor, info = lapack.dpotrf(B, lower=1, clean=0)
        inverse, info_inverse = lapack.dpotri(factor, lower=1, overwrite_c=1)
        assert info == info_inverse == 0
        return inverse

    return run


def caller(function: Callable[..., Any], data: Any, parameters: Any) -> Callable[[], Any]:
    """Value and gradient as a compiled function of data and parameters, both arguments on the device."""
    compiled = jax.jit(jax.value_and_grad(function, argnums=1))
    data, parameters = jax.device_put((data, parameters))
    return lambda: compiled(data, parameters)


def compiled_loop(function: Callable[..., Any], data: Any, parameters: Any, steps: int) -> Callable[[], Any]:
    """Values and gradients one after the other in one compiled loop, as a sampler evaluates them."""

    @jax.jit
    def run(data, parameters):
        def step(parameters, _):
            value, gradient = jax.value_and_grad(function, argnums=1)(data, parameters)
            # The parameters move by less than matters, but enough that no evaluation can be skipped.
            return jax.tree.map(lambda x, g: x + 1e-12 * g, parameters, gradient), value

        return jax.lax.scan(step, parameters, length=steps)

    data, parameters = jax.device_put((data, parameters))
    return lambda: run(data, parameters)


def require_agreement(name: str, ours: Any, theirs: Any, tolerance: float) -> str:
    """Compare (value, gradient) pairs before any time is taken."""
    value = abs(float(ours[0] - theirs[0])) / abs(float(theirs[0]))
    left, right = (np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(pair[1])]) for pair in (ours, theirs))
    gradient = np.max(np.abs(left - right)) / np.max(np.abs(right))
    if not (value < tolerance and gradient < tolerance):
        raise SystemExit(f"{name}: value differs by {value:.1e}, gradient by {gradient:.1e} relative")
    return f"  {name}: value within {value:.1e}, gradient within {gradient:.1e} (relative)"


def against_low_rank(args: argparse.Namespace) -> dict[str, bool]:
    n, m = args.rows, args.low_rank_features
    stats, X, y = problem(args.seed, n, m)
    pass_seconds, _ = timed(lambda: sgp.sufficient_statistics(stats.basis, X, y).rotate().compressed.projection)
    rotated = stats.rotate()
    rng = np.random.default_rng(args.seed + 1)
    # Any prior scales will do: near 1/√m, all different.
    feature_scales = (jnp.asarray(rng.normal(-0.5 * np.log(m), 0.3, m)), jnp.asarray(np.log(0.15)))
    kernel_scales = jnp.log(jnp.array([1.7, 0.8, 0.15]))
    Phi = stats.basis.host_features(X)
    rows, rotated_rows = (Phi, y), (rotated.basis.host_features(X), y)

    pairs = {  # our name and call, the peer's call, target
        "O(m): rotated, m scales + noise": (
            caller(per_feature, rotated, feature_scales), caller(low_rank, rotated_rows, feature_scales), 5000.0
        ),
        "O(m³): m scales + noise": (
            caller(per_feature, stats, feature_scales), caller(low_rank, rows, feature_scales), 40.0
        ),
        "O(m³): through the kernel, 3 numbers": (
            caller(through_kernel, stats, kernel_scales),
            caller(low_rank_through_kernel, (stats.basis, rows), kernel_scales),
            40.0,
        ),
    }  # fmt: skip
    print(
        f"\n(a) n = {n:,}, m = {m}: {stats.evidence_cost} form, rotated {rotated.evidence_cost}; rank form chosen: no"
    )
    print("agreement with LowRankMultivariateNormal:")
    calls = {}
    for name, (ours, theirs, _) in pairs.items():
        print(require_agreement(name, ours(), theirs(), tolerance=1e-7))
        calls[name], calls["peer of " + name] = ours, theirs
    calls["loop"] = compiled_loop(per_feature, rotated, feature_scales, LOOP_STEPS)
    seconds = interleaved_medians(calls, args.repeats)
    table, outcomes = [], {}
    for name, (_, _, target) in pairs.items():
        ours, theirs = seconds[name], seconds["peer of " + name]
        met = theirs / ours >= target
        outcomes[f"{name}: at least {target:,.0f}x faster than LowRankMultivariateNormal"] = met
        table.append(
            [name, duration(ours), duration(theirs), theirs / ours, f">= {target:,.0f}", verdict(met, args.smoke)]
        )
    columns = ["value + gradient", "ours", "LowRankMVN", "ratio", "target", ""]
    note = (
        "Times are of calls from Python, dispatch included. In a compiled loop, as a sampler runs it, O(m) takes\n"
        f"{duration(seconds['loop'] / LOOP_STEPS)} an evaluation. The pass over the data is not in ours: done once,\n"
        f"and took {duration(pass_seconds)} here. For a handful of evaluations of one data set the peer wins or draws."
    )
    print_table(columns, table, note)
    return outcomes


def against_cholesky(args: argparse.Namespace) -> dict[str, bool]:
    table, outcomes = [], {}
    print("\n(b) the same m×m factorisation; agreement with its automatic gradient:")
    for m in args.features:
        stats, _, _ = problem(args.seed, max(args.small_rows, 5 * m), m)
        rng = np.random.default_rng(args.seed + m)
        parameters = (jnp.asarray(rng.normal(-0.5 * np.log(m), 0.3, m)), jnp.asarray(np.log(0.15)))
        scale, noise = np.exp(parameters[0]), float(np.exp(parameters[1]))
        B = np.asfortranarray(noise**2 * np.eye(m) + scale[:, None] * stats.moments.gram * scale)
        calls = {
            "ours": caller(per_feature, stats, parameters),
            "autodiff": caller(plain_cholesky, stats.moments, parameters),
            "LAPACK": lapack_only(B),
        }
        name = f"m = {m}, n = {stats.num_rows:,}, {stats.evidence_cost}, rank form: no"
        print(require_agreement(name, calls["ours"](), calls["autodiff"](), tolerance=1e-7))
        seconds = interleaved_medians(calls, args.repeats)
        faster, slower = seconds["autodiff"] / seconds["ours"], seconds["ours"] / seconds["LAPACK"]
        row = [m, *(duration(seconds[key]) for key in ("ours", "autodiff", "LAPACK")), faster, slower]
        if m >= 500:
            outcomes[f"m = {m}: at least 3x faster than autodiff through the Cholesky"] = faster >= 3
            outcomes[f"m = {m}: within 2x of LAPACK dpotrf + dpotri"] = slower <= 2
            row.append(f"{verdict(faster >= 3, args.smoke)} / {verdict(slower <= 2, args.smoke)}")
        else:
            row.append("no target")
        table.append(row)
    columns = ["m", "ours", "autodiff", "dpotrf + dpotri", "autodiff / ours", "ours / LAPACK", "(>= 3, <= 2)"]
    note = (
        "LAPACK alone has no value, no gradient and no posterior weights: it is the floor. Where autodiff / ours is\n"
        "below 1 the peer wins."
    )
    print_table(columns, table, note)
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that the script runs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, default=50_000, help="n of part (a)")
    parser.add_argument("--low-rank-features", type=int, default=200, help="m of part (a)")
    parser.add_argument("--features", type=int, nargs="+", default=[200, 500, 1000], help="m of part (b)")
    parser.add_argument("--small-rows", type=int, default=10_000, help="n of part (b), at least 5 m")
    parser.add_argument("--repeats", type=int, default=11)
    args = parser.parse_args()
    if args.smoke:
        args.rows, args.low_rank_features, args.features, args.small_rows, args.repeats = 500, 20, [20, 40], 400, 2
    numpyro.enable_x64()
    settings = {name: value for name, value in vars(args).items() if name != "smoke"}
    print_header("Evidence: value and gradient", settings | {"input_dim": INPUT_DIM})
    outcomes = against_low_rank(args) | against_cholesky(args)
    print_conclusion(outcomes, args.smoke)


if __name__ == "__main__":
    main()
