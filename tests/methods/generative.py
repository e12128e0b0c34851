"""What the whole-step tests of the generative baselines share: methods in float64, data, and what a step was seen to do."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import tiny
import torch
from product import unsettle
from torch import Tensor, nn

from sao.config import build
from sao.core.random import normal
from sao.methods import Batch, Generative, Method
from sao.training import checkpoint

Kind = TypeVar("Kind", bound=Method)
SEED = 5
DISCRIMINATOR = {"learning_rate": 3e-3, "betas": (0.0, 0.9), "weight_decay": 0.2}
GENERATOR = {"learning_rate": 2e-3, "betas": (0.6, 0.95), "weight_decay": 0.1}


def built(
    kind: type[Kind], shape: tuple[int, ...], samples: int, batch: int, encoder: dict[str, Any] | None = None, **method: Any
) -> Kind:
    """The product, of a class that is known, in float64, away from where weights begin."""
    values: dict[str, Any] = {"seed": SEED, "method": method, "train": {"batch": batch}}
    found = build(values | ({} if encoder is None else {"encoder": encoder})).build_method(shape, samples, None).double()
    assert isinstance(found, kind)
    unsettle(found)
    return found


@dataclass
class Data:
    """Training data that are these images."""

    images: Tensor

    def __len__(self) -> int:
        return len(self.images)

    def inputs(self, rows: Tensor) -> Tensor:
        return self.images[rows]


def images(count: int, shape: tuple[int, ...]) -> Tensor:
    return 2 * torch.rand(count, *shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64) - 1


def drawn(purpose: str, step: int, batch: int, *shape: int) -> Tensor:
    """What the method draws for a purpose, by the promise that a draw is a function of seed, purpose, step and row."""
    return normal(SEED, purpose, step, slice(0, batch), shape, "cpu").double()


def step(method: Method, inputs: Tensor, number: int) -> tuple[dict[str, Tensor], dict[str, list[dict[str, Tensor]]]]:
    """The scalars of a step, and of each player the gradients of its updates."""
    with _gradients(method) as found:
        scalars = method.step(Batch(inputs, torch.arange(len(inputs))), number)
    return scalars, found


@contextmanager
def _gradients(method: Method) -> Iterator[dict[str, list[dict[str, Tensor]]]]:
    found: dict[str, list[dict[str, Tensor]]] = {name: [] for name in method.optimisers}
    hooks = []
    for player, optimiser in method.optimisers.items():
        network = method.get_submodule(player)
        names = {parameter: name for name, parameter in network.named_parameters()}

        def note(optimiser, *_, names=names, kept=found[player]) -> None:
            moved = [p for group in optimiser.param_groups for p in group["params"] if p.grad is not None]
            kept.append({names[parameter]: parameter.grad.clone() for parameter in moved})

        hooks.append(optimiser.register_step_pre_hook(note))
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def state(**networks: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers of some networks, by the names that they are given here."""
    return {f"{owner}.{name}": value for owner, network in networks.items() for name, value in network.state_dict().items()}


def assert_resumed_is_equal(folder: Path, new: Callable[[], Method], stopped: int, last: int) -> Method:
    """A run that is stopped after some steps and the one that is not, which is returned, end alike."""
    whole, part, restored = new(), new(), new()
    tiny.make_steps(whole, 0, last)
    tiny.make_steps(part, 0, stopped)
    checkpoint.save(folder, part, stopped, keep=1)
    assert checkpoint.load_latest(folder, restored, report=print) == stopped
    tiny.make_steps(restored, stopped, last)
    torch.testing.assert_close(restored.state_dict(), whole.state_dict(), rtol=0, atol=0)
    return whole


def distance_to_digits(method: Generative, deviations: bool = False) -> float:
    """Of samples: how far their mean image, and the deviation of their pixels, are from those of the digits."""
    latents = torch.randn(200, *method.latent_shape, generator=torch.Generator().manual_seed(0))
    drawn, real = method.decode(latents), tiny.dataset().train.inputs(slice(None))
    apart = (drawn.mean(0) - real.mean(0)).norm()
    return float(apart + (drawn.std(0) - real.std(0)).norm() if deviations else apart)
