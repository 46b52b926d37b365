"""Train a lightning indexer in a DeepSeek-V4-like layer, with its generated kernels or with their plain reference.

The layer makes queries, compressed keys and head weights from the hidden state; the generated package scores the keys
and selects the best. As in DeepSeek's training, the indexer learns where the main attention looks: the loss is the KL
divergence between the two distributions over the selected keys.

Vendor the package `tiny` beside this file, then run it; it needs torch and TileLang, no GPU, and v4gen only to vendor:

    $ v4gen vendor . tiny --output indexers
    $ python train_indexer.py
    $ python train_indexer.py --reference    # the same in plain torch
    $ python train_indexer.py --compile      # the indexer inside torch.compile
"""

import argparse
from collections.abc import Callable

import torch
from indexers.tiny import lightning_indexer
from indexers.tiny.reference import reference_indexer
from torch import Tensor, nn

WIDTH = 64  # of the hidden state
HEADS, DIM, RATIO = 4, 32, 4  # of the spec `tiny`

Indexer = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""q [S, B, H, D], k [N, B, D] and weights [S, B, H] to scores and indices [B, S, K]."""


def compress(hidden: Tensor) -> Tensor:
    """The mean of each window of RATIO tokens: [S, B, width] to [N, B, width]. An incomplete last one is no key yet."""
    windows = hidden.shape[0] // RATIO
    return hidden[: windows * RATIO].unflatten(0, (windows, RATIO)).mean(1)


class IndexerLayer(nn.Module):
    """What a model puts around the operator."""

    def __init__(self) -> None:
        super().__init__()
        self.to_q = nn.Linear(WIDTH, HEADS * DIM, bias=False)
        self.to_k = nn.Linear(WIDTH, DIM, bias=False)
        self.to_weights = nn.Linear(WIDTH, HEADS, bias=False)

    def project(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and weights of hidden [S, B, width]; the weights hold every scale, as the operator has none."""
        q = self.to_q(hidden).unflatten(-1, (HEADS, DIM))
        k = self.to_k(compress(hidden))
        return q, k, self.to_weights(hidden) * (HEADS * DIM) ** -0.5

    def forward(self, hidden: Tensor, indexer: Indexer = lightning_indexer) -> tuple[Tensor, Tensor]:
        """Scores and indices [B, S, K] of the keys that each token should attend to."""
        q, k, weights = self.project(hidden)
        return indexer(q.bfloat16(), k.bfloat16(), weights)


def main_attention(hidden: Tensor) -> Tensor:
    """Stands in for the main attention, the teacher: probabilities [B, S, N]."""
    similarity = torch.einsum("sbw,nbw->bsn", hidden, compress(hidden))
    return (similarity * WIDTH**-0.5).softmax(-1)


def divergence(scores: Tensor, indices: Tensor, attention: Tensor) -> Tensor:
    """KL divergence of the indexer's distribution over the selected keys from the attention's, mean over queries."""
    first = RATIO - 1  # tokens before it see no key
    scores, indices, attention = scores[:, first:], indices[:, first:], attention[:, first:]
    void = indices < 0
    target = attention.gather(-1, indices.clamp(min=0).long()).masked_fill(void, 0)
    target = target / target.sum(-1, keepdim=True)
    log_p = scores.log_softmax(-1).masked_fill(void, 0)
    return nn.functional.kl_div(log_p, target, reduction="sum") / target[..., 0].numel()


def train(indexer: Indexer, steps: int) -> list[float]:
    """The loss of each of `steps` steps on one random batch, from a fixed seed."""
    torch.manual_seed(0)
    layer, hidden = IndexerLayer(), torch.randn(50, 2, WIDTH)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        scores, indices = layer(hidden, indexer)
        loss = divergence(scores, indices, main_attention(hidden))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main() -> None:
    """Train as the command line says, and print the losses."""
    parser = argparse.ArgumentParser(description="Train a lightning indexer on random data.")
    parser.add_argument("--reference", action="store_true", help="in plain torch instead of kernels")
    parser.add_argument("--compile", action="store_true", help="with torch.compile around the indexer")
    parser.add_argument("--steps", type=int, default=20)
    arguments = parser.parse_args()
    indexer = reference_indexer if arguments.reference else lightning_indexer
    if arguments.compile:
        indexer = torch.compile(indexer, fullgraph=True)
    for step, loss in enumerate(train(indexer, arguments.steps)):
        print(f"step {step:3}  loss {loss:.6f}")  # noqa: T201 - a script's output


if __name__ == "__main__":
    main()
