"""FedRep (Collins et al., ICML 2021, Algorithm 1): first the personal classifier, then the shared extractor."""

from fedlib.algorithm import Algorithm, algorithm, download, init_partial, merged, upload
from fedlib.checks import Count, check_count
from fedlib.training import cross_entropy, train


@algorithm(label="FedRep", colour="green", marker=">")
def fedrep(body_epochs: Count = 1) -> Algorithm:
    """FedPer in two phases: first the personal classifier, then the shared extractor.

    A client minimises cross-entropy twice: over its classifier phi_i with the extractor omega frozen, and in the last
    `body_epochs` local epochs over omega with phi_i frozen. The server averages omega, each client weighted with its
    number of training samples; phi_i stays with the client. BatchNorm belongs to omega and is averaged; its running
    statistics follow the data in both phases. A client is evaluated with omega and its phi_i.

    With as many `body_epochs` as local epochs no classifier is trained.

    Args:
        body_epochs: number of local epochs that train the extractor, from 1 to the run's `local_epochs`; all others
            train the classifier. pFedSim has 1 of 5, FedSimSup 3 of 5.

    Raises:
        ValueError: in the first round, if `body_epochs` is larger than the run's `local_epochs`.

    Source:
        Collins et al., "Exploiting Shared Representations for Personalized Federated Learning", ICML 2021,
        Algorithm 1.

    Example:
        >>> federation = fl.federate(fl.load("digits", copies=1), fl.dirichlet(0.5), clients=4, test_fraction=0.8)
        >>> result = fl.run(fl.fedrep(), federation, rounds=1, local_epochs=2, progress=False)
        >>> a, b = result.weights(client=0), result.weights(client=1)
        >>> [name for name in a if not a[name].equal(b[name])]
        ['classifier.weight', 'classifier.bias']
    """

    def round(state, cohort):
        check_count("body_epochs", body_epochs, 1, cohort.local.epochs)
        head_epochs = cohort.local.epochs - body_epochs
        head, body = range(head_epochs), range(head_epochs, cohort.local.epochs)
        start = download(state, cohort)  # [k, ...]
        trained = train(cohort, cross_entropy, start, epochs=head, trainable=state.v)
        trained = train(cohort, cross_entropy, trained, epochs=body, trainable=state.w)
        return upload(state, cohort, trained)

    return Algorithm("fedrep", init_partial(lambda model: model.classifier), round, models=merged)
