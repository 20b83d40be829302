"""FedRep (Collins et al., ICML 2021, Algorithm 1): first the personal classifier, then the shared extractor."""

from typing import Annotated

from fedlib.algorithm import Algorithm, algorithm, download, init_partial, merged, upload
from fedlib.checks import at_least, check_count
from fedlib.training.losses import cross_entropy


@algorithm
def fedrep(body_epochs: Annotated[int, at_least(1)] = 1) -> Algorithm:
    """Of the local epochs all but the last `body_epochs` train phi_i, the last ones train omega; omega is averaged.

    BatchNorm belongs to omega and is aggregated; its statistics follow the data in both phases. Evaluated: global
    omega + own phi_i. Raises `ValueError` in the first round unless 1 <= body_epochs <= local epochs.
    """

    def personal(model):
        return model.classifier

    def round(state, cohort):
        check_count("body_epochs", body_epochs, 1, cohort.local_epochs)
        head_epochs = cohort.local_epochs - body_epochs
        head, body = range(head_epochs), range(head_epochs, cohort.local_epochs)
        start = download(state, cohort)  # [k, ...]
        trained = cohort.train(cross_entropy, start, epochs=head, trainable=state.v)
        trained = cohort.train(cross_entropy, trained, epochs=body, trainable=state.w)
        return upload(state, cohort, trained)

    return Algorithm("fedrep", init_partial(personal), round, models=merged)
