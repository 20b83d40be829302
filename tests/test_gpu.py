"""What can only be checked on a GPU: graphs are captured, nothing waits, the numbers are those of the CPU."""

import pytest
import torch
from methods import FACTORIES, READ_BACK
from torch.utils._pytree import tree_leaves

import fedlib as fl
from fedlib.runs.determinism import deterministic
from fedlib.runs.prepare import prepare
from fedlib.runs.session import Session

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU on this machine")
SETTING = dict(rounds=3, join_ratio=0.5, local_epochs=2, batch_size=8, lr=0.05)


@pytest.mark.parametrize("method", fl.algorithms())
def test_a_gpu_gives_the_numbers_of_a_cpu(method, federation):
    setting = SETTING | dict(dtype="float64", progress=False)
    gpu, cpu = (fl.run(FACTORIES[method](), federation, **setting, device=device) for device in ("cuda", "cpu"))
    assert gpu.config["backend"] == "stacked"
    torch.testing.assert_close(tree_leaves(gpu.models), tree_leaves(cpu.models), rtol=1e-5, atol=1e-7)
    assert (gpu.accuracy["accuracy"] == cpu.accuracy["accuracy"]).mean() > 0.99


@pytest.mark.parametrize("method", fl.algorithms())
def test_the_same_seed_gives_the_same_bits_on_a_gpu(method, federation, tmp_path):
    first = fl.run(FACTORIES[method](), federation, **SETTING, progress=False, store=tmp_path)
    (first.folder / "run.safetensors").unlink()
    again = fl.run(FACTORIES[method](), federation, **SETTING, progress=False, store=tmp_path)  # the same convolutions
    assert all(map(torch.equal, tree_leaves(first.models), tree_leaves(again.models)))


@pytest.mark.parametrize("model", ["lenet5", "m1"])  # without and with dropout
def test_steps_that_are_no_graphs_give_the_same_bits(model, federation, tmp_path):
    setting = SETTING | dict(model=model, progress=False, store=tmp_path)  # one store: the same convolutions
    replayed = fl.run("fedavg", federation, **setting)
    (replayed.folder / "run.safetensors").unlink()
    plain = fl.run("fedavg", federation, **setting, graphs=False)
    assert plain.folder == replayed.folder
    assert all(torch.equal(t, plain.models[name]) for name, t in replayed.models.items())


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature")
@pytest.mark.parametrize("method", sorted(set(FACTORIES) - READ_BACK))
def test_a_round_is_replayed_and_never_waited_for(method, federation, run_store):
    """The same round twice: the first one captures its graphs, in the second every wait for the GPU is an error."""
    plan = prepare(FACTORIES[method](), federation, **SETTING, device="cuda")
    with deterministic("cuda"):
        session = Session(plan, store=run_store)
        state = session.init()
        for mode in ("default", "error"):
            torch.cuda.set_sync_debug_mode(mode)
            try:
                state = plan.algorithm.round(state, session.cohort(0))
            finally:
                torch.cuda.set_sync_debug_mode("default")
    programs = session.trainer._programs.values()
    assert programs
    assert all(program._graphs for program in programs)
