"""pFedHR (Wang et al., NeurIPS 2023): a teacher for every client, put together from blocks of the clients' networks."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fedlib.algorithm import Algorithm, algorithm, need_public
from fedlib.checks import check_choice, check_count, check_number
from fedlib.models.mixture import deal, stacks
from fedlib.reassembly.blocks import decompose
from fedlib.reassembly.reassemble import Network, reassemble
from fedlib.reassembly.record import NOTHING, appended, record
from fedlib.stack import Params, client_mean
from fedlib.streams import generator
from fedlib.training.batches import to_device
from fedlib.training.evaluate import logits
from fedlib.training.server import public_training

NEVER = -2  # the round of a match that was not made


class State(NamedTuple):
    v: Params  # for every architecture a stack with a row for each of its clients
    taught: Tensor  # [samples, n_classes]: what the teacher of its client answers to each train sample
    since: Tensor  # int64 [n_clients]: the round in which a client got its teacher
    log: Params  # [rounds, ...]: what the server tried, see `reassembly.record`


def alike(own: Tensor, candidates: Tensor) -> Tensor:
    """Mean cosine of logits (eq. 8): own [k, P, n_classes], candidates [M, P, n_classes] -> [k, M]."""
    unit, others = (F.normalize(z, dim=2).flatten(1) for z in (own, candidates))
    return unit @ others.T / own.shape[1]


@algorithm
def pfedhr(
    groups: int = 4,
    lam: float = 0.2,
    labelled: bool = True,
    server_epochs: int = 3,
    stitch_depth: int = 1,
    average: bool = False,
    match: str = "similar",
    keep_teacher: bool = False,
    most: int = 10,
    probes: int = 512,
    temperature: float = 0.5,
    server_lr: float = 1e-3,
    server_batch: int = 64,
) -> Algorithm:
    """Local loss: cross-entropy + lam KL(teacher || own), the teacher frozen (eq. 9); own models are never replaced.

    The server cuts the uploads into blocks, makes `groups` groups of blocks that do the same on `probes` public
    images, searches at most `most` candidates (`reassembly.search`; with fewer groups if there is none), stitches
    them with `stitch_depth` layers and trains them, and copies of the uploads, on the public images for `server_epochs`
    with Adam: on their labels, or without them on two views of each (`public_training`). A client is sent the candidate
    whose logits are most like those of its copy (eq. 8), or with `match="random"` any. The teacher counts in the next
    round only, or with `keep_teacher` whenever the client takes part again; what it answers to the client's train part
    is kept, not the teacher. With `average` uploads of the same architecture are averaged before they are cut (section
    4.3). BatchNorm is part of its block. A client without a teacher trains alone, so `lam=0` is Local-Only.
    Evaluated: own model.
    """
    check_number("lam", lam, 0)
    check_choice("match", match, ("similar", "random"))
    check_number("temperature", temperature, 0, open_low=True)
    check_number("server_lr", server_lr, 0, open_low=True)
    for argument, count in {"groups": groups, "probes": probes, "server_batch": server_batch}.items():
        check_count(argument, count, 2)
    for argument, count in {"most": most, "server_epochs": server_epochs, "stitch_depth": stitch_depth}.items():
        check_count(argument, count)

    def loss(w, batch, teacher):  # ONE client
        own, answers = batch.model(w, batch.x), teacher["logits"][batch.index]
        divergence = F.kl_div(own.log_softmax(1), answers.softmax(1), reduction="batchmean")
        return F.cross_entropy(own, batch.y) + teacher["weight"] * divergence

    def init(model, federation):
        need_public("pfedhr", federation)
        like = next(iter(model.weights.values()))
        taught = like.new_zeros(len(federation.data), model.n_classes)
        since = torch.full((federation.n_clients,), NEVER, device=like.device)
        return State(stacks(deal(model, federation.n_clients)), taught, since, {})

    def local_update(state, cohort):  # -> the uploads, in the order of the cohort, and the networks to be cut
        present = state.since > NEVER if keep_teacher else state.since == cohort.round - 1
        weight, uploads, means = lam * present.to(state.taught.dtype), {}, []
        for part in cohort.parts():
            teacher = {"logits": state.taught.expand(part.size, -1, -1), "weight": weight[part.clients]}
            v = part.gather(part.train(loss, part.own(state.v), teacher))  # [k, ...]
            part.keep(state.v, v)
            uploads |= {i: Network(part.model, {n: t[row] for n, t in v.items()}) for row, i in enumerate(part.ids)}
            means.append(Network(part.model, client_mean(v, part.n_samples)))
        uploads = [uploads[i] for i in cohort.ids]
        return uploads, means if average else uploads

    def teach(state, cohort, candidates, uploads):  # -> similarity [k, most], match [k]
        public, stream = cohort.public, cohort.server_stream
        train = public_training(public, labelled, server_epochs, server_batch, server_lr, temperature, stream)
        everything = torch.arange(len(public.y), device=public.y.device)
        networks = [*(Network(own, own.weights) for own in candidates), *uploads]
        tuned = [train(model, w, number) for number, (model, w) in enumerate(networks)]
        answers = [logits(model, w, public, everything) for (model, _), w in zip(networks, tuned, strict=True)]
        n = len(candidates)
        similarity = alike(torch.stack(answers[n:]), torch.stack(answers[:n]))  # [k, n]
        chosen = similarity.argmax(1).tolist()
        if match == "random":
            chosen = generator(*stream, "match").integers(n, size=len(uploads)).tolist()
        for i, m in enumerate(chosen):
            sent = cohort.scatter({name: t[None] for name, t in tuned[m].items()})
            cohort.part([i], candidates[m]).write_logits(state.taught, sent)
        similarity = F.pad(similarity, (0, most - n), value=-torch.inf)
        return similarity, to_device(torch.tensor(chosen), cohort.clients.device)

    def round(state, cohort):
        uploads, pool = local_update(state, cohort)
        public, rng = cohort.public, generator(cohort.seed, "pfedhr", "probes")
        chosen = to_device(torch.from_numpy(rng.permutation(len(public.y))[:probes]), public.y.device)
        x = public.batch(chosen, cohort.model).x
        tried = reassemble(pool, x, groups, most, stitch_depth, cohort.server_stream)

        answer = state.taught.new_full((cohort.size, most), -torch.inf), torch.full_like(cohort.clients, NOTHING)
        if tried.candidates:
            answer = teach(state, cohort, tried.candidates, uploads)
            state = state._replace(since=state.since.index_fill(0, cohort.clients, cohort.round))
        names = [group.model.name for group in cohort.groups]
        networks = [names.index(model.name) for model, _ in pool]
        deepest = max(len(decompose(group.model)) for group in cohort.groups)
        answer = dict(zip(("similarity", "match"), answer, strict=True))
        row = record(tried, networks, deepest, most, groups + 1, cohort.clients, answer)
        return state._replace(log=appended(state.log, row))

    return Algorithm("pfedhr", init, round, models=lambda state: state.v, mixed=True)
