import os
import signal
import sys
from pathlib import Path

import pytest

# Tests in any folder may `import reference`, the slow oracles beside this file.
sys.path.insert(0, str(Path(__file__).parent))

# A job in the background ignores Ctrl-C, and so do its processes: tests that press it would wait for minutes.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Generation metrics take the fast stand-in; tests of the real Inception unset this.
os.environ["SAO_INCEPTION_WEIGHTS"] = "none"


@pytest.fixture(autouse=True)
def only_what_is_in_the_package():
    """What a test registers from outside is gone after it."""
    yield
    if (outside := sys.modules.get("sao.config.outside")) is not None:
        outside.forget()
