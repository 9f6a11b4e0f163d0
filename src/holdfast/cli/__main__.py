"""`python -m holdfast.cli` is the command, for where its script is not on the path."""

import sys

from holdfast.cli import main

sys.exit(main())
