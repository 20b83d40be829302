"""`python -m fedlib.tools.bench`: measure speed and memory; writes a table and a picture to figures/bench."""

import argparse
import platform
import sys
from datetime import date
from itertools import chain
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import torch
from matplotlib.figure import Figure

from fedlib.report.output import Report, markdown
from fedlib.report.provenance import processor
from fedlib.report.style import BLUE, GREY, RED, WIDE, use_style
from fedlib.tools.bench import cases, peers

COLUMNS = ["case", "variant", "clients", "cohort", "samples_per_s", "s_per_round", "memory_mib"]
COLUMNS += ["seconds", "ratio", "least", "most", "to"]
PEER_COLUMNS = {"case": "method", "variant": "library", "version": "version", "samples_per_s": "samples/s"}
PEER_COLUMNS |= {"s_per_round": "s per round", "memory_mib": "memory [MiB]", "accuracy": "accuracy [%]"}
PEER_COLUMNS |= {name: name for name in ("ratio", "least", "most")}
WHOLE = ("samples/s", "memory [MiB]")  # numbers without decimals


def picture(table: pd.DataFrame, device: str) -> Figure:
    """Draw the speed of training (to a bare loop), that of a round (to Flower's), and its time by number of clients."""
    use_style()
    training, flower = (table[table["case"] == case] for case in ("training", "FedAvg round"))
    training = training.assign(variant=training["variant"] + [f", cohort {k}" for k in training["cohort"]])
    shown = {f"Local training ({device})": training} | ({"A round of FedAvg": flower} if len(flower) else {})
    figure = plt.figure(figsize=(WIDE, 4.6 if len(flower) else 3.8))
    heights = [*(len(rows) + 1 for rows in shown.values()), 5]
    *panels, right = figure.subplots(len(heights), 1, height_ratios=heights)
    for ax, (title, rows) in zip(panels, shown.items(), strict=True):
        reach = [rows["ratio"] - rows["least"], rows["most"] - rows["ratio"]]
        colours = [GREY if ratio == 1 else BLUE for ratio in rows["ratio"]]
        ax.barh(rows["variant"], rows["ratio"], color=colours, xerr=reach, error_kw={"linewidth": 0.8})
        ax.invert_yaxis()
        reference = rows["to"].iloc[0].partition(",")[0].replace("bare", "the bare")
        ax.set(xlabel=f"speed relative to {reference}", title=title)
        ax.grid(axis="y", visible=False)
    rounds = table[(table["case"] == "round") & (table["cohort"] == 10)]
    methods = rounds.groupby(rounds["variant"].str.split(",").str[0])
    for (method, rows), colour in zip(methods, (BLUE, RED), strict=True):
        right.plot(rows["clients"], 1000 * rows["s_per_round"], marker="o", color=colour, label=method)
    right.set(xscale="log", xlabel="clients", ylabel="ms per round", title="A round of 10 clients")
    right.set_ylim(0, 1300 * rounds["s_per_round"].max())
    right.legend()
    return figure


def libraries(checkouts: Path, turns: int, rounds: int, report: Report) -> int:
    """Measure other libraries, print the table and write it."""
    left_out: dict[str, str] = {}
    table = pd.DataFrame(peers.compare(checkouts, turns, rounds, left_out)).reindex(columns=[*PEER_COLUMNS])
    table = table.rename(columns=PEER_COLUMNS).round(dict.fromkeys(WHOLE, 0)).astype(dict.fromkeys(WHOLE, "Int64"))
    about = f"{processor()}, one thread, Python {platform.python_version()}, PyTorch {torch.__version__}"
    caption = f"{date.today()}: {about}; {rounds} rounds of 10 clients, {turns} turns side by side; CPU seconds; "
    caption += "ratio: speed relative to fedlib, median (least, most); accuracy [%] after the last round."
    caption += "".join(f" {peer} is left out: {reason.rstrip('.')}." for peer, reason in left_out.items())
    report.table(table, "peers", caption=caption)
    print(markdown(table, caption))
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the table, write it with its picture and provenance."""
    parser = argparse.ArgumentParser(prog="python -m fedlib.tools.bench", description=__doc__.split("\n")[0])
    parser.add_argument("--turns", type=int, default=5, help="turns of every comparison (default 5)")
    parser.add_argument("--steps", type=int, default=5, help="SGD steps per client and turn (default 5)")
    parser.add_argument("--output", type=Path, default=Path("figures/bench"), help="default: figures/bench")
    parser.add_argument("--peers", type=Path, help="other libraries only: folder with checkouts of FL-bench and PFLlib")
    parser.add_argument("--rounds", type=int, default=8, help="rounds of a run of another library (default 8)")
    parser.add_argument("--step", action="store_true", help="measure steps on a GPU only, by form; no picture")
    given = parser.parse_args(arguments)
    if min(given.turns, given.steps) < 1 or given.rounds < 3:
        print("rounds must be at least 3; turns and steps must be at least 1.", file=sys.stderr)
        return 2
    if given.peers is not None:
        return libraries(given.peers, given.turns, given.rounds, Report("bench", "cpu", given.output))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    machine = processor(device) + (", one thread" if device.type == "cpu" else "")
    torch.set_num_threads(1)
    measured = [cases.steps(device, given.turns)]
    if not given.step:
        half = max(given.turns // 2, 1)
        measured += [cases.training(device, given.turns, given.steps), cases.rounds(device, given.turns)]
        measured += [cases.sweeps(device, half), cases.flower(device, half)]
    rows = []
    for line in chain.from_iterable(measured):
        rows.append(line)
        print("{case}: {variant}: {seconds:.3g} s, {ratio:.2f} x {to}".format(**line), flush=True)
    table = pd.DataFrame(rows).reindex(columns=COLUMNS).astype({"clients": "Int64", "cohort": "Int64"})
    report = Report("bench", device.type, given.output)
    caption = f"{machine}; ratio: speed relative to `to`, median of turns side by side (least, most)."
    report.table(table, "bench", caption=caption, digits=3)
    alt = "Bars: speed of each backend relative to a bare loop, and of a round relative to Flower's. "
    alt += "Lines: time of a round by number of clients."
    if not given.step:
        report.figure(picture(table, machine), "bench", alt)
    report.provenance({"device": machine, "turns": given.turns, "steps": given.steps})
    print(markdown(table, caption, digits=3))
    return 0


if __name__ == "__main__":
    sys.exit(main())
