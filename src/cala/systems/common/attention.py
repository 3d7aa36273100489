"""Attention among prototypes and a query: the graph of CEC, and the calibration of LIMIT.

Every query is put together with all prototypes as one set, and all of them attend to each other.
A prototype's own share of that sum is the same for every query, so it is computed once: no
prototype is copied per query.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Self

from cala.training.objective import Objective

SCALE = 16.0  # of the logits that are learned with it
PART_PREFIX = "attention."  # what the names of its tensors begin with, beside an encoder
ATTENTION_DROPOUT, DROPOUT = 0.1, 0.5
_SCORES = 2**23  # numbers of one temporary, in inference


class SetAttention(nn.Module):
    """One head of self-attention with a residual and layer norm: (…, m, d) -> (…, m, d).

    Tokens are unit embeddings times √d, so that their numbers are about 1 as layer norm leaves
    them. Logits are cosines between a query's token and the prototypes' tokens afterwards.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(dim, dim, bias=False) for _ in range(3))
        for layer in (self.query, self.key, self.value):
            nn.init.normal_(layer.weight, std=math.sqrt(1 / dim))
        self.out = nn.Linear(dim, dim)
        nn.init.zeros_(self.out.weight)  # at the start attention changes nothing
        nn.init.zeros_(self.out.bias)
        self.norm = nn.LayerNorm(dim)
        self.dim = dim

    def forward(self, prototypes: Tensor, queries: Tensor) -> Tensor:
        """Cosines (…, n, C) after attention; dropout acts in training mode.

        prototypes : (…, C, d) unit vectors; queries : (…, n, d) unit vectors
        """
        return self._attended(prototypes, queries, dropping=self.training)

    def _attended(self, prototypes: Tensor, queries: Tensor, *, dropping: bool) -> Tensor:
        p, x = self._tokens(prototypes), self._tokens(queries)
        root = math.sqrt(self.dim)
        p_q, p_k, p_v = self.query(p), self.key(p), self.value(p)
        x_q, x_k, x_v = self.query(x), self.key(x), self.value(x)
        among = p_q @ p_k.mT / root  # (…, C, C): the same for every query
        to_query = x_k @ p_q.mT / root  # (…, n, C): prototype c attends to query i
        from_query = x_q @ p_k.mT / root  # (…, n, C): query i attends to prototype c
        alone = (x_q * x_k).sum(-1, keepdim=True) / root  # (…, n, 1)

        n = queries.shape[-2]
        wide = among.unsqueeze(-3).expand(*among.shape[:-2], n, *among.shape[-2:])
        of_p = torch.cat([wide, to_query.unsqueeze(-1)], -1).softmax(-1)  # (…, n, C, C + 1)
        of_p = F.dropout(of_p, ATTENTION_DROPOUT, dropping)
        of_x = torch.cat([from_query, alone], -1).softmax(-1)
        of_x = F.dropout(of_x, ATTENTION_DROPOUT, dropping)
        summed_p = of_p[..., :-1] @ p_v.unsqueeze(-3) + of_p[..., -1:] * x_v.unsqueeze(-2)
        summed_x = of_x[..., :-1] @ p_v + of_x[..., -1:] * x_v
        tokens = self.norm(p.unsqueeze(-3) + F.dropout(self.out(summed_p), DROPOUT, dropping))
        query = self.norm(x + F.dropout(self.out(summed_x), DROPOUT, dropping))
        return (F.normalize(tokens, dim=-1) @ F.normalize(query, dim=-1).unsqueeze(-1)).squeeze(-1)

    def _tokens(self, unit: Tensor) -> Tensor:
        return math.sqrt(self.dim) * unit

    @torch.no_grad()
    def cosines(self, prototypes: Tensor, queries: Tensor) -> Tensor:
        """`forward` without dropout, for many queries: (C, d), (n, d) -> (n, C).

        A prototype's softmax is over C + 1 tokens, of which C are the same for every query, so
        its token before layer norm is a + s·(m − b): a and b its own, m the query's, s the share
        that the query has. Everything afterwards follows from products of these.
        """
        p = self._tokens(prototypes)
        root = math.sqrt(self.dim)
        p_q, p_k, p_v = self.query(p), self.key(p), self.value(p)
        among = p_q @ p_k.T / root
        total = among.logsumexp(1)
        b = F.linear(among.softmax(1) @ p_v, self.out.weight)
        a = p + b + self.out.bias
        found = queries.new_empty(len(queries), len(p))
        step = max(1, _SCORES // (len(p) + self.dim))
        for start in range(0, len(queries), step):
            part = slice(start, start + step)
            x = self._tokens(queries[part])
            x_q, x_k, x_v = self.query(x), self.key(x), self.value(x)
            scores = torch.cat([x_q @ p_k.T, (x_q * x_k).sum(1, keepdim=True)], 1) / root
            weights = scores.softmax(1)
            seen = self.norm(x + self.out(weights[:, :-1] @ p_v + weights[:, -1:] * x_v))
            share = torch.sigmoid(x_k @ p_q.T / root - total)
            found[part] = self._normed_cosines(
                a, b, F.linear(x_v, self.out.weight), share, F.normalize(seen, dim=1)
            )
        return found

    def _normed_cosines(self, a: Tensor, b: Tensor, m: Tensor, s: Tensor, seen: Tensor) -> Tensor:
        """Cosines (n, C) of norm(a + s·(m − b)) to unit vectors seen (n, d).

        a, b : (C, d); m : (n, d); s : (n, C)
        """
        gain, offset = self.norm.weight, self.norm.bias
        a, b, m = (t - t.mean(1, keepdim=True) for t in (a, b, m))

        def products(weight: Tensor) -> Tensor:
            """Σ weight·u² of u = a + s·(m − b)."""
            aw, bw = a * weight, b * weight
            own = (aw * a).sum(1) - 2 * s * (aw * b).sum(1) + s.square() * (bw * b).sum(1)
            mine = s.square() * (m.square() @ weight)[:, None]
            return own + mine + 2 * s * (m @ aw.T) - 2 * s.square() * (m @ bw.T)

        def along(vectors: Tensor) -> Tensor:
            """u·v for vectors (n, d)."""
            return vectors @ a.T + s * ((m * vectors).sum(1, keepdim=True) - vectors @ b.T)

        width = (products(torch.ones_like(gain)) / self.dim + self.norm.eps).rsqrt()
        dots = width * along(gain * seen) + (seen @ offset)[:, None]
        both = (gain * offset).expand(len(m), -1)
        squared = width.square() * products(gain.square()) + 2 * width * along(both)
        return dots / (squared + offset.square().sum()).clamp_min(1e-12).sqrt()

    @torch.no_grad()
    def cosines_each(self, sets: Tensor, queries: Tensor) -> Tensor:
        """`cosines` where every query has prototypes of its own: (n, C, d), (n, d) -> (n, C)."""
        step = max(1, _SCORES // (sets.shape[1] * max(sets.shape[1], self.dim)))
        pairs = zip(sets.split(step), queries.split(step), strict=True)
        found = [self._attended(own, one[:, None], dropping=False) for own, one in pairs]
        return torch.cat(found)[:, 0]


class AttentionObjective(Objective):
    """Template: attention and encoder learn in episodes.

    The encoder's batch statistics stay as they are: single shots are not a batch of images.
    """

    divisible: ClassVar[bool] = False
    wants_means: ClassVar[bool] = True

    def build(self) -> None:
        self.attention = SetAttention(self.dim)

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        self.encoder.eval()
        return self

    def parts(self) -> dict[str, Tensor]:
        return {PART_PREFIX + k: v for k, v in self.attention.state_dict().items()}
