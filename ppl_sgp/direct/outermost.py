"""Fits that press against the end of a grid: weights, or the noise, on the outermost of their levels."""

from __future__ import annotations

import numpy as np

from .elbo import Variational, expected_residuals, precision_of
from .problem import Problem


def outermost_weights(problem: Problem, q: Variational) -> np.ndarray:
    """Which weights are more likely than not on their first or last level while the data ask for more, (b,).

    None whose levels are the prior itself rather than stand for a continuous one. Less the prior, ``log q`` is a
    parabola of curvature ``β Aⱼⱼ``: between the last two levels, a gap d apart, it rises by more than ``β Aⱼⱼ d²`` if
    its top is more than half a gap beyond the last.
    """
    alpha, levels = np.exp(q.log_weights), problem.prior.levels
    curvature = precision_of(problem, q.log_noise) * np.diag(problem.gram)
    log_prior = np.einsum("p,pbl->bl", np.exp(problem.prior.log_weights), problem.prior.log_probs)
    tilt, outside = q.log_probs - log_prior, np.zeros(len(levels))
    for last, before in ((0, 1), (-1, -2)):
        rise = tilt[..., last] - tilt[..., before]
        beyond = rise > curvature * (levels[:, last] - levels[:, before]) ** 2
        outside += alpha @ (np.exp(q.log_probs[..., last]) * beyond)
    return problem.prior.is_relaxation & (outside > 0.5)


def complaints(problem: Problem, q: Variational, outermost: np.ndarray) -> list[str]:
    """What there is to say about ends of grids, each with its remedy."""
    found = []
    if outermost.any():
        found.append(
            f"{outermost.sum()} of {len(outermost)} weights sit on their outermost level, and the data ask for more: "
            "predictions are too small there. Pass the normal prior itself, for levels where the posterior is, or a "
            "wider `support`, or a larger prior scale"
        )
    probs, scales = np.exp(q.log_noise), problem.noise_scales
    if len(scales) > 1:
        alpha, each, levels = np.exp(q.log_weights), np.exp(q.log_probs), problem.prior.levels
        means, squares = np.sum(each * levels, axis=-1), np.sum(each * levels**2, axis=-1)
        fitted = (float(alpha @ expected_residuals(problem, means, squares)[0]) / problem.num_rows) ** 0.5
        order = np.argsort(scales)
        # More than half a gap away, in logarithms.
        too_small = probs[order[-1]] > 0.5 and fitted**2 * scales[order[-2]] > scales[order[-1]] ** 3
        too_large = probs[order[0]] > 0.5 and fitted**2 * scales[order[1]] < scales[order[0]] ** 3
        if too_small or too_large:
            end = "largest" if too_small else "smallest"
            found.append(
                f"the noise sits on the {end} of its levels, {scales[np.argmax(probs)]:.3g}, where the residuals ask "
                f"for {fitted:.3g}. Pass more noise levels beyond it; residuals include the uncertainty of f, which "
                "coarse levels and correlated features overstate: a normal prior avoids both"
            )
    return found
