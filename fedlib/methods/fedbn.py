"""FedBN (Li et al., ICLR 2021): FedAvg with BatchNorm left on the clients."""

from fedlib.algorithm import Algorithm, algorithm, download, init_partial, merged, upload
from fedlib.training import cross_entropy, train


@algorithm(label="FedBN", colour="brown", marker="P")
def fedbn(affine: bool = True) -> Algorithm:
    """FedAvg in which BatchNorm layers stay with the clients.

    A client joins the shared part of the model with its BatchNorm and minimises cross-entropy over both. The server
    averages the shared part, each client weighted with its number of training samples. A client is evaluated with
    the shared part and its own BatchNorm; one that was never sampled has the initial BatchNorm.

    On a model without BatchNorm this is FedAvg.

    Args:
        affine: whether the affine parameters of BatchNorm stay with the client as well. True is FedBN; False keeps
            only the running statistics with the client and averages the affine parameters (SiloBN).

    Source:
        Li et al., "FedBN: Federated Learning on Non-IID Features via Local Batch Normalization", ICLR 2021. SiloBN:
        Andreux et al., 2020.

    Example:
        >>> federation = fl.federate(fl.load("digits", copies=1), fl.dirichlet(0.5), clients=4, test_fraction=0.8)
        >>> result = fl.run(fl.fedbn(), federation, rounds=1, progress=False)
        >>> a, b = result.weights(client=0), result.weights(client=1)
        >>> {name for name in a if not a[name].equal(b[name])} == result.model.batchnorm  # nothing else differs
        True
    """

    def personal(model):
        return model.batchnorm if affine else model.statistics

    def round(state, cohort):
        trained = train(cohort, cross_entropy, download(state, cohort))  # [k, ...]
        return upload(state, cohort, trained)

    return Algorithm("fedbn", init_partial(personal), round, models=merged)
