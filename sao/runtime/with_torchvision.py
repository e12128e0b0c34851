"""`import sao.runtime.with_torchvision` before `import timm`: then timm imports beside a torch for the processor too."""

from sao.runtime.torchvision_import import import_torchvision

import_torchvision()
