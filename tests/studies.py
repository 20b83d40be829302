"""Studies for tests: at the papers' size without substitute data, and with numbers as they are given."""

import pandas as pd

from fedlib.studies.study import Study


def official(study: Study) -> Study:
    """The study if all of it had been measured on the paper's own data."""
    cells = [cell._replace(tasks=cell.official or cell.tasks, official=()) for cell in study.cells]
    return study.replace(cells=cells)


def with_numbers(study: Study, frame: pd.DataFrame) -> Study:
    """The study as if its runs had given these numbers; see `Study.frame`."""
    copy = study.replace()
    copy.__dict__["frame"] = frame
    return copy
