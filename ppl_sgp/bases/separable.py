"""Kernels that are products over inputs, and what grids make of that."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._internal import checks
from ..kernels import Kernel


def one_dimensional(kernel: Kernel, input_dim: int, owner: str) -> tuple[Kernel, ...]:
    """``k₁ … k_d`` of one input each, the amplitude on k₁; hyperparameters may be traced.

    Their product ``k₁(x₁)…k_d(x_d)`` is the kernel itself if it is ``separable``, else its relative.

    :raises ValueError: if the kernel has no such relative, or has lengthscales for another number of inputs.
    """
    kernels = kernel.along_inputs(input_dim) if isinstance(kernel, Kernel) else None
    if kernels is None:
        raise ValueError(
            f"{owner}: `kernel` must be a squared exponential, Matérn or rational quadratic kernel, or a product of "
            f"them; got {type(kernel).__name__}. For a sum make a basis for each term and `sgp.stack` them; for any "
            "other kernel use NystromBasis."
        )
    return kernels


def share_outside(X: Any, lower: np.ndarray, upper: np.ndarray) -> float:
    """The share of rows of ``X`` (n, d) outside a box, beyond rounding to float32; zero where it cannot be read."""
    if not checks.is_concrete(X, lower, upper) or len(X) == 0:
        return 0.0
    X = np.asarray(X, dtype=np.float64)
    slack = 1e-6 * np.maximum(upper - lower, np.maximum(np.abs(lower), np.abs(upper)))
    return float(np.mean(((X < lower - slack) | (X > upper + slack)).any(axis=1)))
