"""Relevance vectors for classes, with their precisions sampled."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy.special import log_softmax

from .._internal import checks
from .._internal.batching import full_precision
from .._internal.logits import logits_of
from .class_prediction import ClassPrediction
from .shrinkage import GammaPrecision, Horseshoe, checked_hyper_prior

#: Root mean square of the logits that a feature makes with its unit of weight. It is also the noise that stands for one
#: label in the horseshoe's global scale (Piironen & Vehtari 2017, section 3.5, at even odds).
LOGIT_SCALE = 2.0


class DrawnClasses(ClassPrediction):
    """Classes from draws of the weights; made by :meth:`RelevanceVectorClassifier.predict`."""

    def __init__(self, classes: np.ndarray, weights: np.ndarray, Phi: np.ndarray) -> None:
        super().__init__(classes)
        self._weights, self._Phi = weights, Phi

    @cached_property
    def log_probabilities(self) -> np.ndarray:
        """Logarithms of the averages of the softmax over draws, shape (n_new, K)."""
        total = np.full((len(self._Phi), len(self.classes)), -np.inf)
        for weights in self._weights:
            total = np.logaddexp(total, log_softmax(logits_of(weights, self._Phi), axis=1))
        return total - np.log(len(self._weights))


@dataclasses.dataclass(frozen=True, eq=False)
class RelevanceVectorClassifier:
    """A NumPyro model of features and labels; made by :func:`relevance_vector_classifier`."""

    num_classes: int
    hyper_prior: GammaPrecision | Horseshoe

    def __call__(self, features: Any, labels: Any = None) -> None:
        """Sample precisions and weights, and observe the labels, or draw some if there are none."""
        self._check(features, labels)
        Phi = jnp.asarray(features)
        Phi = Phi.astype(checks.common_dtype(Phi))
        n, m = Phi.shape
        square = jnp.mean(Phi**2, axis=0)
        least = jnp.min(jnp.where(square > 0, square, jnp.inf))
        scale = self.hyper_prior.sample(LOGIT_SCALE * jnp.maximum(square, least) ** -0.5, n**-0.5)
        C = 1 if self.num_classes == 2 else self.num_classes
        z = numpyro.sample("weights_whitened", dist.Normal(0.0, 1.0).expand([C, m]).to_event(2))
        w = numpyro.deterministic("weights", z * scale[None, :])
        with full_precision():
            logits = Phi @ w.T
        likelihood = dist.Bernoulli(logits=logits[:, 0]) if C == 1 else dist.Categorical(logits=logits)
        with numpyro.plate("obs", n):
            numpyro.sample("y", likelihood, obs=None if labels is None else jnp.asarray(labels))

    def predict(self, samples: dict[str, Any], features: Any, classes: Any = None) -> DrawnClasses:
        """Classes at new inputs, averaged over draws. O(n_new·m) a draw.

        :param samples: draws with the draws along the first axis, as ``mcmc.get_samples()``.
        :param features: features of the new inputs, shape (n_new, m).
        :param classes: labels of the classes by code, as ``np.unique(labels, return_inverse=True)`` gives them first,
            shape (K,); default 0 to K − 1.
        :raises ValueError: for features or classes that do not fit.
        """
        Phi, weights = np.asarray(features), np.asarray(samples["weights"])
        if Phi.ndim != 2 or Phi.shape[1] != weights.shape[-1] or not np.isfinite(Phi).all():
            raise ValueError(
                f"relevance_vector_classifier: `features` must be finite, shape (n_new, {weights.shape[-1]}), such as "
                f"`basis(X_new)`; got shape {Phi.shape}."
            )
        names = np.arange(self.num_classes) if classes is None else np.asarray(classes)
        if names.shape != (self.num_classes,) or len(np.unique(names)) < self.num_classes:
            raise ValueError(
                f"relevance_vector_classifier: `classes` must be {self.num_classes} different labels; got {classes!r}."
            )
        return DrawnClasses(names, weights, Phi)

    def _check(self, features: Any, labels: Any) -> None:
        shape = np.shape(features)
        usable = len(shape) == 2
        if usable and checks.is_concrete(features):
            values = np.asarray(features)  # on the host: JAX would trace constants as well
            usable = bool(np.isfinite(values).all() and values.any())
        if not usable:
            raise ValueError(
                "relevance_vector_classifier: `features` must be finite and not all zero, shape (n, m), such as "
                f"`basis(X)`; got shape {shape}."
            )
        if labels is None or not checks.is_concrete(labels):
            return
        codes = np.asarray(checks.unmasked("labels", labels, "relevance_vector_classifier"))
        good = codes.shape == shape[:1] and codes.dtype.kind in "biu"
        if not (good and (codes >= 0).all() and (codes < self.num_classes).all()):
            raise ValueError(
                f"relevance_vector_classifier: `labels` must be integers from 0 to {self.num_classes - 1}, shape "
                f"({shape[0]},); got {codes.dtype} of shape {codes.shape}. `np.unique(labels, return_inverse=True)` "
                "makes them."
            )


def relevance_vector_classifier(
    num_classes: int = 2, hyper_prior: GammaPrecision | Horseshoe | None = None
) -> RelevanceVectorClassifier:
    """Sparse Bayesian classification with its precisions sampled: the type-I relevance vector machine for classes.

    Two classes have one logit, more have a softmax with one logit each, and the precisions are shared by the logits, as
    in :func:`~ppl_sgp.fit_relevance_classifier`. Explicit weights, non-centred, by NUTS: a gradient costs O(n·m·C). A
    prior weight of one unit makes logits of root mean square two. Sites: those of the hyper-prior (see
    :func:`relevance_vector_machine`); ``weights_whitened`` and the deterministic ``weights``, (C, m); ``y``.

    :param num_classes: K; labels are integers from 0 to K − 1.
    :param hyper_prior: :class:`~ppl_sgp.models.GammaPrecision`, the default, or :class:`~ppl_sgp.models.Horseshoe`.
    :return: a picklable model of features (n, m), such as ``basis(X)``, and labels (n,); without labels it draws them,
        for ``Predictive``.
    :raises ValueError: for fewer than two classes; when called, for features or labels that do not fit.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> from numpyro.infer import MCMC, NUTS
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1, 1, (100, 2))
        >>> basis = sgp.CentredBasis(X[:10], sgp.SquaredExponential(0.7))
        >>> model = sgp.models.relevance_vector_classifier()
        >>> mcmc = MCMC(NUTS(model), num_warmup=100, num_samples=100, progress_bar=False)
        >>> mcmc.run(jax.random.key(0), basis(X), (np.sum(X**2, axis=1) < 0.5).astype(int))
        >>> prediction = model.predict(mcmc.get_samples(), basis(np.zeros((1, 2))), classes=["out", "in"])
        >>> prediction.labels.tolist(), bool(prediction.probabilities[0, 1] > 0.9)
        (['in'], True)
    """
    checks.whole_number("num_classes", num_classes, 2, "relevance_vector_classifier")
    return RelevanceVectorClassifier(num_classes, checked_hyper_prior(hyper_prior, "relevance_vector_classifier"))
