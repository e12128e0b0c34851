"""benchmarks/averages.py: every average follows the same run, and the run is the one that it would have been without them."""

import sys
from pathlib import Path

import tiny
import torch

from sao.methods.structural import Structural

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import averages  # pyright: ignore[reportMissingImports]


def weights(network: torch.nn.Module) -> torch.Tensor:
    return torch.cat([one.detach().flatten() for one in network.parameters()])


def test_averages_of_one_run(tmp_path):
    config, data = tiny.config(), tiny.dataset()
    _, alone = tiny.trained(tmp_path / "alone")
    method, found = averages.trained(tmp_path / "run", config, data)
    assert isinstance(method, Structural)
    assert isinstance(alone, Structural)
    torch.testing.assert_close(weights(method.discriminator), weights(alone.discriminator))
    torch.testing.assert_close(weights(found[0.0].network), weights(method.discriminator))
    torch.testing.assert_close(weights(found[0.99].network), weights(method.average_discriminator.network))
    assert tiny.structural_options(config).average == 0.99
    behind = [float((weights(one.network) - weights(method.discriminator)).norm()) for one in found.values()]
    assert behind == sorted(behind), "the longer it looks back, the further it is behind"
