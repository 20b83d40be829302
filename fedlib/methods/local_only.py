"""Local-Only: every client trains its own model on its own data (pFedSim, section 5, baseline)."""

from fedlib.algorithm import Algorithm, algorithm, init_personal
from fedlib.training import cross_entropy, train


@algorithm(label="Local-Only", colour="grey", marker="v", printed={"Local": "local_only"})
def local_only() -> Algorithm:
    """Local training of a separate model for every client, without federation.

    A client minimises cross-entropy on its training samples, in the rounds in which it is sampled. Nothing is sent.
    Clients with the same architecture start from the same weights, and clients may have different architectures.
    BatchNorm stays with the client like all other entries. Every client is evaluated with its own model.

    Source:
        A baseline of pFedSim, section 5.1.

    Example:
        >>> federation = fl.federate(fl.load("digits", copies=1), fl.dirichlet(0.5), clients=4, test_fraction=0.8)
        >>> result = fl.run(fl.local_only(), federation, "lenet5+m1", rounds=1, progress=False)
        >>> result.rounds[["bytes_down", "bytes_up"]].sum().tolist()
        [0, 0]
    """

    def round(state, cohort):
        v = state.v
        for peers in cohort.by_architecture():
            v = peers.keep(v, train(peers, cross_entropy, peers.mine(v)))  # [k, ...]
        return state._replace(v=v)

    return Algorithm("local_only", init_personal, round, models=lambda state: state.v, mixed=True)
