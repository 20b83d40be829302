"""Per-FedAvg (Fallah et al., NeurIPS 2020, Algorithm 1): a global model that is good after one step on a client."""

from typing import Annotated, Literal

from torch.func import grad

from fedlib.algorithm import Algorithm, Global, algorithm, init_global, one_for_all
from fedlib.checks import above, at_least
from fedlib.stack import Params, drop, repeat, select, uniform_mean
from fedlib.training.batches import Batch
from fedlib.training.losses import cross_entropy
from fedlib.training.phase import Loss


def slope(loss: Loss, w: Params, theta: Params, batch: Batch) -> Params:
    """Gradient of `loss` at the parameters `theta`, BatchNorm statistics of `w` being left as they are."""

    def at(theta):
        statistics = {name: t.clone() for name, t in drop(w, theta).items()}  # the pass would update them in place
        return loss(statistics | theta, batch)

    return grad(at)(theta)


def step(theta: Params, direction: Params, rate: float) -> Params:
    """theta - rate direction."""
    return {name: t - rate * direction[name] for name, t in theta.items()}


def detached(w: Params, batch: Batch) -> Params:
    return {name: t.detach() for name, t in select(w, batch.model.trainable).items()}


def first_order(loss: Loss, alpha: float) -> Loss:
    """A loss whose gradient is that of `loss` on the second half of a batch, after one step on the first half.

    The step is w' = w - alpha grad loss(w, first), taken as a constant shift: d w'/d w = 1. BatchNorm statistics
    follow the second pass only, that of the model w' which is to be good.
    """

    def adapted_loss(w, batch):  # ONE client
        first, second = batch.split(2)
        free = select(w, batch.model.trainable)
        return loss(w | step(free, slope(loss, w, detached(w, batch), first), alpha), second)

    return adapted_loss


def hessian_free(loss: Loss, alpha: float, delta: float) -> Loss:
    """`first_order` on the first two thirds of a batch, less alpha times the Hessian on the last third times that.

    With g the gradient at w', the product is (grad loss(w + delta g) - grad loss(w - delta g)) / (2 delta), both on
    the third batch (Fallah et al., eq. 8).
    """

    def adapted_loss(w, batch):  # ONE client
        first, second, third = batch.split(3)
        free, here = select(w, batch.model.trainable), detached(w, batch)
        shift = slope(loss, w, here, first)
        g = slope(loss, w, step(here, shift, alpha), second)
        ahead, behind = (slope(loss, w, step(here, g, rate), third) for rate in (-delta, delta))
        product = {name: (t - behind[name]) / (2 * delta) for name, t in ahead.items()}
        turn = sum(((free[name] - here[name]) * t).sum() for name, t in product.items())  # 0, with that gradient
        return loss(w | step(free, shift, alpha), second) - alpha * turn

    return adapted_loss


@algorithm
def perfedavg(
    alpha: Annotated[float, at_least(0)] = 0.01,
    beta: Annotated[float, above(0)] = 0.001,
    hessian: Literal["first_order", "free"] = "first_order",
    delta: Annotated[float, above(0)] = 1e-3,
    steps: Annotated[int, at_least(1)] | None = None,
) -> Algorithm:
    """Two mini-batches a step: w' = w - alpha grad l_1(w), then w -= beta grad l_2(w'); uniform mean of the clients.

    That leaves out the Hessian ("first_order"); `hessian="free"` takes a third batch for its product with the gradient,
    by differences of size `delta` (`hessian_free`). An epoch has floor(batches / 2) steps (or / 3), at least one (a
    client with fewer batches takes its samples again); with `steps` every client takes so many, whatever the local
    epochs (FedSimSup, section 4.1: 4). The run's lr is not used. BatchNorm is aggregated; its statistics follow l_2
    only. Evaluated: the global model after one epoch of SGD at rate `alpha` on each client's train part, on a copy
    (when="after"). `alpha=0` is FedAvg with a uniform mean at lr = beta on every second (or third) batch.
    """
    n_batches = 3 if hessian == "free" else 2
    loss = hessian_free(cross_entropy, alpha, delta) if hessian == "free" else first_order(cross_entropy, alpha)

    def round(state, cohort):
        epochs = None if steps is None else range(steps)  # of one step or more
        start = cohort.broadcast(state.w)
        w_i = cohort.train(loss, start, epochs=epochs, steps=steps, lr=beta, batches_per_step=n_batches)  # [k, ...]
        return Global(uniform_mean(cohort.receive(w_i)))

    def tune(state, everyone):
        return everyone.train(cross_entropy, repeat(state.w, everyone.size), lr=alpha)

    return Algorithm("perfedavg", init_global, round, models=one_for_all, tune_epochs=1, tune=tune)
