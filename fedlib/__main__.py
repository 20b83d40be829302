"""The command `fedlib`, which `make figures` and `make evidence` run in a checkout."""

import runpy
import sys

from fedlib.extras import Needs, NotInstalled
from fedlib.runs.slurm import SCRIPT

COMMANDS = {
    "figures": ("fedlib.tools.batch", "execute the notebooks of a folder"),
    "evidence": ("fedlib.studies", "execute the missing runs of the papers' tables; make tables and ledgers"),
    "site": ("fedlib.tools.site", "build the website of all results"),
    "bench": ("fedlib.tools.bench", "measure the training speed of this machine"),
    "slurm": ("", "print a script for sbatch: a sweep as a SLURM array, one cell per task"),
    "diff": ("fedlib.tools.diff", "compare executed notebooks cell by cell"),
}


def main(arguments: list[str] | None = None) -> int:
    """Run the command named by the first argument with the other arguments; return the exit status."""
    name, *others = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if name not in COMMANDS:
        lines = [f"  fedlib {command:<9} {what}" for command, (_, what) in COMMANDS.items()]
        print("Usage: fedlib COMMAND [OPTION]...", *lines, "  fedlib COMMAND --help lists its options", sep="\n")
        return 0 if name in ("-h", "--help") else 2
    if name == "slurm":
        print(SCRIPT.read_text(encoding="utf-8"), end="")
        return 0
    module, _ = COMMANDS[name]
    sys.argv = [f"fedlib {name}", *others]
    try:
        with Needs("site" if name == "site" else "notebooks", f"fedlib {name}"):
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    except NotInstalled as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
