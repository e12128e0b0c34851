"""A run's encoder, or its generator, for those who do not have sao: ONNX, a torch.export program, or plain PyTorch."""

from sao.export.whole import Whole, whole_encoder, whole_generator
from sao.export.writing import PLAIN_FILES, check_can_write, write

__all__ = ["PLAIN_FILES", "Whole", "check_can_write", "whole_encoder", "whole_generator", "write"]
