"""Kernels that are products over inputs, and what grids make of that."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from .._internal import checks
from ..kernels import Kernel, Product
from ..kernels.scale_mixture import ScaleMixture


def factors_of(kernel: Kernel) -> tuple[Kernel, ...]:
    """The base kernels a kernel is a product of, or itself."""
    return kernel.kernels if isinstance(kernel, Product) else (kernel,)


def one_dimensional(kernel: Kernel, input_dim: int, owner: str) -> list[Kernel]:
    """``k₁ … k_d`` of one input each, the amplitude on k₁; hyperparameters may be traced.

    Their product ``k₁(x₁)…k_d(x_d)`` is the kernel itself for squared exponentials, else its separable relative.

    :raises ValueError: if the kernel is not made of base kernels, or has lengthscales for another number of inputs.
    """
    if not isinstance(kernel, Kernel) or not all(isinstance(factor, ScaleMixture) for factor in factors_of(kernel)):
        raise ValueError(
            f"{owner}: `kernel` must be a squared exponential, Matérn or rational quadratic kernel, or a product of "
            f"them; got {type(kernel).__name__}. For a sum make a basis for each term and `sgp.stack` them; for any "
            "other kernel use NystromBasis."
        )
    kernel.diag(np.empty((0, input_dim)))  # refuses lengthscales that do not fit

    def of_input(index: int) -> Kernel:
        def leaf(path: tuple[Any, ...], value: Any) -> Any:
            if path[-1].name == "amplitude":
                return value if index == 0 else 1.0
            return value[index] if np.ndim(value) else value

        return jax.tree_util.tree_map_with_path(leaf, kernel)

    return [of_input(index) for index in range(input_dim)]


def share_outside(X: Any, lower: np.ndarray, upper: np.ndarray) -> float:
    """The share of rows of ``X`` (n, d) outside a box, beyond rounding to float32; zero where it cannot be read."""
    if not checks.is_concrete(X, lower, upper) or len(X) == 0:
        return 0.0
    X = np.asarray(X, dtype=np.float64)
    slack = 1e-6 * np.maximum(upper - lower, np.maximum(np.abs(lower), np.abs(upper)))
    return float(np.mean(((X < lower - slack) | (X > upper + slack)).any(axis=1)))
