"""`python -m derivable` is the command `derivable`, also where the scripts of the environment are not on the path."""

import sys

from derivable.cli.main import main

sys.exit(main())
