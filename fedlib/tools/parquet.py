"""`python -m fedlib.tools.parquet`: all rows of evidence as a Parquet file, with a data card and Croissant metadata."""

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from fedlib.files import write_file, write_text
from fedlib.report.paper import PAPERS, TITLES
from fedlib.studies.study import Study, study

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "figures" / "dataset"
COLUMNS = {  # name: (type in Croissant, whether it is a list, description)
    "paper": ("sc:Text", False, "the paper with the tables or figures below"),
    "items": ("sc:Text", True, "tables and figures that use the run"),
    "task": ("sc:Text", False, "name of the run or measurement; one row per task and seed"),
    "seed": ("sc:Integer", False, "seed of the run"),
    "algorithm": ("sc:Text", False, "the method; missing for a measurement that trains nothing by itself"),
    "hyper": ("sc:Text", False, "its hyper-parameters, as JSON"),
    "data": ("sc:Text", False, "data set"),
    "partition": ("sc:Text", False, "division of the images among the clients"),
    "clients": ("sc:Integer", False, "number of clients"),
    "model": ("sc:Text", False, "network"),
    "rounds": ("sc:Integer", False, "communication rounds"),
    "config": ("sc:Text", False, "all settings of the run, as JSON"),
    "when": ("sc:Text", False, 'evaluation "before" or "after" fine-tuning; that of the numbers below'),
    "accuracy": ("sc:Float", False, "accuracy [%] of the last evaluation, pooled over all test images"),
    "n_test": ("sc:Integer", True, "test images of each client"),
    "client_accuracy": ("sc:Float", True, "accuracy [%] of each client in the last evaluation"),
    "curve_round": ("sc:Integer", True, "rounds of the evaluations"),
    "curve_accuracy": ("sc:Float", True, "pooled accuracy [%] of these evaluations"),
    "train_loss": ("sc:Float", True, "mean train loss of the clients, in at most about fifty rounds"),
    "bytes_down": ("sc:Integer", False, "bytes from the server to the clients, in all rounds"),
    "bytes_up": ("sc:Integer", False, "bytes from the clients to the server, in all rounds"),
    "kept": ("sc:Text", False, "further values of the run, or those of the measurement, as JSON"),
    "diverged": ("sc:Integer", False, "round in which the loss was no longer finite; missing if it did not diverge"),
    "seconds": ("sc:Float", False, "duration on the machine that ran it; not comparable between rows"),
    "device": ("sc:Text", False, "cpu or cuda"),
    "machine": ("sc:Text", False, "operating system and processor, or GPU"),
    "python": ("sc:Text", False, "version of Python"),
    "torch": ("sc:Text", False, "version of PyTorch"),
    "commit": ("sc:Text", False, "version of the code"),
    "changed": ("sc:Boolean", False, "whether code that can change the numbers has changed since"),
}
OF_CONFIG = ("algorithm", "data", "partition", "clients", "model", "rounds", "device")
CARD = """# Runs of five papers on personalised federated learning

`rows.parquet` has one row for each finished run or measurement of fedlib's evidence: its settings, its accuracy by
client and by round, and the code and machine behind it. It contains no images.

```python
import pandas as pd

rows = pd.read_parquet("rows.parquet")
rows.groupby(["paper", "data", "partition", "algorithm"])["accuracy"].agg(["mean", "std", "size"])
```

- **Rows**: {rows}, of {papers}. Most runs have one seed.
- **Made by** `make dataset`, version {version}, from `figures/reference/runs`; `make evidence` adds rows.
- **Limits**: where the paper's images were not available, `data` names a substitute, which neither confirms nor
  refutes the paper. `changed` marks rows of older code. Durations were measured on shared machines.
- **License**: {license}. Cite the paper that prints a number, and the library by `CITATION.cff`.
- `croissant.json` describes the columns for machines (MLCommons Croissant 1.0).

| column | type | description |
|---|---|---|
{columns}
"""


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
    write_text(folder / "README.md", CARD.format(**facts, license=about["license"], columns=columns))
    print(f"{len(frame)} rows: {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
