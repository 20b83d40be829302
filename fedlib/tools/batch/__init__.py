"""`python -m fedlib.tools.batch --profile quick`: execute the notebooks with papermill; all parameters are checked.

The executed copy of `notebooks/01_pfedsim.ipynb` is `figures/quick/pfedsim/01_pfedsim.ipynb`. Its kernel is the running
Python, in the folder of the notebook, as in JupyterLab. Of its parameters, `profile` is set to the name of the profile,
`output` to the folder of the executed copy relative to the notebook (`../figures/quick/pfedsim`), `jobs` to the value
of `--jobs`, and others by `--set`. One notebook more than there are cores runs at the same time, or as many as
`--parallel` says: while one starts, draws or is written, another one computes. Without `--jobs` they share the cores.
`figures/quick/index.html` shows all results.
"""

from fedlib.tools.batch.command import BY_OPTION, defaults, main, make_job, select

__all__ = ["BY_OPTION", "defaults", "main", "make_job", "select"]
