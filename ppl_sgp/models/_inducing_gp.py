"""A GP through inducing points that are held fixed, with its hyperparameters sampled."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from .._internal import checks
from ..evidence import inducing
from ..kernels import Kernel
from ..sites.observe import observe_inducing
from ..statistics.kept_rows import ChunkedRows, Rows
from .hyperpriors import check_outputs
from .kernel_gp import KernelGP, require_rows


@dataclasses.dataclass(frozen=True, eq=False)
class InducingGPModel(KernelGP):
    """A NumPyro model of one argument, the rows; made by :func:`inducing_gp`, which says what it samples."""

    points: Any
    method: str
    blocks: Any

    def __post_init__(self) -> None:
        """Refuse points that are no finite matrix, and unknown methods."""
        super().__post_init__()
        if hasattr(self.points, "points"):
            raise ValueError(
                f"inducing_gp: `points` must be an array, shape (m, d); got {type(self.points).__name__}. Pass its "
                "`.points`."
            )
        columns = np.shape(self.points)[-1] if np.ndim(self.points) else 0
        inducing.check_points("inducing_gp", self.points, columns, "points")
        if self.method not in inducing.METHODS:
            raise ValueError(f"inducing_gp: `method` must be one of {inducing.METHODS}; got {self.method!r}.")
        if self.method in inducing.IN_BLOCKS and np.ndim(self.blocks) != 1:
            raise ValueError(
                f'inducing_gp: method "{self.method}" needs `blocks`: labels of the rows, shape (n,), since '
                f"rows that a compiled model gets cannot be clustered; got {self.blocks!r}. Make them once: "
                "blocks=sgp.cluster_rows(rows, number)."
            )

    def __call__(self, rows: Rows | ChunkedRows) -> None:
        """Sample hyperparameters and observe the rows."""
        self._check(rows)
        kernel, noise_scale = self._sample_for_rows("inducing_gp", rows)
        observe_inducing("y", rows, kernel, self.points, noise_scale, self.method, blocks=self.blocks)

    def _check(self, rows: Any) -> None:
        require_rows("inducing_gp", rows, (Rows, ChunkedRows))
        if np.shape(self.points)[1] != rows.input_dim:
            raise ValueError(
                f"inducing_gp: `points` are of {np.shape(self.points)[1]} inputs, and the rows have {rows.input_dim}."
            )
        if checks.is_concrete(rows):
            check_outputs("inducing_gp", rows)


def inducing_gp(
    points: Any,
    kernel: Callable[..., Kernel] | None = None,
    *,
    method: str = "vfe",
    blocks: Any = None,
    lengthscale: Any = None,
    amplitude: Any = None,
    noise_scale: Any = None,
    **shape: Any,
) -> InducingGPModel:
    """A GP ``y = f(x) + noise`` seen through m inducing points, which are held fixed: O(n m²) a gradient.

    Sites and default priors are those of :func:`exact_gp`, and of :func:`~ppl_sgp.fit_inducing`, whose points and
    starting values it takes: ``NUTS(model, init_strategy=fit.init_strategy())``. Memory does not grow with n, and
    inputs may be read in chunks. Float64 only. f has mean zero: subtract that of y.

    All methods but ``"vfe"`` are models, sampled as they are. ``"vfe"`` samples ∝ p(θ) exp(bound), which is
    biased towards hyperparameters that the points carry well: see :func:`~ppl_sgp.observe_inducing`;
    :func:`~ppl_sgp.report` says when the points are too few.

    :param points: inducing points, shape (m, d), in the space of the inputs: ``fit.points`` of
        :func:`~ppl_sgp.fit_inducing`, or those of :func:`~ppl_sgp.select_inducing_points`.
    :param kernel: class of the kernel, or a function of (lengthscale, amplitude); default squared exponential.
    :param method: ``"vfe"``, ``"dtc"``, ``"fitc"``, ``"pitc"`` or ``"pic"``; the last two differ in predictions alone,
        in which PIC sees the training rows of the block whose centroid is nearest to a new row, in units of the inputs'
        standard deviations, as they are: functions jump where blocks meet (Snelson & Ghahramani 2007).
    :param blocks: of PITC and PIC: integer labels of the rows, shape (n,), such as
        :func:`~ppl_sgp.cluster_rows` makes.
    :param lengthscale: a NumPyro distribution, or a number or array to hold fixed; or :class:`SparseAxes`, for many
        inputs of which few matter.
    :param amplitude: a NumPyro distribution, or a number to hold fixed; one for all outputs.
    :param noise_scale: likewise; with q outputs, of shape () or (q,).
    :param shape: priors or values of further kernel parameters, such as ``alpha``.
    :return: a picklable callable of one argument, the rows.
    :raises ValueError: for a kernel with values, points that are no finite matrix, an unknown method; when called, for
        other data than rows, points of other inputs, y identically zero, an amplitude an output, or in float32.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 200)[:, None]
        >>> rows = sgp.rows(X, np.sin(9 * X[:, 0]) + 0.1 * np.cos(77 * X[:, 0]))
        >>> with jax.enable_x64(True):  # or numpyro.enable_x64() at the start
        ...     fit = sgp.fit_inducing(jax.random.key(0), rows, num_points=10)
        ...     posterior = sgp.posterior(sgp.models.inducing_gp(fit.points), fit, rows)
        ...     posterior.predict([[0.5]]).mean.round(1), bool(abs(posterior.log_evidence[0] - fit.bound) < 1e-6)
        (array([-1.]), True)
    """
    return InducingGPModel(kernel, lengthscale, amplitude, noise_scale, shape, points, method, blocks)
