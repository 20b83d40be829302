"""FedPer (Arivazhagan et al., 2019, Algorithm 1): a shared extractor under personal classifiers."""

from fedlib.algorithm import Algorithm, algorithm, download, init_partial, merged, upload
from fedlib.training import cross_entropy, train


@algorithm(label="FedPer", colour="orange", marker="<")
def fedper() -> Algorithm:
    """A shared feature extractor under a personal classifier for every client.

    A client joins the extractor omega with its own classifier phi_i (the last linear layer) and minimises cross-entropy
    over both at once. The server averages omega, BatchNorm included, each client weighted with its number of training
    samples; phi_i stays with the client. A client is evaluated with omega and phi_i, without fine-tuning.

    Source:
        Arivazhagan et al., "Federated Learning with Personalization Layers", 2019.

    Example:
        >>> federation = fl.federate(fl.load("digits", copies=1), fl.dirichlet(0.5), clients=4, test_fraction=0.8)
        >>> result = fl.run(fl.fedper(), federation, rounds=1, progress=False)
        >>> a, b = result.weights(client=0), result.weights(client=1)
        >>> [name for name in a if not a[name].equal(b[name])]
        ['classifier.weight', 'classifier.bias']
    """

    def round(state, cohort):
        trained = train(cohort, cross_entropy, download(state, cohort))  # [k, ...]
        return upload(state, cohort, trained)

    return Algorithm("fedper", init_partial(lambda model: model.classifier), round, models=merged)
