"""Per-FedAvg (Fallah et al., NeurIPS 2020, Algorithm 1): a global model that is good after one step on a client."""

from torch.func import grad

from fedlib.algorithm import Algorithm, Global, algorithm, broadcast, init_global
from fedlib.checks import check_number
from fedlib.stack import drop, repeat, select, uniform_mean
from fedlib.training.losses import cross_entropy
from fedlib.training.phase import Loss


def first_order(loss: Loss, alpha: float) -> Loss:
    """A loss whose gradient is that of `loss` on the second half of a batch, after one step on the first half.

    The step is w' = w - alpha grad loss(w, first), taken as a constant shift: d w'/d w = 1. BatchNorm statistics
    follow the second pass only, that of the model w' which is to be good.
    """

    def adapted_loss(w, batch):  # ONE client
        first, second = batch.split(2)
        free = select(w, batch.model.trainable)

        def before(theta):
            statistics = {name: t.clone() for name, t in drop(w, free).items()}  # the pass would update them in place
            return loss(statistics | theta, first)

        slope = grad(before)({name: t.detach() for name, t in free.items()})
        return loss(w | {name: t - alpha * slope[name] for name, t in free.items()}, second)

    return adapted_loss


@algorithm
def perfedavg(alpha: float = 0.01, beta: float = 0.001) -> Algorithm:
    """Two mini-batches a step: w' = w - alpha grad l_1(w), then w -= beta grad l_2(w'). First order; uniform mean.

    An epoch has floor(batches / 2) steps, at least one (a client with a single batch takes its samples again); the
    run's lr is not used. BatchNorm is aggregated; its statistics follow l_2 only. Evaluated: the global model after
    one epoch of SGD at rate `alpha` on each client's train part, on a copy (when="after"). `alpha=0` is FedAvg with a
    uniform mean at lr = beta on every second batch.
    """
    check_number("alpha", alpha, 0)
    check_number("beta", beta, 0, open_low=True)
    loss = first_order(cross_entropy, alpha)

    def round(state, cohort):
        w_i = cohort.train(loss, cohort.broadcast(state.w), lr=beta, batches_per_step=2)  # [k, ...]
        return Global(uniform_mean(cohort.gather(w_i)))

    def tune(state, everyone):
        return everyone.train(cross_entropy, repeat(state.w, everyone.size), lr=alpha)

    return Algorithm("perfedavg", init_global, round, models=broadcast, tune_epochs=1, tune=tune)
