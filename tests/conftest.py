import signal
import sys
from pathlib import Path

# Tests in any folder may `import reference`, the slow oracles beside this file.
sys.path.insert(0, str(Path(__file__).parent))

# A job in the background ignores Ctrl-C, and so do its processes: tests that press it would wait for minutes.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
