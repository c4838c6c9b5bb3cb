"""`python -m derivable.cli`: the command line where the script `derivable` is not on the path."""

import sys

from derivable.cli.main import main

sys.exit(main())
