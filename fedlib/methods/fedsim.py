"""FedSim (Pillutla et al., ICML 2022, Algorithm 2): personal and shared part of the model, trained simultaneously."""

from typing import Literal

from fedlib.algorithm import Algorithm, algorithm
from fedlib.checks import Fraction
from fedlib.methods.fedalt import personalise
from fedlib.training import cross_entropy, train


@algorithm(label="PerFL (FedSim)", colour="blue", marker="o", line=":")
def fedsim(warm_up: Fraction = 0.5, part: Literal["output", "input"] = "output") -> Algorithm:
    """A shared and a personal part of the model, trained simultaneously.

    After a warm-up by FedAvg a client minimises cross-entropy over the shared part u and its personal part v_i at once,
    where FedAlt alternates. The server averages u, each client weighted with its number of training samples; v_i stays
    with the client. BatchNorm belongs to u. A client is evaluated with u and v_i; fine-tuning, if the run has any,
    changes v_i only. A client that never took part has the v of the FedAvg model.

    Args:
        warm_up: share of the rounds that are FedAvg, from 0 to 1; 0.5 is FedCS's reading A25. `warm_up=1` is FedAvg;
            `warm_up=0` with the classifier as v_i is FedPer.
        part: the personal part: "output", the classifier, or "input", the first layer.

    Source:
        Pillutla et al., "Federated Learning with Partial Model Personalization", ICML 2022.

    Example:
        >>> federation = fl.federate(fl.load("digits", copies=1), fl.dirichlet(0.5), clients=4, test_fraction=0.8)
        >>> result = fl.run(fl.fedsim(warm_up=0), federation, rounds=1, progress=False)
        >>> result.score() == fl.run(fl.fedper(), federation, rounds=1, progress=False).score()
        True
    """

    def update(w, state, cohort):
        return train(cohort, cross_entropy, w)

    return personalise("fedsim", update, warm_up, part)
