"""``python -m torchonline``: the command line."""

import sys

from torchonline.command_line import main

if __name__ == "__main__":
    sys.exit(main())
