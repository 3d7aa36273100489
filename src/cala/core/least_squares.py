"""Ridge regression on one-hot targets that grows row by row (GKEAL's recursive least squares).

The textbook recursion keeps R = (ΦᵀΦ + γI)⁻¹ and W, and a session of rows X changes them by

    K = (I + X R Xᵀ)⁻¹,   R ← R − R Xᵀ K X R,   W ← W + R Xᵀ (Y − X W).

Here the same is done in coordinates ψ = L⁻¹φ with L Lᵀ = ΦᵀΦ + γI of the base rows. In them the
base session's R is the identity and every later one is I − UᵀU, so a session costs what its rows
cost (m²k instead of mk²) and nothing is ever inverted that is badly conditioned.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from cala.core.growing import GrowingRows


class RidgeClassifier:
    """All rows seen so far, as the ridge solution of them; immutable, so copies may share it.

    root : (k, k) L, lower triangular, of the base rows
    weights : (C, k) one row per class; scores are ψ·weightsᵀ
    seen : (M, k) U, what later rows took from R; at most 2k rows
    """

    def __init__(self, root: Tensor, weights: Tensor, seen: Tensor) -> None:
        self.root = root
        self.weights = weights
        self._seen = GrowingRows(seen)

    @property
    def seen(self) -> Tensor:
        return self._seen.rows

    @classmethod
    def solve(
        cls, parts: Iterable[tuple[Tensor, Tensor]], n_classes: int, size: int, ridge: float
    ) -> RidgeClassifier:
        """The solution for rows that come in parts: features φ (n, k) float64, columns (n,).

        size : k; ridge : γ
        """
        gram = ridge * torch.eye(size, dtype=torch.float64)
        sums = torch.zeros(n_classes, size, dtype=torch.float64)
        for phi, columns in parts:
            gram, sums = gram.to(phi.device), sums.to(phi.device)
            gram.addmm_(phi.T, phi)
            sums.index_add_(0, columns, phi)
        root = torch.linalg.cholesky(gram)
        weights = torch.linalg.solve_triangular(root, sums.T, upper=False).T
        return cls(root, weights.contiguous(), root.new_zeros(0, size))

    def coordinates(self, phi: Tensor) -> Tensor:
        """ψ = L⁻¹φ, row by row: (n, k) -> (n, k)."""
        return torch.linalg.solve_triangular(self.root, phi.T, upper=False).T

    def extended(self, psi: Tensor, columns: Tensor, weight: Tensor) -> RidgeClassifier:
        """Learn rows; columns past the end are new classes, which start from weights of zero.

        psi : (m, k) coordinates; columns : (m,) int64; weight : (m,) how often each row counts
        """
        new = max(int(columns.max()) + 1 - len(self.weights), 0)
        weights = torch.cat([self.weights, self.weights.new_zeros(new, self.weights.shape[1])])
        often = weight.to(torch.float64).sqrt()[:, None]
        psi = psi.to(torch.float64) * often
        targets = psi.new_zeros(len(psi), len(weights))
        targets[torch.arange(len(psi), device=psi.device), columns] = often[:, 0]
        gain = psi - (psi @ self.seen.T) @ self.seen  # X R
        inner = torch.linalg.cholesky(
            torch.eye(len(psi), dtype=psi.dtype, device=psi.device) + gain @ psi.T
        )
        step = torch.linalg.solve_triangular(inner, gain, upper=False)
        error = torch.linalg.solve_triangular(inner, targets - psi @ weights.T, upper=False)
        grown = RidgeClassifier.__new__(RidgeClassifier)
        grown.root, grown.weights = self.root, weights + error.T @ step
        grown._seen = self._seen.appended(step)
        if len(grown.seen) > 2 * len(self.root):
            grown._seen = GrowingRows(torch.linalg.qr(grown.seen, mode="r").R)
        return grown

    def without(self, column: int) -> RidgeClassifier:
        """One class removed. Its rows remain rows of none of the others, which stay as they are."""
        smaller = RidgeClassifier.__new__(RidgeClassifier)
        smaller.root, smaller._seen = self.root, self._seen
        smaller.weights = torch.cat([self.weights[:column], self.weights[column + 1 :]])
        return smaller

    def scores(self, psi: Tensor) -> Tensor:
        """(n, k) coordinates -> (n, C), about 1 for the right class and 0 for others."""
        return psi @ self.weights.to(psi.dtype).T

    def leave_one_out(self, scores: Tensor, psi: Tensor, own: Tensor, weight: Tensor) -> Tensor:
        """Scores of each row by the solution without it: (ŷ − h·y) / (1 − h), h its leverage.

        scores : (n, C); psi : (n, k)
        own : (n,) the column that each row was learned with, -1 if it was not
        weight : (n,) how often it counted
        """
        rows = (own >= 0).nonzero()[:, 0]
        mine = psi[rows]
        known = mine @ self.seen.to(psi.dtype).T
        leverage = weight[rows].to(psi.dtype) * (mine.square().sum(1) - known.square().sum(1))
        leverage = leverage.clamp(0, 1 - 1e-6)[:, None]
        left = scores[rows]
        left.scatter_add_(1, own[rows, None], -leverage)
        result = scores.clone()
        result[rows] = left / (1 - leverage)
        return result
