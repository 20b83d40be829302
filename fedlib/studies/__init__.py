"""Studies: the items and claims of the papers, the runs behind them, and the measured numbers."""
