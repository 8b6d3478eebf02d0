"""What random features are drawn from: kernels of the hyper-prior and of posterior draws, and requests, checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from scipy.special import ndtri

from .._internal import checks
from ..kernels import Kernel
from ..kernels.hyperprior_scales import lengthscale_prior
from .spectral_points import METHODS


def hyperprior_kernels(
    rng: np.random.Generator, X: np.ndarray, kernel: Callable[..., Kernel], count: int, ard: bool, shape: Any
) -> list[Kernel]:
    """Kernels whose lengthscales are a stratified sample of the default prior for these inputs.

    :param ard: one lengthscale an input; else one for all.
    :param shape: further parameters of the kernel by name.
    """
    num_scales = X.shape[1] if ard else 1
    strata = np.stack([rng.permutation(count) for _ in range(num_scales)], axis=1)
    z = ndtri((strata + rng.random(strata.shape)) / count)
    scale = np.where(np.ptp(X, axis=0) > 0, X.std(axis=0), 0.0)  # a constant column has a rounded spread
    with jax.enable_x64(True):
        median, spread = (np.asarray(value) for value in lengthscale_prior(scale))
    if not ard and X.shape[1] > 1:
        median = np.exp(np.mean(np.log(median)))
    lengthscales = median * np.exp(spread * z)
    return [kernel(row if ard else float(row[0]), **shape) for row in lengthscales]


def drawn_kernels(
    kernel: Callable[..., Kernel], draws: Mapping[str, Any], input_dim: int, count: int
) -> tuple[list[Kernel], dict[str, float]]:
    """Kernels of at most ``count`` draws, evenly spaced, and the medians of their parameters besides lengthscales.

    :param draws: draws by the names of the kernel's parameters, along the first axis; other names are left out.
    """
    owner, fields = "FourierBasis.from_draws", getattr(kernel, "__dataclass_fields__", {})
    if not isinstance(draws, Mapping) or "lengthscale" not in draws or "lengthscale" not in fields:
        got = sorted(draws) if isinstance(draws, Mapping) else type(draws).__name__
        raise ValueError(
            f"{owner} needs `draws` by site name with a `lengthscale`, as `mcmc.get_samples()` has them, of a kernel "
            f"that has one; got {got} and {getattr(kernel, '__name__', kernel)}. For other kernels pass a list of them "
            "to `FourierBasis.sample`."
        )
    values = {
        name: checks.host_numbers(name, draws[name], owner).astype(np.float64)
        for name in fields
        if name in draws and name != "amplitude"
    }
    lengthscales = values.pop("lengthscale")
    if input_dim == 1 and lengthscales.ndim == 2 and lengthscales.shape[1] == 1:
        lengthscales = lengthscales[:, 0]
    if lengthscales.ndim == 0 or len(lengthscales) == 0 or lengthscales.shape[1:] not in ((), (input_dim,)):
        raise ValueError(
            f"{owner}: draws of `lengthscale` must have shape (draws,) or (draws, {input_dim}), a column an input; got "
            f"{lengthscales.shape}."
        )
    for name, each in values.items():
        if each.shape != lengthscales.shape[:1]:
            raise ValueError(f"{owner}: draws of `{name}` must have shape {lengthscales.shape[:1]}; got {each.shape}.")
    chosen = np.unique(np.linspace(0, len(lengthscales) - 1, count).astype(int))
    kernels = [
        kernel(
            lengthscales[i] if lengthscales.ndim == 2 else float(lengthscales[i]),
            **{name: float(each[i]) for name, each in values.items()},
        )
        for i in chosen
    ]
    return kernels, {name: float(np.median(each)) for name, each in values.items()}


def variance_shares(kernel: Any) -> list[tuple[float, Any]]:
    """The additive components of a kernel with their shares of its variance."""
    parts = [(float(np.asarray(variance)), part) for variance, part in kernel.spectral_components()]
    total = sum(variance for variance, _ in parts)
    return [(variance / total, part) for variance, part in parts]


def checked_centre(centre: Any, input_dim: int) -> np.ndarray:
    centre = checks.host_numbers("centre", centre, "FourierBasis").astype(np.float64)
    if centre.shape != (input_dim,):
        raise ValueError(f"`centre` must have shape ({input_dim},); got {centre.shape}. Give one number an input.")
    if not np.isfinite(centre).all():
        raise ValueError(f"`centre` must be finite; got {centre}.")
    return centre


def check_request(kernels: tuple[Any, ...], num_features: int, input_dim: int, method: str) -> None:
    if not kernels or not all(isinstance(kernel, Kernel) for kernel in kernels):
        names = ", ".join(type(kernel).__name__ for kernel in kernels) or "nothing"
        raise ValueError(f"`kernel_or_kernels` must be one kernel or a non-empty sequence of kernels; got {names}.")
    if checks.whole_number("num_features", num_features, 2, "FourierBasis") % 2:
        raise ValueError(
            f"`num_features` must be an even number of at least 2 (a cosine and a sine for each spectral point); "
            f"got {num_features}."
        )
    checks.whole_number("input_dim", input_dim, 1, "FourierBasis")
    if method not in METHODS:
        raise ValueError(f"`method` must be one of {', '.join(map(repr, METHODS))}; got {method!r}.")
