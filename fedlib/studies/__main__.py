"""Evidence from the command line: `python -m fedlib.studies run`, `recheck` and `report`."""

import argparse
import re
import signal
import sys

from fedlib.report.paper import PAPERS
from fedlib.studies.pages import build, write_score
from fedlib.studies.recheck import recheck
from fedlib.studies.runner import evidence


def budget(text: str) -> float:
    """Parse hours: "2h", "30m", "1.5h"."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(h|m)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; use for example 2h or 30m")
    return float(found[1]) / (60 if found[2] == "m" else 1)


def main() -> int:
    """Execute the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m fedlib.studies", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="execute the missing runs and write their rows")
    run.add_argument("--paper", action="append", choices=PAPERS, help="only this paper")
    run.add_argument("--item", action="append", default=[], help="only this table, figure or run")
    run.add_argument("--budget", type=budget, default=None, help="stop after this time, such as 2h or 30m")
    run.add_argument("--jobs", type=int, default=1, help="number of runs at the same time")
    run.add_argument("--stale", action="store_true", help="repeat the runs whose code has changed")
    run.add_argument("--ray", default=None, help="address of a Ray cluster for the runs")
    again = commands.add_parser("recheck", help="compare the rows of older code with today's code")
    again.add_argument("--paper", action="append", choices=PAPERS, help="only this paper")
    again.add_argument("--rounds", type=int, default=4, help="number of rounds of each run to compare")
    commands.add_parser("report", help="rebuild tables, ledgers, the scoreboard and the README's score from the rows")
    given = parser.parse_args()
    try:
        if given.command == "report":
            summary = build()
            write_score(summary)
            print(summary.to_string(index=False))
            return 0
        if given.command == "recheck":
            agree, differ = recheck(given.paper or PAPERS, given.rounds)
            print(f"{agree} rows agree with today's code, {differ} do not.")
            return int(differ > 0)
        evidence(given.paper or PAPERS, given.item, given.budget, given.jobs, given.stale, given.ray)
        return 0
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; the runs in progress continue from their checkpoints next time.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # `kill` ends the workers too, as Ctrl-C does
    sys.exit(main())
