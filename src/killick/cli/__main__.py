"""`python -m killick.cli` is the command, for where its script is not on the path."""

import sys

from killick.cli import main

sys.exit(main())
