import pytest
import torch


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """The weights and inputs that a test draws are the same each time."""
    torch.manual_seed(0)
