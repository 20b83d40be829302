"""`python -m fedlib.tools.batch --profile quick`: execute the notebooks with papermill; all parameters are checked.

The notebook `notebooks/01_pfedsim.ipynb` gets the parameters of `notebooks/profiles/01_pfedsim.quick.yaml`, if there is
such a file, then those of `--set`; its executed copy is `figures/quick/pfedsim/01_pfedsim.ipynb`. The kernel is the
running Python; it works in the folder of the notebook, as in JupyterLab. A parameter named `profile` is set to the name
of the profile, `output` to the folder of the executed copy relative to the notebook (`../figures/quick/pfedsim`), and
`jobs` to the value of `--jobs`. One notebook more than there are cores runs at the same time, or as many as
`--parallel` says: while one starts, draws or is written, another one computes. Without `--jobs` they share the cores.
`figures/quick/index.html` shows all results.
"""

from fedlib.tools.batch.command import main
from fedlib.tools.batch.jobs import Job, make_job, select
from fedlib.tools.batch.parameters import BY_OPTION, defaults

__all__ = ["BY_OPTION", "Job", "defaults", "main", "make_job", "select"]
