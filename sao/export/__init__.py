"""A run's encoder, or its generator, for those who do not have sao: ONNX, a torch.export program, or plain PyTorch."""
# ruff: noqa: F401

from sao.export.measured import against_sao, in_several_sizes
from sao.export.whole import Whole, whole_encoder, whole_generator
from sao.export.writing import PLAIN_FILES, check_can_write, write
