"""Studies: the items and claims of the papers, their runs, and the measured numbers."""
