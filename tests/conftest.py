import sys
from pathlib import Path

# Tests in any folder may `import reference`, the slow oracles beside this file.
sys.path.insert(0, str(Path(__file__).parent))
