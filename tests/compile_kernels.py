"""`python compile_kernels.py`: compiles the kernels of steps of LeNet5 for an H100, without one; prints their names."""

import json

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from fedlib.engine.begun import begin
from fedlib.engine.program import Forms, Program
from fedlib.tools.bench.cases import cohort_phase

TYPES = {torch.float32: "*fp32", torch.int64: "*i64", torch.uint8: "*u8", int: "i32", float: "fp32"}
compiled = {}


def run(kernel, *given, grid, warmup, num_warps=4):
    """Replacement for a launch."""
    signature, constants = {}, {}
    for place, (parameter, value) in enumerate(zip(kernel.params, given, strict=True)):
        if parameter.is_constexpr:
            signature[parameter.name], constants[(place,)] = "constexpr", value
        else:
            signature[parameter.name] = TYPES[getattr(value, "dtype", type(value))]
    key = kernel.fn.__name__, *signature.values(), *constants.values(), num_warps
    if key not in compiled:
        source = ASTSource(kernel, signature, constants)
        compiled[key] = triton.compile(source, GPUTarget("cuda", 90, 32), {"num_warps": num_warps})


if __name__ == "__main__":
    JITFunction.run = run
    for form, momentum in (("direct", 0.0), ("product", 0.9)):
        own = begin(cohort_phase(3, 2, torch.device("cpu"))._replace(momentum=momentum))
        program = Program(own, 3, 2, forms := Forms(form, "fused"), False)
        own.phase.model.net.train()
        program._advance(3, forms)
    print(json.dumps([name for name, *_ in compiled]))
