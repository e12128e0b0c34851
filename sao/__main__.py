import sys

from sao.cli.main import main

sys.exit(main())
