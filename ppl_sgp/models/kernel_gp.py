"""What the ready GP models share: a kernel whose hyperparameters are sampled, or held fixed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpyro.distributions as dist

from .._internal.by_value import EqualByValue
from ..evidence import exact
from ..kernels import Kernel, SquaredExponential
from ..kernels.hyperprior_scales import AMPLITUDE_SPREAD, NOISE_SHARE, NOISE_SPREAD, lengthscale_prior
from ..statistics.kept_rows import ChunkedRows, Rows
from ..statistics.statistics import SufficientStatistics
from .hyperpriors import Data, check_amplitudes, log_normal, sample, sample_noise_scale, scale_of_outputs
from .sparse_axes import SparseAxes


@dataclasses.dataclass(frozen=True, eq=False)
class KernelGP(EqualByValue):
    """Base of the NumPyro models of one kernel; their factories say what they sample."""

    kernel: Callable[..., Kernel] | None
    lengthscale: Any
    amplitude: Any
    noise_scale: Any
    shape: dict[str, Any]

    def __post_init__(self) -> None:
        """Refuse a kernel whose hyperparameters have values already."""
        if self.kernel is None or (callable(self.kernel) and not isinstance(self.kernel, Kernel)):
            return
        got = f"one of {type(self.kernel).__name__}" if isinstance(self.kernel, Kernel) else repr(self.kernel)
        raise ValueError(
            f"`kernel` must be a class such as sgp.Matern52, or a function of lengthscale and amplitude; got {got}. "
            "The model samples hyperparameters; hold some fixed with `lengthscale=`, `amplitude=`."
        )

    def kernel_at(self, draw: dict[str, Any], basis: Any = None, output: int = 0) -> Kernel:
        """See :meth:`KernelModel.kernel_at`."""
        shape = {name: draw.get(name, value) for name, value in self.shape.items()}
        lengthscale, amplitude = draw.get("lengthscale", self.lengthscale), draw.get("amplitude", self.amplitude)
        return self._family(basis)(lengthscale, amplitude[output] if jnp.ndim(amplitude) else amplitude, **shape)

    def _family(self, basis: Any) -> Callable[..., Kernel]:
        return self.kernel or SquaredExponential

    def _sample(
        self, owner: str, data: Data, basis: Any, ard: bool, typical_amplitude: Any
    ) -> tuple[Callable[[Any], Kernel], Any, Any]:
        """Sample hyperparameters: the kernel as a function of its amplitude, the amplitude, and the noise.

        :param ard: whether each input has a lengthscale.
        :param typical_amplitude: median of the default prior of the amplitude, () or (q,).
        """
        median, spread = lengthscale_prior(data.input_scale)
        each, shared = dist.LogNormal(jnp.log(median), spread), dist.LogNormal(jnp.mean(jnp.log(median)), spread)
        if isinstance(self.lengthscale, SparseAxes):
            lengthscale = self._sparse(owner, data, ard)
        else:
            lengthscale = sample("lengthscale", self.lengthscale, each.to_event(1) if ard else shared, ["input"])
        amplitude = sample("amplitude", self.amplitude, log_normal(typical_amplitude, AMPLITUDE_SPREAD), ["output"])
        noise = log_normal(NOISE_SHARE * scale_of_outputs(data), NOISE_SPREAD)
        noise_scale = sample_noise_scale(owner, data, self.noise_scale, noise)
        shape = {name: sample(name, value) for name, value in self.shape.items()}
        check_amplitudes(owner, amplitude, data)
        family = self._family(basis)
        return lambda amplitude: family(lengthscale, amplitude, **shape), amplitude, noise_scale

    def _sparse(self, owner: str, data: Data, ard: bool) -> Any:
        if not ard and data.input_scale.shape[0] > 1:
            raise ValueError(
                f"{owner}: `SparseAxes` needs a lengthscale an input, and this basis has one for all. Draw it by "
                "`FourierBasis.from_data`, or from kernels with a lengthscale an input."
            )
        return self.lengthscale.sample(data.input_scale)

    def _sample_for_rows(self, owner: str, rows: Rows | ChunkedRows) -> tuple[Kernel, Any]:
        """The kernel and the noise of rows that are kept: one kernel for all outputs, a lengthscale an input."""
        kernel, amplitude, noise_scale = self._sample(owner, rows, None, rows.input_dim > 1, rows.output_scale)
        if jnp.ndim(amplitude):
            raise ValueError(
                f"{owner}: several outputs have one kernel, so `amplitude` must be one number. Divide each column of "
                "y by its scale, or make rows of one output at a time."
            )
        return kernel(amplitude), noise_scale


def require_rows(owner: str, rows: Any, kinds: tuple[type, ...]) -> None:
    """Refuse what is not kept rows, of these kinds, and float32."""
    if not isinstance(rows, kinds):
        other = {
            SufficientStatistics: " For statistics take `sgp.models.basis_gp`.",
            ChunkedRows: " Rows of chunks are for `sgp.models.inducing_gp`.",
        }
        raise ValueError(
            f"{owner} is a model of one argument, the rows from sgp.rows(X, y); got {type(rows).__name__}."
            + other.get(type(rows), "")
        )
    exact.require_precision(owner, jnp.result_type(float))
