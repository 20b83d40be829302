"""Layout of an item as a table: printed numbers, numbers at full size, and numbers of this run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from fedlib.report.paper import KEY, PROTOCOLS, QUANTITIES, format_pm
from fedlib.report.style import data_label, label, setting_label

if TYPE_CHECKING:
    from fedlib.studies.item import Item


def by_source(full: pd.DataFrame, here: pd.DataFrame, others: Sequence[pd.DataFrame], item: Item) -> pd.DataFrame:
    """The `long_table` of an item at full size and of this run, with the tables of `item.others` at full size."""
    long = long_table(full, here, item)
    if others:
        tables = [long[long["source"] != "here"].replace({"source": {"full size": PROTOCOLS[item.protocol]}})]
        for other, table in zip(item.others, others, strict=True):
            if table.empty:  # not measured yet
                continue
            more = long_table(table, table.iloc[:0], item)
            tables.append(more[more["source"] == "full size"].assign(source=PROTOCOLS[other.protocol]))
        long = pd.concat([*tables, long[long["source"] == "here"]], ignore_index=True)
    return long


def wide(long: pd.DataFrame, corner: str) -> pd.DataFrame:
    """The numbers of `long_table` as text, a column for each place and source; `corner` names the index."""
    long = long[long["value"].notna()].drop_duplicates(["row", "column", "source"])
    places, sources = ([*dict.fromkeys(long[name])] for name in ("place", "source"))
    columns = long[["place", "column", "source"]].drop_duplicates().to_numpy().tolist()
    columns.sort(key=lambda entry: (places.index(entry[0]), sources.index(entry[2])))
    cells = long.pivot(index="row", columns=["column", "source"], values="cell")  # noqa: PD010 - text
    pairs = pd.MultiIndex.from_tuples([(column, source) for _, column, source in columns], names=[None, None])
    cells = cells.reindex(index=pd.unique(long["row"]), columns=pairs).fillna("")
    return cells.rename_axis(index=corner, columns=[None, None])


def long_table(full: pd.DataFrame, here: pd.DataFrame, item: Item) -> pd.DataFrame:
    """One row per number and source: row, place (its column, on the paper's data), column, source, value, std, cell."""
    printed = full.assign(source="paper", value=full["paper"], std=full["paper_std"])
    measured = full[full["n_seeds"] > 0].assign(source="full size"), here[here["n_seeds"] > 0].assign(source="here")
    long = pd.concat([printed, *measured], ignore_index=True)
    keys = long[KEY[1:]].to_numpy()
    parts = [_parts(key, item.rows) for key in keys]
    common = set.intersection(*(set(words) for _, words in parts))
    stand_ins = long["stand_in"].where(long["source"] != "paper", "")
    names = [_names(words, common, text) for (_, words), text in zip(parts, stand_ins, strict=True)]
    long["row"], long["column"] = [row for row, _ in parts], [", ".join(words) for words in names]
    long["place"] = [", ".join(words) for _, words in parts]
    long["cell"] = [format_pm(*pair, item.digits) for pair in long[["value", "std"]].to_numpy(float)]
    return long


def item_title(name: str) -> str:
    """Heading of a table or figure: "table8a" is "Table 8a", "table3_code" is "Table 3 (authors' code)"."""
    table, protocol = printed_item(name)
    if protocol:
        return f"{item_title(table)} ({PROTOCOLS[protocol]})"
    words = {"table": "Table", "fig": "Figure", "eq": "Equation", "sec": "Section"}
    found = re.fullmatch(r"(table|fig|eq|sec)(\d\w*)", name)
    return f"{words[found[1]]} {found[2].replace('_', ' ')}" if found else name.replace("_", " ").capitalize()


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
    names = {"dataset": data_label(dataset), "method": shown, "metric": metric}
    row = parts.pop(rows, "") or names.pop(rows, "")
    words = [setting_label(f"{name}={value}") if value else name for name, value in parts.items()]
    return row, [*(word for word in names.values() if word not in ("", "accuracy")), *words]


def _names(words: Sequence[str], common: set[str], stand_in: str) -> list[str]:
    """Words of a column that differ between columns; a replaced data set is named with its substitute."""
    new = {data_label(pair.split(" for ")[1]): data_label(pair) for pair in stand_in.split(", ") if pair}
    return [new.get(word, word) for word in words if word not in common or word in new] or list(words[:1])
