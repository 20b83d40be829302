"""Per-FedAvg (Fallah et al., NeurIPS 2020, Algorithm 1): a global model that is good after one step on a client."""

from typing import Literal

from torch import Tensor
from torch.func import grad

from fedlib.algorithm import Algorithm, Global, algorithm, init_global, one_for_all
from fedlib.checks import Count, NonNegative, Positive
from fedlib.stack import Params, drop, repeat, select, tree_map, uniform_mean
from fedlib.training import Batch, cross_entropy, train
from fedlib.training.phase import Loss


def slope(loss: Loss, w: Params, theta: Params, batch: Batch) -> Params:
    """Gradient of a loss at the parameters theta, with BatchNorm's running statistics of w, which do not change."""

    def at(theta):
        statistics = {name: t.clone() for name, t in drop(w, theta).items()}  # the pass would update them in place
        return loss(statistics | theta, batch)

    return grad(at)(theta)


def step(theta: Params, direction: Params, rate: float) -> Params:
    """One gradient step: theta - rate direction."""
    return tree_map(lambda t, d: t - rate * d, theta, direction)


def detached(w: Params, batch: Batch) -> Params:
    """The parameters among the weights, without a gradient."""
    return tree_map(Tensor.detach, select(w, batch.model.trainable))


def first_order(loss: Loss, alpha: float) -> Loss:
    """Loss after one gradient step: `loss` on the second half of a batch, after a step on the first half.

    The step is w' = w - alpha grad loss(w, first). It is treated as a constant shift, d w'/d w = 1, so the gradient is
    that of `loss` at w'. BatchNorm's running statistics are updated by the second pass only, that of the model w'.
    """

    def adapted_loss(w, batch):  # ONE client
        first, second = batch.split(2)
        free = select(w, batch.model.trainable)
        return loss(w | step(free, slope(loss, w, detached(w, batch), first), alpha), second)

    return adapted_loss


def hessian_free(loss: Loss, alpha: float, delta: float) -> Loss:
    """Loss after one gradient step with its full gradient g - alpha H g, without computing the Hessian H.

    g is the gradient of `first_order` on the first two thirds of a batch. The Hessian-vector product on the last third
    is a finite difference: H g = (grad loss(w + delta g) - grad loss(w - delta g)) / (2 delta).
    """

    def adapted_loss(w, batch):  # ONE client
        first, second, third = batch.split(3)
        free, fixed = select(w, batch.model.trainable), detached(w, batch)  # the same numbers
        shift = slope(loss, w, fixed, first)
        g = slope(loss, w, step(fixed, shift, alpha), second)
        ahead, behind = (slope(loss, w, step(fixed, g, rate), third) for rate in (-delta, delta))
        product = tree_map(lambda a, b: (a - b) / (2 * delta), ahead, behind)
        turn = sum(((free[name] - fixed[name]) * t).sum() for name, t in product.items())  # 0; its gradient is H g
        return loss(w | step(free, shift, alpha), second) - alpha * turn

    return adapted_loss


@algorithm(label="Per-FedAvg", colour="pink", marker="X")
def perfedavg(
    alpha: NonNegative = 0.01,
    beta: Positive = 0.001,
    hessian: Literal["first_order", "free"] = "first_order",
    delta: Positive = 1e-3,
    steps: Count | None = None,
) -> Algorithm:
    """A global model that is good after one step of training on a client.

    A client minimises the loss after one gradient step. Each local step takes two mini-batches with losses l_1, l_2:
    w' = w - alpha grad l_1(w), then w -= beta grad l_2(w'). The server takes the unweighted mean of the clients'
    models. BatchNorm is averaged; its running statistics are updated with l_2 only. The run's `lr` is not used.

    An epoch has floor(batches / 2) steps (/ 3 with `hessian="free"`), but at least one: a client with fewer batches
    repeats its samples. Every client is evaluated with a copy of the global model after one epoch of SGD at rate
    `alpha` on its training samples (`when="after"`).

    `alpha=0` is FedAvg with equal client weights, at lr = beta, on every second (or third) batch.

    Args:
        alpha: size of the step that adapts the model to a client, at least 0; pFedSim has 0.01, FedSimSup 0.001.
        beta: step size of local training, above 0; pFedSim has 0.001.
        hessian: "first_order" omits the Hessian; "free" computes its product with the gradient by finite differences on
            a third batch (`hessian_free`), as in FedSimSup.
        delta: size of these differences, above 0.
        steps: local steps of every client in a round, for any number of local epochs, at least 1; FedSimSup has 4
            (section 4.1). None: the steps of the local epochs.

    Source:
        Fallah et al., "Personalized Federated Learning with Theoretical Guarantees: A Model-Agnostic Meta-Learning
        Approach", NeurIPS 2020.

    Example:
        >>> federation = fl.federate(fl.load("digits", copies=1), fl.dirichlet(0.5), clients=4, test_fraction=0.8)
        >>> result = fl.run(fl.perfedavg(steps=1), federation, rounds=1, progress=False)
        >>> result.when, result.accuracy["when"].unique().tolist()
        ('after', ['before', 'after'])
    """
    n_batches = 3 if hessian == "free" else 2
    loss = hessian_free(cross_entropy, alpha, delta) if hessian == "free" else first_order(cross_entropy, alpha)

    def round(state, cohort):
        epochs = None if steps is None else range(steps)  # of one step or more
        start = cohort.broadcast(state.w)
        w_i = train(cohort, loss, start, epochs=epochs, steps=steps, lr=beta, batches_per_step=n_batches)  # [k, ...]
        return Global(uniform_mean(cohort.receive(w_i)))

    def tune(state, everyone):
        return train(everyone, cross_entropy, repeat(state.w, everyone.size), lr=alpha)

    return Algorithm("perfedavg", init_global, round, models=one_for_all, tune_epochs=1, tune=tune)
