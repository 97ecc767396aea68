# SPDX-License-Identifier: Apache-2.0
# small_gpt.py - a small character-level GPT in pipeline stages, trained on Debian's fortunes.
import pathlib

import torch
from torch import nn

TEXTS = ("/usr/share/games/fortunes/literature", "/usr/share/games/fortunes/fortunes")
LETTERS = 96


def text():
    """Returns the text as numbers below LETTERS, or None if the package fortunes is missing."""
    for name in TEXTS:
        path = pathlib.Path(name)
        if path.exists():
            raw = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8).long()
            return torch.where((raw >= 32) & (raw < 127), raw - 32, torch.full_like(raw, 95))
    return None


def samples(count, length, of=None, first=0):
    """Returns (x, y), each of shape (count, length): the input, and the next characters."""
    whole = text() if of is None else of
    starts = (first + torch.arange(count)) * length
    x = torch.stack([whole[s : s + length] for s in starts.tolist()])
    y = torch.stack([whole[s + 1 : s + 1 + length] for s in starts.tolist()])
    return x, y


class Block(nn.Module):
    def __init__(self, width, heads=4):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, t, 3, self.heads, c // self.heads).unbind(2)
        mixed = nn.functional.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True
        )
        x = x + self.out(mixed.transpose(1, 2).reshape(n, t, c))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Stage(nn.Module):
    """Some blocks. The first stage embeds characters, and the last one returns logits."""

    def __init__(self, index, stages, width=64, length=32, blocks=1, seed=0):
        super().__init__()
        torch.manual_seed(1000 * seed + index)
        self.first, self.last = index == 0, index == stages - 1
        if self.first:
            self.letters = nn.Embedding(LETTERS, width)
            self.places = nn.Parameter(0.02 * torch.randn(length, width))
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        if self.last:
            self.norm, self.logits = nn.LayerNorm(width), nn.Linear(width, LETTERS)

    def forward(self, x):
        if self.first:
            x = self.letters(x) + self.places
        for block in self.blocks:
            x = block(x)
        if not self.last:
            return x
        return self.logits(self.norm(x)).clone()  # torch 2.6 allows no view as output


def loss_of(logits, y):
    return nn.functional.cross_entropy(logits.reshape(-1, LETTERS).float(), y.reshape(-1))
