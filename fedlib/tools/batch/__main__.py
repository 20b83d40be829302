"""The command line: `python -m fedlib.tools.batch`."""

import signal
import sys

from fedlib.tools.batch.command import main

signal.signal(signal.SIGTERM, signal.default_int_handler)  # `kill` ends the kernels too, as Ctrl-C does
sys.exit(main())
