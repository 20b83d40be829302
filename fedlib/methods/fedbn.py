"""FedBN (Li et al., ICLR 2021): FedAvg with BatchNorm left on the clients."""

from fedlib.algorithm import Algorithm, algorithm, download, init_partial, merged, upload
from fedlib.training.losses import cross_entropy


@algorithm
def fedbn(affine: bool = True) -> Algorithm:
    """All BatchNorm entries, affine and statistics, are personal; the rest is averaged.

    `affine=False` keeps only the running statistics at home (SiloBN, Andreux et al., 2020). On a model without
    BatchNorm both are FedAvg. Evaluated: global rest + own BatchNorm.
    """

    def personal(model):
        return model.batchnorm if affine else model.statistics

    def round(state, cohort):
        trained = cohort.train(cross_entropy, download(state, cohort))  # [k, ...]
        return upload(state, cohort, trained)

    return Algorithm("fedbn", init_partial(personal), round, models=merged)
