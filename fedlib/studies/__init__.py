"""Studies: what the papers print and claim, the runs that this needs, and what has been measured of it."""
