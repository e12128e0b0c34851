"""How long the report after a training will take on this machine."""

import math
import time

import torch

from sao.data.dataset import Samples
from sao.evaluation.extract import extract
from sao.methods import Method, generative
from sao.report.build import AT_END, Limits

TIMED_SAMPLES = 32
THUMBNAIL_SECONDS = 3e-3  # of one core, for the thumbnail of a sample and the search for its copies
JACOBIAN_PASSES = 12  # forth and back, of a sample through the network
LAYOUT_STEPS = 600_000  # operations on one number that t-SNE takes for a point, times the logarithm of their number


def report_seconds(method: Method, samples: Samples, total: int, limits: Limits = AT_END) -> float:
    """Of so many samples in all. A few of `samples` are passed through the network to time it."""
    points = min(total, limits.points)
    forward = _seconds_of_a_pass(method, samples)
    drawn = 0 if generative(method) is None else min(limits.generated, points)
    norms, drawing = (min(limits.seconds, passes * forward) for passes in (JACOBIAN_PASSES * points, 2 * drawn))
    n = min(points + drawn, limits.placed)
    return points * (forward + THUMBNAIL_SECONDS) + norms + drawing + n * math.log2(n + 1) * LAYOUT_STEPS * _seconds_of_a_step()


def _seconds_of_a_pass(method: Method, samples: Samples) -> float:
    device = next(method.parameters()).device
    some = slice(0, min(TIMED_SAMPLES, len(samples)))
    extract(method.features, samples, device, rows=some)  # to warm up
    started = time.perf_counter()
    extract(method.features, samples, device, rows=some)
    return (time.perf_counter() - started) / min(TIMED_SAMPLES, len(samples))


def _seconds_of_a_step() -> float:
    """Of an operation on one number, as compiled code makes it."""
    numbers = torch.ones(2**18)
    torch.add(numbers, 1)  # to warm up
    started = time.perf_counter()
    for _ in range(8):
        torch.add(numbers, 1)
    return (time.perf_counter() - started) / 8 / len(numbers)
