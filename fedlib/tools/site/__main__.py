"""The command line: `python -m fedlib.tools.site build`."""

import sys

from fedlib.tools.site.entry import main

sys.exit(main())
