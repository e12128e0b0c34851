"""A vision transformer over patches, with blocks from outside, and the decoder that fills in those which were left out."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from sao.networks.base import Encoder, check_sizes

MakeBlock = Callable[[int, int], nn.Module]  # (width, heads) → a module from (n, tokens, width) to the same
EPSILON = 1e-6  # of every LayerNorm
TOKEN_DEVIATION = 0.02  # of the learnt tokens where they begin
LONGEST_WAVE = 10_000


class VisionTransformer(Encoder):
    """(n, c, h, w) in [-1, 1] → the class token (n, width) after the last norm."""

    positions: Tensor

    def __init__(self, channels: int, size: int, patch: int, width: int, depth: int, heads: int, block: MakeBlock) -> None:
        super().__init__()
        check_sizes(channels=channels, size=size, patch=patch, width=width, depth=depth, heads=heads)
        if size % patch:
            raise ValueError(f"patches of {patch}x{patch} do not divide images of {size}x{size}")
        self.channels, self.size, self.patch, self.feature_size = channels, size, patch, width
        self.side = size // patch
        self.embed = nn.Linear(channels * patch**2, width)
        self.class_token = nn.Parameter(TOKEN_DEVIATION * torch.randn(1, 1, width))
        self.blocks = nn.Sequential(*[block(width, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(width, eps=EPSILON)
        self.register_buffer("positions", positions(self.side, width))
        initialise(self)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.tokens(self.patches(inputs))[:, 0]

    def patches(self, images: Tensor) -> Tensor:
        """(n, side², patch · patch · c): the patches line by line, in each the pixels line by line."""
        if images.ndim != 4 or images.shape[1:] != (self.channels, self.size, self.size):
            raise ValueError(f"images must be (n, {self.channels}, {self.size}, {self.size}), got {tuple(images.shape)}")
        grid = images.unflatten(3, (self.side, self.patch)).unflatten(2, (self.side, self.patch))  # n c line p column q
        return grid.permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)

    def tokens(self, patches: Tensor, kept: Tensor | None = None) -> Tensor:
        """Tokens (n, 1 + m, width) of the class and of the patches, or of the m of them whose places (n, m) are kept."""
        places = self.positions[1:]
        if kept is not None:
            patches, places = take(patches, kept), places[kept]
        first = (self.class_token + self.positions[:1]).expand(patches.shape[0], -1, -1)
        tokens = torch.cat([first, self.embed(patches) + places], dim=1)
        return self.norm(self.blocks(tokens))


class PatchDecoder(nn.Module):
    """Tokens of the class and of the kept patches → all patches (n, side², outputs)."""

    positions: Tensor

    def __init__(self, inputs: int, outputs: int, side: int, width: int, depth: int, heads: int, block: MakeBlock) -> None:
        super().__init__()
        check_sizes(inputs=inputs, outputs=outputs, side=side, width=width, depth=depth, heads=heads)
        self.embed = nn.Linear(inputs, width)
        self.mask_token = nn.Parameter(TOKEN_DEVIATION * torch.randn(1, 1, width))
        self.blocks = nn.Sequential(*[block(width, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(width, eps=EPSILON)
        self.output = nn.Linear(width, outputs)
        self.register_buffer("positions", positions(side, width))
        initialise(self)

    def forward(self, tokens: Tensor, kept: Tensor) -> Tensor:
        embedded = self.embed(tokens)
        patches = self.mask_token.to(embedded).expand(len(tokens), len(self.positions) - 1, -1)
        patches = patches.scatter(1, _columns(kept, embedded.shape[2]), embedded[:, 1:])
        everything = torch.cat([embedded[:, :1], patches], dim=1) + self.positions
        return self.output(self.norm(self.blocks(everything)))[:, 1:]


def take(tokens: Tensor, places: Tensor) -> Tensor:
    """(n, m, d): those tokens of each sample (n, all, d) that stand at its places (n, m)."""
    return tokens.gather(1, _columns(places, tokens.shape[2]))


def _columns(places: Tensor, width: int) -> Tensor:
    return places[:, :, None].expand(-1, -1, width)


def positions(side: int, width: int) -> Tensor:
    """(1 + side², width): nothing for the class; for a patch sines and cosines of its column, then of its line."""
    if width % 4:
        raise ValueError(f"width must be a multiple of 4 for waves along both sides, got {width}")
    frequencies = LONGEST_WAVE ** -(torch.arange(width // 4, dtype=torch.float64) / (width // 4))
    phases = torch.outer(torch.arange(side, dtype=torch.float64), frequencies)
    waves = torch.cat([phases.sin(), phases.cos()], dim=1)  # (side, width / 2)
    columns, lines = waves.repeat(side, 1), waves.repeat_interleave(side, 0)
    of_patches = torch.cat([columns, lines], dim=1)
    return torch.cat([of_patches.new_zeros(1, width), of_patches]).float()


def initialise(network: nn.Module) -> None:
    """Xavier's uniform weights in every linear layer, without a bias to begin with."""
    for module in network.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)
