"""What the trained loss does: where it would move points of the plane, and where one update moves the embeddings."""

import copy

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from sao.methods.adversarial import Adversarial, Side
from sao.methods.method import Batch, total


def pull_on_points(method: Adversarial, points: np.ndarray, data: np.ndarray) -> np.ndarray:
    """−∂L/∂x (n, 2) for points in the place of generated samples: the way in which the loss asks G to move each of them.

    L is the generator's own loss, between the embeddings of the points and those of data samples; the averaged D gives both.
    """
    network = method.average_discriminator.network
    inputs = torch.from_numpy(np.asarray(points, np.float32)).requires_grad_()
    with torch.no_grad():
        real_features, real = network(torch.from_numpy(np.asarray(data, np.float32)))
    fake_features, fake = network(inputs)
    keys = [F.normalize(features.detach()) for features in (real_features, fake_features)]
    # The method's own sum of terms, and not a second copy of it: the panel must show the loss that was trained.
    loss = total(method.generator_losses(Side(real, keys[0]), Side(fake, keys[1])))
    (gradient,) = torch.autograd.grad(loss, inputs)
    return -gradient.numpy()


def update_directions(method: Adversarial, batch: Tensor, points: np.ndarray, step: int) -> np.ndarray:
    """How one training step on a batch moves the embedding of each point, (n, p); the method itself is left as it was."""
    inputs = torch.from_numpy(np.asarray(points, np.float32))
    updated = copy.deepcopy(method)
    updated.step(Batch(batch, torch.arange(len(batch))), step)
    return (_embedded(updated, inputs) - _embedded(method, inputs)).numpy()


@torch.no_grad()
def _embedded(method: Adversarial, inputs: Tensor) -> Tensor:
    """Unit embeddings by the D that learns; its average would show a hundredth of the update."""
    embeddings = method.discriminator(inputs)[1]
    return embeddings if embeddings.shape[1] == 1 else F.normalize(embeddings)
