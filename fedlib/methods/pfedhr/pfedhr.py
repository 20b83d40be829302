"""pFedHR (Wang et al., NeurIPS 2023): a teacher for every client, put together from blocks of the clients' networks."""

from typing import Annotated, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fedlib.algorithm import Algorithm, algorithm, need_public
from fedlib.checks import above, at_least
from fedlib.methods.pfedhr.match import alike, trained
from fedlib.methods.pfedhr.public import public_training
from fedlib.methods.pfedhr.reassemble import Network, reassemble
from fedlib.methods.pfedhr.record import NOTHING, appended, record
from fedlib.models.mixture import deal, initial
from fedlib.stack import Params, PerArchitecture, client_mean, n_bytes
from fedlib.streams import generator
from fedlib.training.batches import to_device

NEVER = -2  # the round of a match that was not made


class State(NamedTuple):
    """Teachers stay with the server until they are sent; what they will answer is written down when they are made."""

    v: PerArchitecture
    taught: Tensor  # [samples, n_classes]: what the teacher of its client answers to each train sample
    since: Tensor  # int64 [n_clients]: the round in which a client was matched with its teacher
    size: Tensor  # int64 [n_clients]: bytes of that teacher
    log: Params  # [rounds, ...]: what the server tried, see `reassembly.record`


@algorithm
def pfedhr(
    groups: Annotated[int, at_least(2)] = 4,
    lam: Annotated[float, at_least(0)] = 0.2,
    labelled: bool = True,
    server_epochs: Annotated[int, at_least(1)] = 3,
    stitch_depth: Annotated[int, at_least(1)] = 1,
    stitch_relu: bool = True,
    end_in_head: bool = False,
    average: bool = False,
    match: Literal["similar", "random"] = "similar",
    keep_teacher: bool = False,
    most: Annotated[int, at_least(1)] = 10,
    probes: Annotated[int, at_least(2)] = 512,
    temperature: Annotated[float, above(0)] = 0.5,
    server_lr: Annotated[float, above(0)] = 1e-3,
    server_batch: Annotated[int, at_least(2)] = 8,
) -> Algorithm:
    """Local loss: cross-entropy + lam KL(teacher || own), the teacher frozen (eq. 6); own models are never replaced.

    The server cuts the uploads into blocks, makes `groups` groups of blocks that do the same on `probes` public
    images, searches at most `most` candidates (`reassembly.search`; with fewer groups if there is none), stitches
    them with `stitch_depth` layers and trains them, and copies of the uploads, on the public images for `server_epochs`
    with Adam: on their labels, or without them on two views of each (`public_training`). A client's teacher is the
    candidate whose logits are most like those of its copy (eq. 5), or with `match="random"` any. It is sent if the
    client takes part in the next round, or with `keep_teacher` whenever it takes part again. With `average` uploads of
    the same architecture are averaged before they are cut (section 4.2). BatchNorm is part of its block, dropout of
    none. A client without a teacher trains alone, so `lam=0` is Local-Only. Evaluated: own model.

    Two readings: the paper prints a ReLU behind every stitch, its published code has none (`stitch_relu=False`); its
    Fig. 7 ends in the head of a client, as candidates do with `end_in_head` wherever one fits.
    """

    def loss(w, batch, teacher):  # ONE client
        own, answers = batch.model(w, batch.x), teacher["logits"][batch.index]
        divergence = F.kl_div(own.log_softmax(1), answers.softmax(1), reduction="batchmean")
        return F.cross_entropy(own, batch.y) + teacher["weight"] * divergence

    def init(model, federation):
        need_public("pfedhr", federation)
        like = next(iter(model.weights.values()))
        taught = like.new_zeros(len(federation.data), model.n_classes)
        since = torch.full((federation.n_clients,), NEVER, device=like.device)
        return State(initial(deal(model, federation.n_clients)), taught, since, torch.zeros_like(since), {})

    def local_update(state, cohort):  # -> the uploads, in the order of the cohort, and their means by architecture
        told = state.since > NEVER if keep_teacher else state.since == cohort.round - 1
        cohort.meter.bytes_down += (told * state.size)[cohort.clients].sum().item()
        weight, uploads, means = lam * told.to(state.taught.dtype), {}, []
        for part in cohort.parts():
            teacher = {"logits": state.taught.expand(part.size, -1, -1), "weight": weight[part.clients]}
            v = part.receive(part.train(loss, part.mine(state.v), teacher))  # [k, ...]
            part.keep(state.v, v)
            uploads |= {i: Network(part.model, {n: t[row] for n, t in v.items()}) for row, i in enumerate(part.ids)}
            means.append(Network(part.model, client_mean(v, part.n_samples)))
        return [uploads[i] for i in cohort.ids], means

    def matched(similarity, stream):  # the number of each client's candidate
        k, n = similarity.shape
        if n and match == "random":
            return generator(*stream, "match").integers(n, size=k).tolist()
        return similarity.argmax(1).tolist() if n else [NOTHING] * k

    def round(state, cohort):
        uploads, means = local_update(state, cohort)  # (6)
        pool, public, stream = means if average else uploads, cohort.public, cohort.server_stream
        probed = generator(cohort.seed, "pfedhr", "probes").permutation(len(public.y))[:probes]
        x = public.batch(to_device(torch.from_numpy(probed), public.y.device), cohort.model).x
        tried = reassemble(pool, x, groups, most, stitch_depth, stream, stitch_relu, end_in_head)  # (1), (3), (4)
        train = public_training(public, labelled, server_epochs, server_batch, server_lr, temperature, stream)
        tuned, own, theirs = trained(uploads, tried.candidates, public, train)
        similarity = alike(own, theirs)  # (5)
        chosen = matched(similarity, stream)  # (2)
        for i, m in enumerate(chosen):
            if m != NOTHING:
                teacher = {name: t[None] for name, t in tuned[m].items()}
                cohort.part([i], tried.candidates[m]).write_logits(state.taught, teacher)
                state.since[cohort.ids[i]], state.size[cohort.ids[i]] = cohort.round, n_bytes(teacher)
        architectures = [group.model for group in cohort.groups]
        row = record(tried, pool, architectures, most, cohort.clients, similarity, chosen)
        return state._replace(log=appended(state.log, row))

    return Algorithm("pfedhr", init, round, models=lambda state: state.v, mixed=True)
