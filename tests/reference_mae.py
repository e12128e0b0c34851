"""One whole step of a masked autoencoder, sample by sample and patch by patch; the transformer is written out."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from reference_baselines import gradients, length, spread
from reference_losses import Terms
from reference_step import AdamW
from torch import Tensor, nn

Weights = Mapping[str, Tensor]


@dataclass
class MAE:
    """`weights` is a module that has the parameters under the product's names; nothing of it is ever called."""

    weights: nn.Module
    patch: int
    heads: int
    decoder_heads: int
    optimiser: AdamW
    gradients: dict[str, Tensor] = field(default_factory=dict)

    def step(self, images: Tensor, kept: Tensor) -> Terms:
        """`kept` (n, m) has the places of the patches that are seen."""
        samples = [self._sample(image, set(seen.tolist())) for image, seen in zip(images, kept, strict=True)]
        losses, features = zip(*samples, strict=True)
        loss = torch.stack(losses).sum() / len(losses)
        self.gradients = gradients(loss, self.weights)
        self.optimiser.step(self.weights, self.gradients)
        logged = {"reconstruction": loss, "spread": spread(torch.stack(features)), "gradient_norm": length(self.gradients)}
        return {f"network/{name}": value.detach() for name, value in logged.items()}

    def _sample(self, image: Tensor, seen: set[int]) -> tuple[Tensor, Tensor]:
        side = image.shape[1] // self.patch
        patches = [patch(image, self.patch, place // side, place % side) for place in range(side**2)]
        tokens = self.encode(patches, sorted(seen), side)
        guesses = self._decode(tokens, sorted(seen), side)
        hidden = [place for place in range(side**2) if place not in seen]
        errors = [((guesses[place] - standard(patches[place])) ** 2).sum() / len(patches[place]) for place in hidden]
        return torch.stack(errors).sum() / len(hidden), tokens[0]

    def encode(self, patches: list[Tensor], places: list[int], side: int) -> Tensor:
        w: Weights = dict(self.weights.named_parameters())
        tokens = [w["encoder.class_token"][0, 0]]
        for place in places:
            embedded = w["encoder.embed.weight"] @ patches[place] + w["encoder.embed.bias"]
            tokens.append(embedded + position(place // side, place % side, len(embedded)))
        return norm(self._blocks(torch.stack(tokens), "encoder", self.heads), w, "encoder.norm")

    def _decode(self, tokens: Tensor, places: list[int], side: int) -> Tensor:
        w: Weights = dict(self.weights.named_parameters())
        embedded = [w["decoder.embed.weight"] @ token + w["decoder.embed.bias"] for token in tokens]
        everything = [embedded[0]]
        for place in range(side**2):
            token = embedded[1 + places.index(place)] if place in places else w["decoder.mask_token"][0, 0]
            everything.append(token + position(place // side, place % side, len(token)))
        decoded = norm(self._blocks(torch.stack(everything), "decoder", self.decoder_heads), w, "decoder.norm")
        return decoded[1:] @ w["decoder.output.weight"].T + w["decoder.output.bias"]

    def _blocks(self, tokens: Tensor, owner: str, heads: int) -> Tensor:
        w: Weights = dict(self.weights.named_parameters())
        for name in sorted({key.split(".")[2] for key in w if key.startswith(f"{owner}.blocks.")}, key=int):
            block = {
                key.removeprefix(f"{owner}.blocks.{name}."): value
                for key, value in w.items()
                if f"{owner}.blocks.{name}." in key
            }
            tokens = tokens + attention(norm(tokens, block, "norm1"), block, heads)
            inner = norm(tokens, block, "norm2") @ block["mlp.fc1.weight"].T + block["mlp.fc1.bias"]
            inner = inner * (1 + torch.erf(inner / math.sqrt(2))) / 2
            tokens = tokens + inner @ block["mlp.fc2.weight"].T + block["mlp.fc2.bias"]
        return tokens


def patch(image: Tensor, size: int, line: int, column: int) -> Tensor:
    """The values of one patch: pixel by pixel as one reads, the colours of each together."""
    pixels = [(line * size + i, column * size + j) for i in range(size) for j in range(size)]
    return torch.stack([image[c, i, j] for i, j in pixels for c in range(len(image))])


def standard(values: Tensor) -> Tensor:
    mean = values.sum() / len(values)
    variance = ((values - mean) ** 2).sum() / (len(values) - 1)
    return (values - mean) / (variance + 1e-6).sqrt()


def position(line: int, column: int, width: int) -> Tensor:
    """Sines and cosines of the column, then of the line, with wavelengths from 2π to 10,000 · 2π; kept in single precision."""
    quarter = width // 4
    angles = [[place / 10_000 ** (k / quarter) for k in range(quarter)] for place in (column, line)]
    values = [function(angle) for one in angles for function in (math.sin, math.cos) for angle in one]
    return torch.tensor(values, dtype=torch.float32).double()


def norm(tokens: Tensor, weights: Weights, name: str) -> Tensor:
    rows = []
    for token in tokens:
        mean = token.sum() / len(token)
        variance = ((token - mean) ** 2).sum() / len(token)
        rows.append((token - mean) / (variance + 1e-6).sqrt() * weights[f"{name}.weight"] + weights[f"{name}.bias"])
    return torch.stack(rows)


def attention(tokens: Tensor, weights: Weights, heads: int) -> Tensor:
    """Every head by itself: it sees its own part of the queries, keys and values."""
    queries, keys, values = (tokens @ weights["attn.qkv.weight"].T + weights["attn.qkv.bias"]).chunk(3, dim=1)
    size = queries.shape[1] // heads
    found = []
    for head in range(heads):
        own = slice(head * size, (head + 1) * size)
        shares = (queries[:, own] @ keys[:, own].T / math.sqrt(size)).exp()
        found.append(shares / shares.sum(1, keepdim=True) @ values[:, own])
    return torch.cat(found, dim=1) @ weights["attn.proj.weight"].T + weights["attn.proj.bias"]
