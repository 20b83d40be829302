"""`python -m fedlib.tools.parquet`: all rows of evidence as a Parquet file, with a data card and Croissant metadata."""

import hashlib
import json
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from fedlib.files import write_file, write_text
from fedlib.report.paper import PAPERS, TITLES
from fedlib.studies.study import Study, study

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
FOLDER = ROOT / "figures" / "dataset"
COLUMNS = tomllib.loads((HERE / "columns.toml").read_text(encoding="utf-8"))
OF_CONFIG = ("algorithm", "data", "partition", "clients", "model", "rounds", "device")


def lines_of(one: Study) -> Iterator[dict[str, Any]]:
    """The rows of a study with all of `COLUMNS`."""
    pairs = dict.fromkeys((task.name, cell.item) for cell in one.cells for task in cell.wanted)
    for key, row in sorted(one.rows.items()):
        facts, items = row.facts, [item for name, item in pairs if name == row.task]
        config = facts.get("config", {})
        line = {"paper": one.paper, "items": items, "changed": key in one.stale}
        line |= {name: config.get(name) for name in OF_CONFIG} | {"torch": facts["packages"]["torch"]}
        line |= {name: json.dumps(value, sort_keys=True) for name, value in facts.items() if name in ("config", "kept")}
        line["data"] = config.get("data") or (one.tasks[row.task].images.name if row.task in one.tasks else None)
        line["diverged"] = row.diverged
        if config:
            line |= {"hyper": json.dumps(config["hyper"], sort_keys=True), "accuracy": row.score()}
            curve, clients = (frame[frame["when"] == row.when] for frame in (row.curve(), row.accuracy))
            line |= {"curve_round": curve["round"].tolist(), "curve_accuracy": curve["accuracy"].tolist()}
            line["client_accuracy"] = clients.loc[clients["round"] == clients["round"].max(), "accuracy"].tolist()
        yield {name: line.get(name, facts.get(name)) for name in COLUMNS}


def croissant(content: bytes, about: dict[str, Any]) -> dict[str, Any]:
    """Metadata in the format Croissant 1.0 of the file `rows.parquet`; `about` is `CITATION.cff`."""
    file = {"@type": "cr:FileObject", "@id": "rows.parquet", "name": "rows.parquet", "contentUrl": "rows.parquet"}
    file |= {"encodingFormat": "application/x-parquet", "sha256": hashlib.sha256(content).hexdigest()}
    fields = [
        {"@type": "cr:Field", "@id": f"rows/{name}", "name": name, "description": words, "dataType": kind}
        | {"source": {"fileObject": {"@id": "rows.parquet"}, "extract": {"column": name}}}
        | ({"repeated": True} if several else {})
        for name, (kind, several, words) in COLUMNS.items()
    ]
    terms = ("citeAs", "column", "dataType", "extract", "field", "fileObject", "recordSet", "repeated", "source")
    context = {"@language": "en", "@vocab": "https://schema.org/", "sc": "https://schema.org/"}
    context |= {"cr": "http://mlcommons.org/croissant/", "dct": "http://purl.org/dc/terms/"}
    context |= {"conformsTo": "dct:conformsTo"}
    context |= {name: f"cr:{name}" for name in terms} | {"dataType": {"@id": "cr:dataType", "@type": "@vocab"}}
    words = "Runs of five papers on personalised federated learning, with accuracies by client and round."
    made = {"@context": context, "@type": "sc:Dataset", "conformsTo": "http://mlcommons.org/croissant/1.0"}
    made |= {"name": "fedlib-evidence", "description": words, "version": str(about["version"]), "distribution": [file]}
    made |= {"license": f"https://spdx.org/licenses/{about['license']}"}
    made |= {"citeAs": f"{about['authors'][0]['name']}: {about['title']}, version {about['version']}"}
    made |= {"datePublished": str(about["date-released"])} if "date-released" in about else {}
    made |= {"creator": [{"@type": "sc:Organization", "name": one["name"]} for one in about["authors"]]}
    return made | {"recordSet": [{"@type": "cr:RecordSet", "@id": "rows", "name": "rows", "field": fields}]}


def main(folder: Path = FOLDER) -> int:
    """Write the three files; returns the exit status."""
    about = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    frame = pd.DataFrame([line for paper in PAPERS for line in lines_of(study(paper))], columns=list(COLUMNS))
    whole = [name for name, (kind, several, _) in COLUMNS.items() if kind == "sc:Integer" and not several]
    frame = frame.astype(dict.fromkeys(whole, "Int64"))
    write_file(folder / "rows.parquet", lambda file: frame.to_parquet(file, index=False))
    metadata = croissant((folder / "rows.parquet").read_bytes(), about)
    write_text(folder / "croissant.json", json.dumps(metadata, indent=1) + "\n")
    facts = {"rows": len(frame), "papers": ", ".join(TITLES.values()), "version": about["version"]}
    types = {name: "list of " * several + kind[3:].lower() for name, (kind, several, _) in COLUMNS.items()}
    columns = "\n".join(f"| {name} | {types[name]} | {words} |" for name, (_, _, words) in COLUMNS.items())
    card = (HERE / "card.md").read_text(encoding="utf-8")
    write_text(folder / "README.md", card.format(**facts, license=about["license"], columns=columns))
    print(f"{len(frame)} rows: {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
