"""FedSim (Pillutla et al., ICML 2022, Algorithm 2): personal and shared part of the model at the same time."""

from typing import Annotated, Literal

from fedlib.algorithm import Algorithm, algorithm
from fedlib.checks import at_least, at_most
from fedlib.methods.fedalt import personalise
from fedlib.training.losses import cross_entropy


@algorithm
def fedsim(
    warm_up: Annotated[float, at_least(0), at_most(1)] = 0.5, part: Literal["output", "input"] = "output"
) -> Algorithm:
    """As FedAlt, but v_i and u are trained together for the local epochs.

    `warm_up=1` is FedAvg, `warm_up=0` with the classifier for v_i is FedPer. Evaluated as FedAlt.
    """

    def update(w, state, cohort):
        return cohort.train(cross_entropy, w)

    return personalise("fedsim", update, warm_up, part)
