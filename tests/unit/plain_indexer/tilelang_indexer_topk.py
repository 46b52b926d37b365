"""Selection."""

import torch
from torch import Tensor

from .constants import BY_INDEX, WIDTH_MIN


def select(matrix: Tensor, starts: Tensor, ends: Tensor, topk: int) -> tuple[Tensor, Tensor]:
    """[B,S,N] and the ranges of visible keys [M,S] -> scores and indices."""
    keys = matrix.shape[-1]
    order = torch.sort(matrix, dim=-1, descending=True, stable=True).indices
    hidden = (order < starts[..., None]) | (order >= ends[..., None])
    order = order.gather(-1, hidden.to(torch.int8).sort(dim=-1, stable=True).indices)[..., :topk]
    void = torch.arange(order.shape[-1], device=matrix.device) >= (ends - starts)[..., None].clamp(max=keys)
    if BY_INDEX:
        order = order.masked_fill(void, keys).sort(-1).values.clamp(max=max(keys - 1, 0))
    scores = matrix.gather(-1, order).masked_fill(void, -torch.inf)
    indices = order.masked_fill(void, -1).to(torch.int32)
    missing = 0 if WIDTH_MIN else topk - indices.shape[-1]
    pad = torch.nn.functional.pad
    return pad(scores, (0, missing), value=-torch.inf), pad(indices, (0, missing), value=-1)
