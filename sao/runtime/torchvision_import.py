"""Import torchvision where its compiled operators do not fit the installed torch.

The registry's wheel is built against CUDA and does not load beside a CPU-only torch, because two operators (nms, qnms) were
never registered. Nobody here uses them, so it is enough to declare them.
"""

import functools
import importlib
from types import ModuleType

import torch


@functools.cache
def import_torchvision() -> ModuleType:
    try:
        return importlib.import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
    library = torch.library.Library("torchvision", "FRAGMENT")
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _kept_alive.append(library)
    return importlib.import_module("torchvision")


def torchvision_datasets() -> ModuleType:
    import_torchvision()
    return importlib.import_module("torchvision.datasets")


_kept_alive: list[torch.library.Library] = []  # a library that is collected takes its operators with it
