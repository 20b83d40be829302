"""`python -m fedlib.batch --profile quick`: execute the notebooks with papermill, parameters checked first.

A notebook `notebooks/01_pfedsim.ipynb` takes the parameters of `notebooks/profiles/01_pfedsim.quick.yaml`,
then those of `--set`; its executed copy is `figures/quick/pfedsim/01_pfedsim.ipynb`. The kernel is the
running Python and works in the notebook's own folder, as JupyterLab's does. A parameter named `profile`
receives the profile's name, one named `output` the folder of the executed copy as seen from the notebook
(`../figures/quick/pfedsim`), one named `jobs` the value of `--jobs`. Notebooks run one after the other, or
with `--parallel 2` two at once. `figures/quick/index.html` shows all results.
"""

from fedlib.batch.command import main
from fedlib.batch.parameters import BY_OPTION, defaults
from fedlib.batch.plan import Job, plan, select

__all__ = ["BY_OPTION", "Job", "defaults", "main", "plan", "select"]
