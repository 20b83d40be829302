"""Studies at the papers' size, without data that stand in."""

from fedlib.studies.study import Study


def official(study: Study) -> Study:
    """The study if all of it had been measured on the paper's own data."""
    cells = [cell._replace(tasks=cell.official or cell.tasks, official=()) for cell in study.cells]
    return study._replace(cells=cells)
