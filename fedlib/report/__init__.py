"""Figures, tables and claims from frames of results, compared with the paper's numbers.

`fedlib.tools.gallery`, the page of all results, is not imported here, as its import takes a second.
"""

from fedlib.extras import Needs

with Needs("notebooks", "fedlib.report"):
    from fedlib.report.charts import plot_curves, plot_heatmaps, plot_points
    from fedlib.report.explore import explore
    from fedlib.report.output import Report, markdown, source
    from fedlib.report.output import open_report as open
    from fedlib.report.paper import PAPERS, format_pm, readings, reported
    from fedlib.report.partition_plots import plot_clients, plot_partition
    from fedlib.report.playground import playground
    from fedlib.report.reassembly_plots import plot_block_map, plot_candidates, plot_chain
    from fedlib.report.style import COLUMN, PALETTE, TEXT, label, method_style, use_style

__all__ = ["COLUMN", "PALETTE", "PAPERS", "TEXT", "Report", "explore", "format_pm", "label", "markdown", "method_style"]
__all__ += ["open", "playground", "plot_block_map", "plot_candidates", "plot_chain", "plot_clients", "plot_curves"]
__all__ += ["plot_heatmaps", "plot_partition", "plot_points", "readings", "reported", "source", "use_style"]
