"""FedPer (Arivazhagan et al., 2019, Algorithm 1): a shared extractor under personal classifiers."""

from fedlib.algorithm import Algorithm, algorithm, download, init_partial, merged, upload
from fedlib.training.losses import cross_entropy


@algorithm
def fedper() -> Algorithm:
    """Classifier phi_i stays with its client, extractor omega (BatchNorm included) is averaged; trained jointly.

    Evaluated: global omega + own phi_i, without fine-tuning.
    """

    def personal(model):
        return model.classifier

    def round(state, cohort):
        trained = cohort.train(cross_entropy, download(state, cohort))  # [k, ...]
        return upload(state, cohort, trained)

    return Algorithm("fedper", init_partial(personal), round, models=merged)
