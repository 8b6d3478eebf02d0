"""Weights as small integers: storage at four bits a weight, predictions in integer arithmetic."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from .._internal.shown import ShownFields
from ..bases.basis import Basis
from ..posteriors.predict import prediction_inputs

#: Codes are below this: int16.
LARGEST = 2**15
#: How far levels may be from multiples of a step, in units of the largest of them: they may have been through float32.
ROUNDING = 1e-6
#: Rows whose features are in memory together.
ROWS = 4096


@dataclasses.dataclass(frozen=True, repr=False)
class QuantizedWeights(ShownFields):
    """One vector of weights in integers: ``weights = offset + step·codes``.

    :ivar codes: integers, shape (b,), int16; zero stands for a weight of zero wherever zero is a level.
    :ivar step: shape (b,).
    :ivar offset: shape (b,); zero wherever all levels are multiples of the step.
    :ivar level_codes: the code of each level, shape (b, m̄).
    """

    basis: Basis
    codes: np.ndarray
    step: np.ndarray
    offset: np.ndarray
    level_codes: np.ndarray

    @property
    def weights(self) -> np.ndarray:
        """The weights, shape (b,)."""
        return self.offset + self.step * self.codes

    @property
    def sparsity(self) -> float:
        """The share of weights that are exactly zero."""
        return float(np.mean((self.codes == 0) & (self.offset == 0)))

    @property
    def packed(self) -> bytes:
        """Positions of the weights among their levels, four bits each, the first in the low half of the first byte.

        :raises ValueError: for more than 16 levels.
        """
        if self.level_codes.shape[1] > 16:
            raise ValueError(f"packed needs at most 16 levels a weight; these have {self.level_codes.shape[1]}.")
        positions = np.argmax(self.level_codes == self.codes[:, None], axis=1).astype(np.uint8)
        pairs = np.pad(positions, (0, len(positions) % 2)).reshape(-1, 2)
        return (pairs[:, 0] | (pairs[:, 1] << 4)).astype(np.uint8).tobytes()

    def unpack(self, packed: bytes) -> QuantizedWeights:
        """Other weights on the same levels, from their packed form.

        :param packed: as :attr:`packed`.
        :raises ValueError: if the length does not fit.
        """
        pairs, b = np.frombuffer(packed, dtype=np.uint8), len(self.codes)
        if len(pairs) != (b + 1) // 2 or self.level_codes.shape[1] > 16:
            raise ValueError(f"unpack: {b} weights take {(b + 1) // 2} bytes; got {len(pairs)}.")
        positions = np.stack([pairs & 15, pairs >> 4], axis=1).ravel()[:b]
        if (positions >= self.level_codes.shape[1]).any():
            raise ValueError(f"unpack: positions must be below {self.level_codes.shape[1]}, the number of levels.")
        codes = np.take_along_axis(self.level_codes, positions[:, None].astype(int), axis=1)[:, 0]
        return dataclasses.replace(self, codes=codes)

    def predict(self, X_new: Any, feature_bits: int | None = None) -> np.ndarray:
        """f at new inputs, shape (n_new,).

        :param X_new: new inputs, shape (n_new, d).
        :param feature_bits: round the features of each row (times the steps) to signed integers of so many bits, 2 to
            16, with a scale of that row's own, and add products of integers only. ``None`` keeps features in float64.
        :raises ValueError: for other numbers of bits.
        """
        X_new, _ = prediction_inputs(X_new, None, self.basis.input_dim)
        whole = isinstance(feature_bits, int) and not isinstance(feature_bits, bool)
        if feature_bits is not None and not (whole and 2 <= feature_bits <= 16):
            raise ValueError(f"predict: `feature_bits` must be an integer from 2 to 16, or None; got {feature_bits!r}.")
        used = np.flatnonzero((self.codes != 0) | (self.offset != 0))
        codes = self.codes[used].astype(np.int64)
        parts = []
        for start in range(0, len(X_new), ROWS):
            Phi = self.basis.host_features(X_new[start : start + ROWS])[:, used]
            scaled = Phi * self.step[used]
            scale = np.ones(len(Phi))
            if feature_bits is not None:
                size = np.max(np.abs(scaled), axis=1, initial=0.0) / (2 ** (feature_bits - 1) - 1)
                scale = np.where(size > 0, size, 1.0)
                scaled = np.rint(scaled / scale[:, None]).astype(np.int64)
            parts.append(scale * (scaled @ codes) + Phi @ self.offset[used])
        return np.concatenate(parts) if parts else np.zeros(0)


def quantized(basis: Basis, levels: np.ndarray, weights: np.ndarray) -> QuantizedWeights:
    """Weights (b,) on their levels (b, m̄), as integers."""
    step, offset, level_codes = _grid(levels)
    positions = np.argmin(np.abs(levels - weights[:, None]), axis=1)
    codes = np.take_along_axis(level_codes, positions[:, None], axis=1)[:, 0]
    return QuantizedWeights(basis, codes, step, offset, level_codes)


def _grid(levels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Step and offset of each weight, and integer codes of its levels: from zero, if they fit; else from the lowest."""
    gaps = np.diff(levels, axis=1).min(axis=1)
    smallest = np.where(levels == 0, np.inf, np.abs(levels)).min(axis=1)
    step, codes, whole = _multiples(levels, np.minimum(gaps, smallest))
    other_step, other_codes, other_whole = _multiples(levels - levels[:, :1], gaps)
    if not (whole | other_whole).all():
        first = int(np.argmin(whole | other_whole))
        raise ValueError(
            "quantize: levels must be multiples of a common step, by factors below 2**15, such as evenly spaced ones "
            f"or zero and powers of two; weight {first} has {np.array2string(levels[first], threshold=8)}. Give the "
            "prior such a `support`."
        )
    offset = np.where(whole, 0.0, levels[:, 0])
    return np.where(whole, step, other_step), offset, np.where(whole[:, None], codes, other_codes).astype(np.int16)


def _multiples(levels: np.ndarray, step: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Levels as multiples of nearly this step: the step, the multiples, and whether they give each weight's levels."""
    codes = np.rint(levels / step[:, None])
    fitted = np.sum(codes * levels, axis=1) / np.sum(codes**2, axis=1)
    error = np.abs(fitted[:, None] * codes - levels).max(axis=1)
    whole = (error <= ROUNDING * np.abs(levels).max(axis=1)) & (np.abs(codes).max(axis=1) < LARGEST)
    return fitted, codes, whole
