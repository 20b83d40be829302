"""Printed and measured numbers: the table of an item, and differences with the controls that examine their causes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from fedlib.algorithm import LOOKS
from fedlib.report.paper import KEY, PROTOCOLS, QUANTITIES, format_pm
from fedlib.report.style import METRIC_LABELS, data_label, label, metric_label, setting_label

if TYPE_CHECKING:
    from fedlib.studies.item import Cell, Item
    from fedlib.studies.study import Study

POINTS = 3.0
IN_PERCENT = {"accuracy": "", **METRIC_LABELS}
FARTHEST = [*KEY[1:], "value", "paper", "difference"]


def wide(long: pd.DataFrame, corner: str) -> pd.DataFrame:
    """The numbers of `by_source` as text, a column for each place and source; `corner` names the index."""
    long = long[long["value"].notna()].drop_duplicates(["row", "column", "source"])
    order = long[["place", "column", "source"]].drop_duplicates()
    order = order.sort_values(["place", "source"], key=lambda names: pd.factorize(names)[0])  # as they appear
    cells = long.pivot(index="row", columns=["column", "source"], values="cell")  # noqa: PD010 - text
    pairs = pd.MultiIndex.from_frame(order[["column", "source"]])
    cells = cells.reindex(index=pd.unique(long["row"]), columns=pairs).fillna("")
    return cells.rename_axis(index=corner, columns=[None, None])


def by_source(full: pd.DataFrame, here: pd.DataFrame, others: Sequence[pd.DataFrame], item: Item) -> pd.DataFrame:
    """One row per number and source: row, place (its column, on the paper's data), column, source, value, std, cell."""
    # The tables are those at full size, of this run, and of all or none of `item.others` at full size.
    further = {PROTOCOLS[other.protocol]: table for other, table in zip(item.others, others, strict=False)}
    tables = {PROTOCOLS[item.protocol] if others else "full size": full, **further, "here": here}
    measured = [table[table["n_seeds"] > 0].assign(source=source) for source, table in tables.items()]
    printed = full.assign(source="paper", value=full["paper"], std=full["paper_std"])
    long = pd.concat([printed, *measured], ignore_index=True)
    parts = [_parts(key, item.rows) for key in long[KEY[1:]].to_numpy()]
    common = set.intersection(*(set(words) for _, words in parts))
    stand_ins = long["stand_in"].where(long["source"] != "paper", "")
    names = [_names(words, common, text) for (_, words), text in zip(parts, stand_ins, strict=True)]
    long["row"], long["column"] = [row for row, _ in parts], [", ".join(words) for words in names]
    long["place"] = [", ".join(words) for _, words in parts]
    long["cell"] = [format_pm(*pair, item.digits) for pair in long[["value", "std"]].to_numpy(float)]
    return long


def item_title(name: str) -> str:
    """Heading of an item: "table3_code" is "Table 3 (authors' code)", "fedrep_to_fedpac" is "FedRep to FedPAC"."""
    table, protocol = printed_item(name)
    if protocol:
        return f"{item_title(table)} ({PROTOCOLS[protocol]})"
    words = {"table": "Table", "fig": "Figure", "eq": "Equation", "sec": "Section"}
    found = re.fullmatch(r"(table|fig|eq|sec)(\d\w*)", name)
    if found:
        return f"{words[found[1]]} {found[2].replace('_', ' ')}"
    text = " ".join(LOOKS[word].label if word in LOOKS else word for word in name.split("_"))
    return text[:1].upper() + text[1:]


def printed_item(name: str) -> tuple[str, str]:
    """The item whose printed numbers belong to an item, and the protocol at the end of its name, or ""."""
    table, _, protocol = name.rpartition("_")
    return (table, protocol) if table and protocol in PROTOCOLS else (name, "")


def parts_of(setting: str) -> dict[str, str]:
    """Parts of a setting by name: "dir=0.1;rho=0.5"; words without a value are left out."""
    return dict(part.split("=", 1) for part in setting.split(";") if "=" in part)


def _parts(key: Sequence[str], rows: str) -> tuple[str, list[str]]:
    """Row of a number, and the words that name its column."""
    method, dataset, setting, metric = map(str, key)
    parts = dict(part.partition("=")[::2] for part in setting.split(";") if part)  # value by name
    shown = method if method in QUANTITIES else label(method)
    names = {"dataset": data_label(dataset), "method": shown, "metric": metric_label(metric)}
    row = parts.pop(rows, "") or names.pop(rows, "")
    words = [setting_label(f"{name}={value}") if value else name for name, value in parts.items()]
    return row, [*(word for word in names.values() if word not in ("", "accuracy")), *words]


def _names(words: Sequence[str], common: set[str], stand_in: str) -> list[str]:
    """Words of a column that differ between columns; a replaced data set is named with its substitute."""
    new = {data_label(pair.split(" for ")[1]): data_label(pair) for pair in stand_in.split(", ") if pair}
    return [new.get(word, word) for word in words if word not in common or word in new] or list(words[:1])


def percentages(board: pd.DataFrame) -> pd.DataFrame:
    """The rows of a scoreboard that compare a measured percentage with the printed one."""
    return board[board["metric"].isin(IN_PERCENT) & board["difference"].notna()]


def first_protocol(board: pd.DataFrame) -> pd.DataFrame:
    """The rows of a scoreboard with the first protocol of each table."""
    return board[[not printed_item(item)[1] for item in board["item"]]]


def differences(study: Study, points: float) -> pd.DataFrame:
    """See `Study.differences`."""
    lines = []
    for item, rows in percentages(study.scoreboard()).groupby("item", sort=False):
        far, n = rows["difference"].abs(), len(rows)
        apart = int((far > points).sum())
        line = {"item": item, "measured": n, "apart": apart} | rows.loc[far.idxmax(), FARTHEST].to_dict()
        name = named(study.cells, item, *(line[key] for key in KEY[1:4]))
        line["name"] = ", ".join(filter(None, [name, IN_PERCENT[line["metric"]]]))
        if apart:
            verb = "is" if apart == 1 else "are"
            text = f"{apart} of {n} measured numbers {verb} more than {points:g} points from the printed ones. "
            text += f"The largest difference is {line['name']}: {line['value']:.1f}, printed {line['paper']:.1f}."
            says = [text, *_controls(study, item)]
        elif n == 1:
            says = [f"The measured number is within {points:g} points of the printed one."]
        else:
            says = [f"All {n} measured numbers are within {points:g} points of the printed ones."]
        lines.append(line | {"says": "\n".join(filter(None, [*says, study.diverged(item)]))})
    return pd.DataFrame(lines, columns=["item", "measured", "apart", "name", *FARTHEST, "says"])


def named(cells: Sequence[Cell], item: str, method: str, dataset: str, setting: str) -> str:
    """Name of a number: the parts of its key that differ within its table."""
    others = [cell for cell in cells if cell.item == item]
    common = set.intersection(*({cell.dataset, *cell.setting.split(";")} for cell in others))
    words = [word for word in setting.split(";") if word not in common]
    return ", ".join([label(method), *([] if dataset in common else [data_label(dataset)]), *map(setting_label, words)])


def _controls(study: Study, item: str) -> list[str]:
    """The sentence of each control of a table, and the names of the controls that have not been run."""
    # Of a table with several protocols, a control belongs to those with which it shares runs, or to all.
    texts, waiting, table = [], [], study.item(printed_item(item)[0])
    runs = {name: _runs(study, name) for name in (table.name, *(other.name for other in table.others))}
    for control in (one for one in study.shown.values() if table.name in one.explains):
        shared = {name for name, own in runs.items() if own & _runs(study, control.name)}
        if item not in (shared or runs):
            continue
        cells, says = [cell for cell in study.cells if cell.item == control.name], study.says(control.name)
        done = study.frame.loc[study.frame["item"] == control.name, KEY].drop_duplicates()
        so_far = "" if len(done) == len(cells) else f" ({len(done)} of {len(cells)} numbers so far)"
        texts += [f'The control "{control.name}"{so_far}: {says}'] if says else []
        waiting += [] if says else [f'"{control.name}"']
    if waiting:
        texts.append(f"Not run yet: the control{'s' * (len(waiting) > 1)} {', '.join(waiting)}.")
    return texts or ["No control examines the cause."]


def _runs(study: Study, item: str) -> set[str]:
    """The names of the runs of an item."""
    return {task.name for cell in study.cells if cell.item == item for task in cell.tasks}
