"""The engine: stacks equal loops, seeds that share a stack equal seeds that do not, nothing waits for the device."""

import gc
import json
import math
import threading
import weakref
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import stopped
from hypothesis import given
from hypothesis import strategies as st
from methods import FACTORIES
from phases import phase
from torch import nn
from trees import distance, same_bits

import fedlib as fl
from fedlib.engine import backends, lockstep, program, stacked
from fedlib.engine.begun import begin, join, split
from fedlib.engine.convolution import FORMS, PatchConvolution, convolutions
from fedlib.engine.loop import train_loop
from fedlib.engine.program import WARM_UP, CaptureError, Program
from fedlib.engine.stacked import Stacked, stages
from fedlib.models import MODELS, build
from fedlib.runs import rounds, session, work
from fedlib.runs.determinism import deterministic
from fedlib.runs.prepare import prepare
from fedlib.training import evaluation, train
from fedlib.training.adam import step_of_adam
from fedlib.training.batches import on_device
from fedlib.training.evaluation import Evaluation
from fedlib.training.losses import cross_entropy
from fedlib.training.phase import roles

SETTING = dict(rounds=3, join_ratio=0.5, local_epochs=2, batch_size=8, lr=0.05)
SIZES = (40, 9, 120, 8, 17, 1, 33, 64, 25)  # samples of nine clients: 1 to 15 steps of 8


@pytest.fixture(scope="module")
def model(tiny):
    return build("lenet5", MODELS["lenet5"], tiny.x.shape[1:], 4, seed=0)


@pytest.fixture(scope="module")
def shares():
    rng = np.random.default_rng(0)
    return [rng.choice(240, n, replace=False) for n in SIZES]


# -- the stacked backend ------------------------------------------------------------------------------------------
@given(st.lists(st.integers(0, 60), min_size=1, max_size=40))
def test_stages_train_every_client_to_its_end_and_halve_the_stack(n_steps):
    n_steps = sorted(n_steps, reverse=True)
    done, sizes = 0, [len(n_steps) + 1]
    for size, steps in stages(n_steps):
        assert steps > 0
        assert size < sizes[-1]
        assert all(n <= done for n in n_steps[size:])  # whoever left the stack has come to its end
        done, sizes = done + steps, [*sizes, size]
    assert done == n_steps[0]


@pytest.mark.parametrize("form", FORMS[:2])
@pytest.mark.parametrize("at_once", [128, 4])
def test_ragged_clients_in_stacks_that_shrink_equal_the_loop(form, at_once, model, tiny, shares, monkeypatch):
    monkeypatch.setattr(stacked, "AT_ONCE", at_once)
    monkeypatch.setattr(stacked, "SMALLEST", 1)
    task = phase(model, tiny, shares, epochs=2)
    assert {len(steps) for steps in task.batches} == {2 * -(-n // 8) for n in SIZES}
    (trained, losses), (expected, expected_losses) = Stacked(form)(task), train_loop(task)
    assert distance(trained, expected) < 1e-12
    assert torch.allclose(losses, expected_losses, rtol=1e-6)
    assert not torch.equal(trained["fc1.0.weight"][0], trained["fc1.0.weight"][1])


def test_a_client_can_train_and_write_single_numbers(model, tiny, shares):
    def loss(w, batch):  # ONE client
        w["seen"] += len(batch.y)
        return (w["scale"] - 1) ** 2 + w["scale"] * cross_entropy(w, batch)

    task = phase(model, tiny, shares[:4], loss=loss)
    w = task.w | {name: torch.ones(4, dtype=torch.float64) for name in ("scale", "seen")}
    task = task._replace(w=w, roles=roles(w, written=["seen"]))
    looped, stacked = (train(task)[0] for train in (train_loop, Stacked()))
    assert distance(looped, stacked) < 1e-12
    assert looped["seen"].tolist() == [1 + 8 * len(steps) for steps in task.batches]
    assert (looped["scale"] < 1).all()


@pytest.mark.parametrize(("momentum", "clipped"), [(0.0, False), (0.9, False), (0.9, True)])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize(("name", "clip"), [("lenet5", 1.25), ("lenet4", 1.9)])
def test_the_loop_takes_the_steps_of_torch_optim_to_the_bit(name, clip, optimizer, momentum, clipped, tiny):
    tiny = replace(tiny, x=np.concatenate([tiny.x, tiny.x // 2, tiny.x // 3], axis=1))  # in colour
    model = build(name, MODELS[name], tiny.x.shape[1:], 4, seed=0)
    some = phase(model, tiny, [np.arange(20), np.arange(20, 60)], dtype=torch.float32, epochs=2)
    changes = {"momentum": momentum, "clip": clip if clipped else None, "optimizer": optimizer, "lr": 0.005}
    trained, losses = train_loop(some._replace(**changes))
    for i, steps in enumerate(some.batches):
        w = {name: t.clone() for name, t in model.weights.items()}
        free, total, norms = [w[name].requires_grad_() for name in model.trainable], torch.zeros(()), []
        make = torch.optim.Adam if optimizer == "adam" else partial(torch.optim.SGD, momentum=momentum)
        bare = make(free, 0.005, fused=True) if optimizer == "adam" else make(free, 0.005)
        for index in steps:
            value = cross_entropy(w, some.images.batch(index, model))
            bare.zero_grad()
            value.backward()
            norms.append(torch.nn.utils.clip_grad_norm_(free, clip if clipped else math.inf))
            bare.step()
            total += value.detach()
        assert not clipped or min(norms) < clip < max(norms)
        assert torch.equal(losses[i], total / len(steps))
        assert all(torch.equal(trained[name][i], t.detach()) for name, t in w.items())


def test_adam_takes_a_transposed_gradient_for_what_it_is():
    w, first, second = torch.zeros(4, 3, requires_grad=True), torch.zeros(4, 3), torch.zeros(4, 3)
    gradient = torch.arange(12.0).view(3, 4).t()
    step_of_adam([w], [gradient], [first], [second], [torch.zeros(())], lr=0.1, fused=True)
    assert torch.allclose(first, 0.1 * gradient)
    assert torch.allclose(w, torch.where(gradient > 0, -0.1, 0.0))


@pytest.mark.parametrize(
    ("cohorts", "capacity"),  # clients and epochs; at most 45 and 30 steps
    [([(9, n) for n in (1, 3, 2)], 64), ([(k, 2) for k in (5, 9, 3, 1)], 32)],
)
def test_smaller_cohorts_and_shorter_phases_share_the_program_of_larger_ones(cohorts, capacity, model, tiny, shares):
    """Momentum starts anew in every phase."""
    train, images, programs, clients = Stacked(), on_device(tiny, torch.device("cpu"), torch.float64), [], 0
    for k, epochs in cohorts:
        task = phase(model, tiny, shares[:k], epochs=epochs)._replace(images=images, momentum=0.9)
        (trained, losses), (expected, expected_losses) = train(task), train_loop(task)
        assert distance(trained, expected) < 1e-12
        assert torch.allclose(losses, expected_losses, rtol=1e-6)
        [program] = train._programs.values()
        programs.append(program)
        clients = max(k, clients)
        assert program.clients == clients
    assert (len(set(programs)), programs[-1].capacity) == (2, capacity)


def test_public_images_are_on_the_device_once_however_many_cohorts_see_them(federation):
    plan = prepare("fedmd", federation, **SETTING)
    first = session.Session(plan)
    again = session.Session(plan, like=first, trainer=Stacked())  # as seeds that share a stack have it
    cohorts = [one.cohort(t) for t, one in enumerate((first, first, again))]
    assert len({id(cohort.public.x) for cohort in cohorts}) == 1


# -- CUDA graphs, pretended on a CPU ------------------------------------------------------------------------------
@pytest.fixture
def captured(monkeypatch) -> list:
    """Graphs, in the order of their capture, which runs the step (a real one does not); so does every replay."""
    graphs, capturing, init, advance = [], [], Program.__init__, Program._advance

    class Graph:
        def replay(self):
            self.step()

    @contextmanager
    def capture(graph, **_):
        capturing.append(graph)
        yield
        graphs.append(capturing.pop())

    def made(program, phase, clients, capacity, form, graphs):
        init(program, phase, clients, capacity, form, graphs)
        program._graphs = {} if graphs else None

    def stepped(program, *arguments):
        for graph in capturing:
            graph.step = partial(advance, weakref.proxy(program), *arguments)
        advance(program, *arguments)

    monkeypatch.setattr(Program, "__init__", made)
    monkeypatch.setattr(Program, "_advance", stepped)
    stream = SimpleNamespace(wait_stream=lambda _: None)
    for name in ("Stream", "current_stream"):
        monkeypatch.setattr(torch.cuda, name, lambda: stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", capture)
    return graphs


def test_steps_are_captured_once_for_each_size_of_a_stack_like_the_loop(captured, model, tiny, shares, monkeypatch):
    train, images = Stacked(), on_device(tiny, torch.device("cpu"), torch.float64)
    monkeypatch.setattr(stacked, "ROOMY", {"cpu"})
    for k in (9, 9, 5, 6, 4):  # 12, 6, 3 places; the same again; 6, 3; the same again; 4
        task = phase(model, tiny, shares[:k])._replace(images=images)
        assert distance(train(task)[0], train_loop(task)[0]) < 1e-12
    assert len(captured) == 4


def test_a_stack_has_room_for_all_and_at_most_half_as_many_empty_places():
    for n in range(1, stacked.AT_ONCE + 1):
        assert n <= stacked.roomy(n) <= min(max(1.5 * n, n + 1), stacked.AT_ONCE)
        assert len({stacked.roomy(m) for m in range(1, n + 1)}) <= 2 * math.log2(n) + 1


@pytest.mark.parametrize("graphs", [True, False])
def test_a_program_that_is_no_longer_kept_is_freed_at_once(graphs, captured, model, tiny, shares, monkeypatch):
    """By counting references: the garbage collector does not know when a GPU's memory is full."""
    monkeypatch.setattr(stacked, "KEPT", 1)
    train, task = Stacked(graphs=graphs), phase(model, tiny, shares[3:5])
    gc.collect()
    gc.disable()
    try:
        train(task)
        [program] = map(weakref.ref, train._programs.values())
        train(task._replace(loss=lambda w, batch: cross_entropy(w, batch)))
        assert program() is None
    finally:
        gc.enable()


def test_a_graph_that_cannot_be_captured_ends_the_run_in_one_sentence(captured, model, tiny, shares, monkeypatch):
    calls, cause = [], RuntimeError("operation not permitted when stream is capturing")

    def loss(w, batch):
        calls.append(None)
        if len(calls) > WARM_UP:
            raise cause
        return cross_entropy(w, batch)

    with pytest.raises(RuntimeError, match=r"could not be captured .*; restart Python with graphs=False\.$") as refusal:
        Stacked()(phase(model, tiny, shares, loss=loss))
    assert refusal.value.__cause__ is cause


def test_whether_steps_are_graphs_is_no_part_of_a_runs_address_and_reaches_the_trainer(federation):
    plans = [prepare("fedavg", federation, **SETTING, backend="stacked", graphs=graphs) for graphs in (True, False)]
    assert plans[0].config == plans[1].config
    assert [session.Session(plan).trainer.graphs for plan in plans] == [True, False]


# -- convolutions -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("padding", [0, 2, (3, 1)])
@pytest.mark.parametrize("bias", [True, False])
def test_a_convolution_of_patches_is_a_convolution(padding, bias):
    torch.manual_seed(0)
    layer = nn.Conv2d(3, 4, (3, 5), padding=padding, bias=bias).double()
    x = torch.randn(2, 3, 9, 8, dtype=torch.float64, requires_grad=True)
    target = torch.randn_like(layer(x))
    answers = []
    for form in FORMS[:2]:
        with convolutions(layer, form):
            out = layer(x)
        gradients = torch.autograd.grad((out * target).sum(), [x, *layer.parameters()])
        answers.append([out, *gradients])
    for a, b in zip(*answers, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
    inner = x.detach()[..., :6, :6].requires_grad_()
    assert torch.autograd.gradcheck(PatchConvolution.apply, (inner, layer.weight))


@pytest.mark.parametrize(("side", "kernel"), [(8, 3), (3, 3), (1, 1)], ids=["images", "to a pixel", "pixels"])
def test_a_convolution_of_patches_answers_images_with_their_channels_first(side, kernel):
    """BatchNorm on a GPU takes no others inside `vmap`; of images of one pixel, too, it looks at the strides."""
    x, weight = torch.randn(5, 2, 3, side, side), torch.randn(5, 4, 3, kernel, kernel)  # five clients
    out, pullback = torch.func.vjp(torch.func.vmap(PatchConvolution.apply), x, weight)
    for t in (out, pullback(torch.randn_like(out))[0]):
        assert t.stride() == torch.empty(t.shape).stride()


def test_convolutions_that_are_not_plain_stay_as_they_are():
    layer = nn.Sequential(nn.Conv2d(4, 4, 3, groups=2), nn.Conv2d(4, 4, 3, stride=2), nn.Conv2d(4, 4, 3))
    with convolutions(layer, "patches"):
        assert ["_conv_forward" in vars(part) for part in layer] == [False, False, True]
    assert not any("_conv_forward" in vars(part) for part in layer)


def test_stacked_evaluation_counts_the_same_answers(model, tiny, shares, monkeypatch):
    trained, _ = train_loop(phase(model, tiny, shares))
    images = on_device(tiny, torch.device("cpu"), torch.float64)
    expected = Evaluation(images, shares)(model, trained)
    for chunk in (evaluation.CHUNK_GPU, 70):  # 70: many blocks, one of a single client that is larger than a block
        monkeypatch.setattr(evaluation, "CHUNK_GPU", chunk)
        correct, loss = Evaluation(images, shares, stacked=True)(model, trained)
        assert torch.equal(correct, expected[0])
        assert torch.allclose(loss, expected[1], rtol=1e-12)


# -- what is drawn at random --------------------------------------------------------------------------------------
DROPOUT = "m1_thin"  # a model with dropout


def test_the_bits_and_what_dropout_leaves_out_do_not_depend_on_whether_a_step_is_captured(captured, tiny, shares):
    model = build(DROPOUT, MODELS[DROPOUT], tiny.x.shape[1:], 4, seed=0)
    train, images = Stacked(), on_device(tiny, torch.device("cpu"), torch.float64)
    task = phase(model, tiny, shares)._replace(images=images)
    expected, _ = Stacked(graphs=False)(task)
    assert not captured
    for _ in range(2):  # captured in the first phase only
        before, n = torch.get_rng_state(), len(captured)
        trained, _ = train(task)
        assert same_bits(trained, expected)
        assert torch.equal(torch.get_rng_state(), before)
    assert len(captured) == n > 0


# -- seeds in one stack -------------------------------------------------------------------------------------------
@pytest.fixture
def pooled(monkeypatch):
    sizes, real = [], lockstep.join
    monkeypatch.setattr(lockstep, "join", lambda several: sizes.append(len(several)) or real(several))
    return sizes


@pytest.mark.parametrize("changes", [{}, {"momentum": 0.9, "clip": 0.7}, {"optimizer": "adam", "clip": 0.7}], ids=str)
def test_clients_who_join_others_in_the_middle_of_their_phase_are_trained_as_alone(changes, model, tiny, shares):
    trainer, first = Stacked(), phase(model, tiny, shares[:4], epochs=2)._replace(**changes)
    second = first._replace(w=phase(model, tiny, shares[4:]).w, lr=0.02, clients=())
    second = second._replace(batches=phase(model, tiny, shares[4:], epochs=3).batches)
    begun = trainer.advance(begin(first), 3)  # its smaller clients have ended
    begun, left = join([begun, begin(second)]), []
    for steps in (2, 1, 100):
        left.append([one.left for one in split(begun, [4, 5])])
        begun = trainer.advance(begun, steps)
    assert left == [[27, 24], [25, 22], [24, 21]]
    for one, task in zip(split(begun, [4, 5]), (first, second), strict=True):
        (trained, losses), (expected, expected_losses) = one.result(), train_loop(task)
        assert one.left == 0
        assert distance(trained, expected) < 1e-7  # Adam divides by what may be zero but for rounding
        assert torch.allclose(losses, expected_losses, rtol=1e-6)


def test_no_run_waits_for_the_longest_client_of_another_one(federation, monkeypatch, tmp_path):
    """A run goes on at once if its next phase is of the same kind; otherwise it waits for the runs that are behind."""
    lengths, taken, begins, steps = [], [], stacked.begin, Program._advance

    def count(program, size, form):
        taken[-1] += 1
        return steps(program, size, form)

    monkeypatch.setattr(stacked, "begin", lambda own: lengths[-1].append(max(map(len, own.batches))) or begins(own))
    monkeypatch.setattr(Program, "_advance", count)
    for method in ("fedavg", "fedrep"):
        setting = SETTING | dict(rounds=6, join_ratio=0.2, batch_size=24, backend="stacked")
        cells = fl.grid(algorithm=method, federation=federation, seed=[0, 1, 2], **setting)
        for cell in cells:
            lengths.append([])
            taken.append(0)
            fl.run(**cell, progress=False, store=tmp_path / "alone")
        taken.append(0)
        fl.sweep(cells, jobs=1, progress=False, store=tmp_path / "together")
    assert [len(phases) for phases in lengths] == 3 * [6] + 3 * [12]
    assert [*taken[:3], *taken[4:7]] == list(map(sum, lengths))
    at_barriers = [sum(map(max, zip(*some, strict=True))) for some in (lengths[:3], lengths[3:])]
    assert taken[3] == max(taken[:3]) < at_barriers[0]
    assert taken[7] == at_barriers[1]


MIXED = {"fedsimsup, mixed": fl.fedsimsup("small_lenet4+small_cnn+small_vit", 1)}
MIXED |= {"local_only, mixed": fl.local_only()}


@pytest.mark.parametrize("method", [*fl.algorithms(), *MIXED])
def test_seeds_and_partitions_that_share_a_stack_equal_separate_runs(method, federation, tiny, pooled, tmp_path):
    other = fl.federate(tiny, fl.iid(), clients=5, seed=3).with_public(federation.public)
    setting = SETTING | dict(rounds=2, batch_size=32, backend="stacked", dtype="float64", tune_epochs=1)
    setting["algorithm"] = MIXED[method] if method in MIXED else FACTORIES[method]()
    setting["model"] = "lenet5+lenet5_plain" if method == "local_only, mixed" else "lenet5"
    cells = [dict(federation=federation, seed=0, **setting), dict(federation=other, seed=1, **setting)]
    together = fl.sweep(cells, jobs=1, progress=False, store=tmp_path / "together")
    assert max(pooled) == 2
    for cell, result in zip(cells, together.results, strict=True):
        alone = fl.run(**cell, progress=False, store=tmp_path / "alone")
        assert alone.folder.name == result.folder.name
        assert distance(result.models, alone.models) < 1e-9
        assert np.allclose(alone.accuracy["loss"], result.accuracy["loss"], rtol=1e-9)
    if method in MIXED:  # the loop: `test_contract`
        loop = fl.run(**cells[0] | {"backend": "loop"}, progress=False, store=tmp_path / "alone")
        assert distance(together.results[0].models, loop.models) < 1e-6


def test_runs_at_different_rounds_go_on_together(federation, pooled, tmp_path):
    """One seed has done two rounds already: it comes to its end earlier, the other one goes on alone."""
    cells = fl.grid(algorithm="fedper", federation=federation, seed=[0, 1], backend="stacked", **SETTING)
    stopped(2, **cells[0])
    fl.sweep(cells, jobs=1, progress=False)
    assert (pooled[0], pooled[-1]) == (2, 1)
    alone = [fl.run(**cell, progress=False, store=tmp_path / "alone") for cell in cells]
    for a, b in zip(alone, fl.sweep(cells, jobs=1, progress=False).results, strict=True):
        assert distance(a.models, b.models) < 1e-5


def on_streams(cells, jobs, store):
    """Run cells as on a GPU, at most `jobs` tasks at the same time."""
    plans = [prepare(**cell) for cell in cells]
    work.execute_on_streams(work.Work(cells, work.together(plans), store), plans, jobs, progress=False)


def test_runs_on_streams_take_turns_and_equal_separate_runs(federation, monkeypatch, tmp_path):
    order, real = [], lockstep._train
    monkeypatch.setattr(lockstep, "_train", lambda runs, *about: (order.append(about[0]), real(runs, *about)))
    setting = SETTING | dict(federation=federation, backend="stacked", rounds=2)
    cells = [dict(algorithm="fedavg", seed=seed, **setting) for seed in (0, 1)]
    cells += [dict(algorithm="fedper", **setting | {"rounds": 1}), dict(algorithm="fedrep", **setting)]
    cells += [dict(algorithm="fedavg", model=DROPOUT, **setting)]
    on_streams(cells, 2, tmp_path / "together")
    trainers = list(dict.fromkeys(map(id, order)))
    spans = [[k for k, trainer in enumerate(order) if id(trainer) == one] for one in trainers]
    assert len(trainers) == 4
    assert spans[0][1] > spans[1][0] > spans[0][0]  # they take turns
    assert max(sum(span[0] <= k <= span[-1] for span in spans) for k in range(len(order))) == 2
    for k, cell in enumerate(cells):
        alone = fl.run(**cell, progress=False, store=tmp_path / "alone")
        result = fl.run(**cell, progress=False, store=tmp_path / "together")
        if k > 1:
            assert same_bits(alone.models, result.models)
        assert distance(alone.models, result.models) < 1e-5


@pytest.mark.parametrize("streams", [0, 2])
def test_a_failing_run_ends_neither_the_seeds_of_its_stack_nor_other_tasks(streams, federation, run_store):
    def round(state, cohort):
        if cohort.seed == 1 and cohort.round == 1:
            raise ArithmeticError("seed 1 breaks in round 1")
        return fl.fedavg().round(state, cohort)

    impossible = fl.fedrep(body_epochs=3)  # of one epoch
    methods = [fl.fedavg()._replace(round=round), impossible, "fedper"]
    cells = fl.grid(algorithm=methods, federation=federation, seed=[0, 1, 2], backend="stacked", **SETTING)
    with pytest.raises(ArithmeticError, match="seed 1 breaks in round 1") as error:
        on_streams(cells, streams, run_store) if streams else fl.sweep(cells, jobs=1, progress=False)
    assert error.value.__notes__[-1].endswith("seed 1; 4 of 9 cells failed, the others are finished")
    rounds = []
    for k in (0, 2, 6, 7, 8):
        fl.run(**cells[k], progress=rounds.append)
    assert rounds == [SETTING["rounds"]] * 5  # they are read from the store
    with pytest.raises(ArithmeticError):
        fl.run(**cells[1], progress=rounds.append)  # its folder is free
    assert rounds[5:] == [1]


def test_an_error_in_a_step_that_seeds_share_is_the_error_of_all_of_them(federation, run_store):
    def breaks(w, batch):
        raise ArithmeticError("in the loss")

    def round(state, cohort):
        train(cohort, breaks, cohort.broadcast(state.w))

    cells = fl.grid(algorithm=[fl.fedavg()._replace(round=round), "fedper"], federation=federation, seed=[0, 1])
    cells = [cell | SETTING | {"backend": "stacked"} for cell in cells]
    with pytest.raises(ArithmeticError, match="in the loss") as error:
        fl.sweep(cells, jobs=1, progress=False)
    assert error.value.__notes__[-1].endswith("seed 0; 2 of 4 cells failed, the others are finished")


def test_every_run_and_its_phases_stay_on_the_stream_of_their_task(federation, monkeypatch, tmp_path):
    """With streams that only count what waits for them, in the place of CUDA's."""
    here, phases, calls, trains, call = threading.local(), [], [], lockstep._train, lockstep._Run._train

    class Stream:
        waited_for = 0

        def wait_stream(self, other):
            self.waited_for += 1

    @contextmanager
    def on(stream):
        before, here.stream = getattr(here, "stream", None), stream
        yield
        here.stream = before

    def note(runs, *about):
        phases.extend((run.stream, here.stream) for run in runs)
        trains(runs, *about)

    def note_call(run, phase):  # in the thread of the run
        calls.append((run.stream, here.stream))
        return call(run, phase)

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)
    monkeypatch.setattr(torch.random, "fork_rng", lambda devices: nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: None)
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", on)
    monkeypatch.setattr(lockstep, "_train", note)
    monkeypatch.setattr(lockstep._Run, "_train", note_call)
    setting = SETTING | dict(federation=federation, backend="stacked")
    on_streams([dict(algorithm=method, **setting) for method in ("fedavg", "fedper")], 2, tmp_path)
    assert len(phases) == len(calls) == 2 * SETTING["rounds"]
    assert all(stream is here for stream, here in phases + calls)
    assert [stream.waited_for for stream in {stream for stream, _ in phases}] == [1, 1]


def test_runs_that_draw_at_random_share_no_stack_and_do_not_part_the_seeds_of_another_one(federation, pooled, tmp_path):
    setting = SETTING | dict(algorithm="fedavg", federation=federation, backend="stacked", rounds=2)
    plain, random = ([setting | dict(model=name, seed=seed) for seed in (0, 1)] for name in ("lenet5", DROPOUT))
    fl.sweep(plain, jobs=1, progress=False, store=tmp_path / "alone")
    alone = pooled.count(2)
    on_streams([*random, *plain], 2, tmp_path / "together")
    assert pooled.count(2) == 2 * alone + 1 > 1  # the others are tried once, never again
    for cell in plain + random:
        one, other = (fl.run(**cell, progress=False, store=tmp_path / name) for name in ("alone", "together"))
        assert same_bits(one.models, other.models)


def test_runs_on_streams_are_fewer_if_their_cohorts_are_large(federation, monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(work, "lockstep", lambda tasks, at_once: asked.append(at_once))
    cells = fl.grid(algorithm=["fedavg", "fedper"], federation=federation, backend="stacked", **SETTING)
    on_streams(cells, 8, tmp_path)
    monkeypatch.setattr(work, "AT_ONCE", 7)
    on_streams(cells, 8, tmp_path)  # of three clients
    monkeypatch.setattr(work, "AT_ONCE", 2)
    on_streams(cells, 8, tmp_path)
    assert asked == [8, 2, 1]


def test_on_a_cpu_every_run_goes_on_its_own(federation):
    cells = fl.grid(algorithm=["fedavg", "fedper"], federation=federation, seed=[0, 1, 2], **SETTING)
    assert work.together([prepare(**cell) for cell in cells]) == [[0], [1], [2], [3], [4], [5]]
    plans = [prepare(**cell, backend="stacked") for cell in cells]
    assert work.together(plans) == [[0, 1, 2], [3, 4, 5]]
    strengths = [prepare(fl.fedprox(mu), federation, backend="stacked", **SETTING) for mu in (0.1, 0.5, 0.1)]
    assert work.together(strengths) == [[0, 2], [1]]
    large = [prepare(**cell | {"join_ratio": 1.0}, backend="stacked") for cell in cells[:3]] * 22
    assert [len(group) for group in work.together(large)] == [21, 21, 21, 3]  # 6 clients each, 128 in a stack


# -- the device ---------------------------------------------------------------------------------------------------
@pytest.fixture
def pinned():
    """PyTorch's settings of float32 on a GPU and its number of threads, restored after the test."""

    def now():
        products, convolutions, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.cudnn
        return products.fp32_precision, convolutions.fp32_precision, cudnn.deterministic, torch.get_num_threads()

    legacy, mine, cudnn = torch.get_float32_matmul_precision(), *now()[:2]
    yield now
    torch.set_float32_matmul_precision(legacy)
    torch.backends.cuda.matmul.fp32_precision, torch.backends.cudnn.conv.fp32_precision = mine, cudnn
    torch.backends.fp32_precision = "none"
    torch.set_num_threads(1)


@pytest.mark.parametrize(
    "allow",
    [
        lambda: None,
        lambda: torch.set_float32_matmul_precision("high"),
        lambda: setattr(torch.backends, "fp32_precision", "tf32"),
        lambda: setattr(torch.backends.cuda.matmul, "fp32_precision", "tf32"),
        lambda: setattr(torch.backends.cudnn.conv, "fp32_precision", "ieee"),
        lambda: torch.set_num_threads(2),
    ],
    ids=["default", "high", "all tf32", "products tf32", "convolutions ieee", "two threads"],
)
def test_a_run_computes_in_full_float32_with_one_thread_and_leaves_what_was_allowed_as_it_was(allow, pinned):
    """That a run does so whatever else is set outside: `test_fingerprint`."""
    allow()
    before = pinned()
    with deterministic("cpu"):
        assert pinned() == ("ieee", "ieee", True, 1)
    assert pinned() == before


def test_a_run_of_a_gpu_is_read_where_there_is_none(federation, monkeypatch):
    """The store of a machine with a GPU, opened on a laptop: here the training is done under a false name."""
    arguments = dict(algorithm="pfedsim", federation=federation, **SETTING, device="cuda", progress=False)
    fl.run(**arguments | {"device": "cpu"})  # torch imports the rest of itself
    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: True)
        real = torch.device
        patch.setattr("fedlib.runs.session.torch.device", lambda name: real("cpu"))
        patch.setattr(torch.cuda, "get_device_name", lambda device=None: "a GPU")
        trained = fl.run(**arguments)
    read = fl.run(**arguments)
    assert (read.config["device"], read.config["backend"]) == ("cuda", "stacked")
    assert same_bits(read.models, trained.models)


def test_forms_of_convolutions_are_measured_once_for_each_size_and_kept(model, tiny, shares, monkeypatch, run_store):
    task, measured, real = phase(model, tiny, shares), [], backends.fastest_forms

    def measure(phase, size, graphs):
        measured.append((size, real(phase, size, graphs)))
        return measured[-1][1]

    monkeypatch.setattr(backends, "STEPS", 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: "a GPU")
    monkeypatch.setattr(backends, "fastest_forms", measure)
    form = partial(backends.measured_forms, run_store, True)
    forms = [form(task, size) for size in (3, 4, 2, 3)]
    assert [size for size, _ in measured] == [4, 2]  # 3 clients count as 4
    assert all(len(form) == 2 and set(form) <= set(FORMS[:2]) for _, form in measured)  # of each convolution
    first, second = (form for _, form in measured)
    assert forms == [(form, "plain") for form in (first, first, second, first)]  # the kernels are for float32
    assert json.loads((run_store / "forms.json").read_text()) == {
        f"a GPU, torch {torch.__version__}, lenet5 1x16x16, step of {size} clients": [form, "plain"]
        for size, form in measured
    }


def test_every_size_of_a_stack_has_its_own_form(model, tiny, shares, monkeypatch):
    seen, real = set(), program.convolutions
    monkeypatch.setattr(program, "convolutions", lambda net, form: seen.add(form) or real(net, form))
    task, asked = phase(model, tiny, shares), []
    train = Stacked(lambda phase, size: asked.append(size) or FORMS[size == 5])
    for _ in range(2):
        assert distance(train(task)[0], train_loop(task)[0]) < 1e-12
    assert asked == [9, 5, 3]
    assert seen == set(FORMS[:2])


def times(layer, form, x, size, graphs, seconds):
    """In the place of a measurement: seconds by name of the form, or an error."""
    if isinstance(seconds[form], Exception):
        raise seconds[form]
    return seconds[form]


def test_each_convolution_has_the_form_that_is_fastest_and_one_that_fails_is_left_out(model, tiny, shares, monkeypatch):
    entering, slow = [], {"grouped": 3, "patches": 2, "direct": ValueError("no compiler"), "product": RuntimeError()}

    def seconds(layer, form, x, size, graphs):
        entering.append((layer, x.shape, x.requires_grad, size))
        return times(layer, form, x, size, graphs, slow if layer.in_channels == 1 else slow | {"patches": 4})

    monkeypatch.setattr(backends, "_seconds", seconds)
    forms = backends.fastest_forms(phase(model, tiny, shares, dtype=torch.float32), 2, graphs=True)
    assert forms == ["patches", "grouped"]
    first, second = dict.fromkeys(entry for entry in entering)
    assert first[1:] == ((8, 1, 16, 16), False, 2)  # images need no gradient
    assert second[1:] == ((8, 6, 6, 6), True, 2)
    assert model.net.training
    assert not any(layer._forward_pre_hooks for layer in model.net.modules())


@pytest.mark.parametrize("error", [RuntimeError, CaptureError])
def test_where_no_form_works_or_a_capture_fails_the_first_error_is_raised(error, model, tiny, shares, monkeypatch):
    seconds = {form: RuntimeError(form) for form in FORMS} | {"grouped": error("grouped fails")}
    monkeypatch.setattr(backends, "_seconds", partial(times, seconds=seconds))
    with pytest.raises(error, match="grouped fails"):
        backends.fastest_forms(phase(model, tiny, shares), 2, graphs=True)


def test_a_convolution_that_is_called_twice_keeps_its_second_input(tiny, shares, monkeypatch):
    class Twice(nn.Module):
        def __init__(self, shape, n_classes):
            super().__init__()
            self.twice, self.classifier = nn.Conv2d(shape[0], shape[0], 3), nn.Linear(shape[0] * 144, n_classes)

        def forward(self, x):
            return self.classifier(self.twice(self.twice(x)).flatten(1))  # 16, 14, 12 pixels

    model, shapes = build("twice", Twice, tiny.x.shape[1:], 4, seed=0), []
    monkeypatch.setattr(backends, "_seconds", lambda layer, form, x, *_: shapes.append(x.shape) or 1.0)
    assert backends.fastest_forms(phase(model, tiny, shares), 2, graphs=True) == ["grouped"]
    assert set(shapes) == {(8, 1, 16, 16)}


# -- checkpoints --------------------------------------------------------------------------------------------------
def test_checkpoints_that_cost_much_are_written_less_often(federation, monkeypatch):
    saved, real = [], rounds.RunFolder.save

    def slow(self, checkpoint):
        saved.append(checkpoint.round)
        clock[0] += 1.0  # a second of writing
        real(self, checkpoint)

    clock = [0.0]
    monkeypatch.setattr(rounds.RunFolder, "save", slow)
    monkeypatch.setattr(rounds.time, "monotonic", lambda: clock[0])

    def second(_):
        clock[0] += 1.0  # a second of training

    setting = SETTING | {"rounds": 50, "local_epochs": 1, "batch_size": 32}
    fl.run("local_only", federation, **setting, progress=second, checkpoint_seconds=2)
    assert saved == [3, 23, 43, 50]  # after 2 seconds, then every 20: 5 % of the time


def test_a_machine_without_affinity_still_counts_its_cores(monkeypatch):
    monkeypatch.delattr(work.os, "sched_getaffinity", raising=False)
    assert work.cores() == (work.os.cpu_count() or 1)
