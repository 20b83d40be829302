"""Figures, tables and claims from frames of results, compared with the paper's numbers.

`fedlib.tools.gallery`, the page of all results, is not imported here, as its import takes a second.
"""

from fedlib.extras import Needs

with Needs("notebooks", "fedlib.report"):
    from fedlib.report.charts import plot_clients, plot_curves, plot_heatmaps, plot_partition
    from fedlib.report.explore import explore
    from fedlib.report.output import Report, source
    from fedlib.report.output import open_report as open
    from fedlib.report.paper import PAPERS, readings, reported
    from fedlib.report.playground import playground
    from fedlib.report.style import COLUMN, PALETTE, TEXT, label, method_style, use_style

__all__ = ["COLUMN", "PALETTE", "PAPERS", "TEXT", "Report", "explore", "label", "method_style", "open", "playground"]
__all__ += ["plot_clients", "plot_curves", "plot_heatmaps", "plot_partition", "readings", "reported", "source"]
__all__ += ["use_style"]
