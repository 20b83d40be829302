"""pFedHR (Wang et al., NeurIPS 2023): a teacher for every client, stitched from blocks of the clients' networks."""

from typing import Annotated, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fedlib.algorithm import Algorithm, algorithm, need_public
from fedlib.checks import Count, NonNegative, Positive, at_least
from fedlib.methods.fedkemf import divergence
from fedlib.methods.pfedhr.public import after_training, alike, public_training
from fedlib.methods.pfedhr.reassemble import Network, reassemble
from fedlib.methods.pfedhr.record import NOTHING, appended, record
from fedlib.models import deal, initial
from fedlib.stack import Params, PerArchitecture, client_mean, n_bytes, repeat, row
from fedlib.streams import generator
from fedlib.training import train
from fedlib.training.batches import to_device
from fedlib.training.evaluation import write_logits

NEVER = -2  # round of a missing match


class State(NamedTuple):
    """Private networks, and logits of the teachers, which the server stores when it makes a teacher."""

    v: PerArchitecture
    answers: Tensor  # [samples, n_classes]: logits of its client's teacher for each training sample
    matched: Tensor  # int64 [n_clients]: the round in which a client was matched with its teacher
    size: Tensor  # int64 [n_clients]: bytes of that teacher
    log: Params  # [rounds, ...]: the server's reassemblies, see `record`


@algorithm(label="pFedHR", colour="red", marker="o")
def pfedhr(
    groups: Annotated[int, at_least(2)] = 4,
    lam: NonNegative = 0.2,
    labelled: bool = True,
    server_epochs: Count = 3,
    stitch_depth: Count = 1,
    stitch_relu: bool = True,
    end_in_head: bool = False,
    average: bool = False,
    match: Literal["similar", "random"] = "similar",
    keep_teacher: bool = False,
    most: Count = 10,
    probes: Annotated[int, at_least(2)] = 512,
    temperature: Positive = 0.5,
    server_lr: Positive = 1e-3,
    server_batch: Annotated[int, at_least(2)] = 8,
) -> Algorithm:
    """Distillation from a teacher for every client, stitched from blocks of all clients' networks.

    A client keeps its own network and minimises cross-entropy + lam KL(teacher || its network), where the teacher is
    frozen (eq. 6). A client without a teacher trains on cross-entropy alone.

    The server cuts the uploads into blocks and clusters the blocks into `groups` groups by their function on `probes`
    public images (eqs. 3 and 4). In these it searches for candidates, chains of blocks (`search.chains`); without any,
    it tries fewer groups. It stitches the candidates and trains them, and copies of the uploads, with Adam on the
    public images (`public_training`). The teacher of a client is the candidate whose logits are most similar to those
    of the client's copy (eqs. 2 and 5). It is sent if the client takes part in the next round.

    BatchNorm belongs to its block, dropout to no block. Clients may have different architectures, and every client is
    evaluated with its own network. `lam=0` is Local-Only.

    Args:
        groups: number of groups, at least 2; the paper has 4.
        lam: weight of the divergence from the teacher, at least 0.
        labelled: whether the server trains on the labels of the public images; False: on two views of each image,
            without labels.
        server_epochs: epochs on the public images in a round, at least 1; the paper has 3.
        stitch_depth: linear maps in a stitch, at least 1; the paper has 1.
        stitch_relu: whether a ReLU follows each of them, as printed; the published code has none.
        end_in_head: whether candidates end in a client's head wherever one fits, as in the paper's Fig. 7.
        average: whether uploads of the same architecture are averaged before they are cut, as section 4.2 does with
            many clients.
        match: "similar" is eq. 5; "random" gives each client a random candidate.
        keep_teacher: whether a teacher is sent whenever its client takes part again, not only in the next round.
        most: maximum number of candidates, at least 1.
        probes: public images on which blocks are compared, at least 2.
        temperature: temperature of the loss without labels, above 0.
        server_lr: step size of the server's Adam, above 0.
        server_batch: public images in a batch, at least 2.

    Raises:
        ValueError: the federation has no public images, or a network cannot be cut into blocks.

    Source:
        Wang et al., "Towards Personalized Federated Learning via Heterogeneous Model Reassembly", NeurIPS 2023,
        Algorithm 1, equations 1 to 6.

    Example:
        >>> from fedlib.methods.pfedhr import replay
        >>> data = fl.load("digits", copies=1)
        >>> federation = fl.federate(data, fl.dirichlet(alpha=0.5), clients=2, test_fraction=0.9, public=0.1)
        >>> method = fl.pfedhr(server_epochs=1, most=2, probes=10, server_batch=32)
        >>> result = fl.run(method, federation, "m1_thin", rounds=1, progress=False)
        >>> tried = replay(result.state.log, 0)  # in the first round
        >>> tried.similarity.argmax(1).tolist() == tried.match  # each client has the most similar candidate
        True
    """

    def loss(w, batch, teacher, weight):  # ONE client; eq. 6
        z = batch.model(w, batch.x)
        return F.cross_entropy(z, batch.y) + weight * divergence(teacher[batch.index], z)

    def init(model, federation):
        need_public("pfedhr", federation)
        answers, n = model.zeros(len(federation.data), model.n_classes), federation.n_clients
        size = model.zeros(n).long()
        return State(initial(deal(model, n)), answers, torch.full_like(size, NEVER), size, {})

    def local_update(state, cohort):  # -> the uploads, in the order of the cohort, and their means by architecture
        has = state.matched > NEVER if keep_teacher else state.matched == cohort.round - 1
        cohort.channel.bytes_down += (has * state.size)[cohort.clients].sum().item()
        weight, uploads, means = lam * has.to(state.answers.dtype), {}, []
        for peers in cohort.by_architecture():
            v = train(peers, loss, peers.mine(state.v), repeat(state.answers, peers.size), weight[peers.clients])
            peers.keep(state.v, peers.receive(v))
            uploads |= {i: Network(peers.model, row(v, j)) for j, i in enumerate(peers.ids)}
            means.append(Network(peers.model, client_mean(v, peers.n_samples)))
        return [uploads[i] for i in cohort.ids], means

    def probed(cohort):  # public images for the comparison of blocks
        index = generator(cohort.seed, "pfedhr", "probes").permutation(len(cohort.public.y))[:probes]
        return cohort.public.batch(to_device(torch.from_numpy(index), cohort.clients.device), cohort.model).x

    def matches(similarity, cohort):  # number of each client's candidate
        k, n = similarity.shape
        if n and match == "random":
            return generator(*cohort.server_stream, "match").integers(n, size=k).tolist()
        return similarity.argmax(1).tolist() if n else [NOTHING] * k

    def teach(state, cohort, chosen, candidates, trained):  # writes their logits, for the next local training
        right = torch.full((len(chosen),), -1.0, device=state.answers.device)  # accuracy on their training images
        for i, m in enumerate(chosen):
            if m != NOTHING:
                client, teacher = cohort.subset([i], candidates[m]), repeat(trained[m], 1)
                write_logits(state.answers, client, teacher)
                state.matched[client.ids[0]], state.size[client.ids[0]] = cohort.round, n_bytes(teacher)
                index = to_device(torch.from_numpy(client.samples[0]), right.device)
                right[i] = (state.answers[index].argmax(1) == cohort.images.y[index]).float().mean()
        return right

    def round(state, cohort):
        uploads, means = local_update(state, cohort)
        pool, x = means if average else uploads, probed(cohort)
        public, stream = cohort.public, cohort.server_stream
        tried = reassemble(pool, x, groups, most, stitch_depth, stream, stitch_relu, end_in_head)  # eqs. 1, 3, 4
        fit = public_training(public, labelled, server_epochs, server_batch, server_lr, temperature, stream)
        trained, z_copies, z_candidates = after_training(uploads, tried.candidates, public, fit)
        similarity = alike(z_copies, z_candidates)  # eq. 5
        chosen = matches(similarity, cohort)  # eq. 2
        right = teach(state, cohort, chosen, tried.candidates, trained)
        networks = [model for model, _ in cohort.architectures]
        row = record(tried, pool, networks, most, cohort.clients, similarity, chosen, right)
        return state._replace(log=appended(state.log, row))

    return Algorithm("pfedhr", init, round, models=lambda state: state.v, mixed=True)
