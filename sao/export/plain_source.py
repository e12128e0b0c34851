"""What is the same in every exported Python file. Doubled braces are single ones in the file."""

HEAD = '''"""{description}

It needs torch alone. The weights lie beside this file, in weights.safetensors.
"""

import json
import math
import operator
import struct
from pathlib import Path

import torch
from torch import Tensor, nn

WEIGHTS = Path(__file__).parent / "weights.safetensors"
BUFFERS = {buffers}  # tensors that are not learnt
KINDS = {{"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
         "I64": torch.int64, "I32": torch.int32, "U8": torch.uint8, "BOOL": torch.bool}}


def read_weights(path: Path = WEIGHTS) -> dict[str, Tensor]:
    """The tensors of a safetensors file: the length of a header, the header as JSON, the numbers."""
    data = bytearray(Path(path).read_bytes())
    (length,) = struct.unpack("<Q", data[:8])
    tensors = {{}}
    for name, about in json.loads(data[8 : 8 + length]).items():
        if name != "__metadata__":
            count, start = math.prod(about["shape"]), 8 + length + about["data_offsets"][0]
            flat = torch.frombuffer(data, dtype=KINDS[about["dtype"]], count=count, offset=start)
            tensors[name] = flat.reshape(about["shape"]).clone()
    return tensors


class Weights(nn.Module):
    """Holds tensors under their dotted names, as parameters that can be trained further."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        super().__init__()
        for name, tensor in tensors.items():
            *parents, last = name.split(".")
            place = self
            for parent in parents:
                if parent not in place._modules:
                    place.add_module(parent, nn.Module())
                place = place._modules[parent]
            if name in BUFFERS:
                place.register_buffer(last, tensor)
            else:
                place.register_parameter(last, nn.Parameter(tensor))

    def tensors(self) -> dict[str, Tensor]:
        return dict(self.named_parameters()) | dict(self.named_buffers())

'''

FOR_IMAGES = '''
class Encoder(Weights):
    """Images (n, h, w, c) as uint8, or (n, c, h, w) as float in [-1, 1], of the size below → features (n, num_features).

    It can stand where a timm model without a classifier does: forward_features gives the last feature map (or tokens),
    forward_head the features of it, forward_intermediates the maps on the way.
    """

    num_features = {features}
    num_classes = 0
    input_size = {shape}
    mean = std = (0.5,) * input_size[0]
    pretrained_cfg = {{"input_size": input_size, "mean": mean, "std": std, "num_classes": 0}}
    feature_info = {maps}

    def forward(self, images: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(images))

    def prepared(self, images: Tensor) -> Tensor:
        if images.dtype != torch.uint8:
            return images
        return images.permute(0, 3, 1, 2).float() / 127.5 - 1

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        return {last}

    def forward_features(self, x: Tensor) -> Tensor:
        return self._network(self.prepared(x), [], None)

    def forward_intermediates(
        self,
        x: Tensor,
        indices: int | list[int] | tuple[int, ...] | None = None,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
    ) -> list[Tensor] | tuple[Tensor, list[Tensor]]:
        """The output of forward_features and the maps (n, c, h, w) on the way to it, as feature_info lists them.

        `indices` are numbers of maps, negative ones from the end; a single number means so many of the last; None means all.
        With `stop_early` nothing after the last of them is computed. `norm` is there for timm: no map has a norm of its own.
        """
        if output_fmt != "NCHW":
            raise ValueError(f"output_fmt must be NCHW, got {{output_fmt!r}}")
        count = len(self.feature_info)
        wanted = count if indices is None else indices
        taken = range(count - wanted, count) if isinstance(wanted, int) else [i + count * (i < 0) for i in wanted]
        if not taken or not all(0 <= i < count for i in taken):
            raise ValueError(f"indices must choose among {{count}} maps, got {{indices}}")
        maps: list[Tensor] = []
        x = self._network(self.prepared(x), maps, max(taken) if stop_early else None)
        chosen = [{as_map} for i, y in enumerate(maps) if i in taken]
        return chosen if intermediates_only else (x, chosen)

    def _network(self, inputs: Tensor, maps: list[Tensor], last: int | None) -> Tensor:
        w = self.tensors()
{body}
'''

_BYTES = """        if images.dtype != torch.uint8:
            return images
        return images.permute(0, 3, 1, 2).float() / 127.5 - 1
"""
_NUMBERS = """        low, factor = (torch.tensor(of, device=images.device).view(-1, 1, 1) for of in (LOW, FACTOR))
        return ((images.permute(0, 3, 1, 2).float() - low) * factor - 1).clamp(-1, 1)
"""
_TAKES = "Images (n, h, w, c) as uint8, or (n, c, h, w) as float in [-1, 1], of the size below"
FOR_DEEP_IMAGES = "\nLOW = {low!r}\nFACTOR = {factor!r}  # 2 / (high - low) of each channel\n\n" + FOR_IMAGES.replace(
    _BYTES, _NUMBERS
).replace(_TAKES, "Images (n, h, w, c) in the units of the data, of the size below")

FOR_ROWS = '''
FACTOR = {factor!r}


class Encoder(Weights):
    """Rows (n, columns) in their original units, as float64 where columns have large means → features (n, num_features)."""

    num_features = {features}
    num_classes = 0
    input_size = {shape}

    def forward(self, rows: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(rows))

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        return {last}

    def forward_features(self, rows: Tensor) -> Tensor:
        w = self.tensors()
        inputs = ({before}).float()
{body}
'''

FOR_GENERATOR = '''
class Generator(Weights):
    """Latents (n, *latent_shape), normal draws → uint8 images (n, h, w, c), or rows in their original units."""

    latent_shape = {shape}

    def forward(self, latents: Tensor) -> Tensor:
        w, x = self.tensors(), self.generated(latents)
        return {after}

    def generated(self, inputs: Tensor) -> Tensor:
        """In the scale of the network: images in [-1, 1]."""
        w = self.tensors()
{body}
'''

TAIL = """

def load(path: Path = WEIGHTS) -> {name}:
    return {name}(read_weights(path)).eval()
"""
