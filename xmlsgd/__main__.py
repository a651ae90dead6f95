"""`python -m xmlsgd` and the console script `xmlsgd`."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
