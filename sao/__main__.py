import sys

from sao.cli import main

sys.exit(main())
