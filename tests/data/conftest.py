import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """What a test decodes is gone after it."""
    monkeypatch.setenv("SAO_CACHE", str(tmp_path / "cache"))
