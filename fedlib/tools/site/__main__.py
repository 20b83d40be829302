"""The command line: `python -m fedlib.tools.site build`."""

import argparse
import importlib.util
import sys
import time
from pathlib import Path

from fedlib.extras import install
from fedlib.report.paper import PROFILES

NEEDS = ("sphinx", "myst_nb", "furo")


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns 0, 1 if Sphinx has warned, 2 if an argument is wrong or a package is missing."""
    parser = argparse.ArgumentParser(prog="python -m fedlib.tools.site", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    option = commands.add_parser("build", help="make all pages; they need no network").add_argument
    option("--profile", default="quick", choices=PROFILES, help="which executed notebooks are shown, default: quick")
    option("--figures", type=Path, default=Path("figures"), help="folder of the results, default: figures")
    option("--output", type=Path, help="folder of the site, default: site in the folder of the results")
    commands.add_parser("methods", help="write the table of methods in their README")
    given = parser.parse_args(arguments)
    if given.command == "methods":
        from fedlib.tools.site.library import write_readme

        write_readme()
        return 0
    missing = [name for name in NEEDS if importlib.util.find_spec(name) is None]
    if missing:
        print(f"The site needs {', '.join(missing)}: {install('site')}.", file=sys.stderr)
        return 2
    from fedlib.tools.site.build import build  # it imports Sphinx

    start, output = time.perf_counter(), given.output or given.figures / "site"
    warnings = build(output, given.figures, given.profile)
    if warnings:
        print(warnings, "The site is not complete; the old one, if any, is unchanged.", sep="\n", file=sys.stderr)
        return 1
    print(f"Built in {time.perf_counter() - start:.0f} s: {output / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
