"""Plant one error at a time into copies of the library and check that its tests fail: `make mutants`.

The errors are those of cosmic-ray (another operator, number, comparison, truth value, no pass through a loop), and the
known mistakes in `mutants.toml`. A mutant that no test detects has survived.
"""

import argparse
import contextlib
import difflib
import multiprocessing
import os
import queue
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
KNOWN = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
ORACLES = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("tests/test_oracles_*.py"))
SECONDS = 180  # for the tests of one mutant; those that take longer have noticed it
# Of all that cosmic-ray can put in the place of an operator one is enough: what dies of `-` dies of `%`, too.
OPERATORS = re.compile(
    r"core/(ReplaceBinaryOperator_(Add_Sub|Sub_Add|Mul_Div|Div_Mul|FloorDiv_Mul|Mod_FloorDiv|Pow_Mul|BitAnd_BitOr)"
    r"|ReplaceComparisonOperator_(Eq_NotEq|NotEq_Eq|Lt_LtE|LtE_Lt|Gt_GtE|GtE_Gt|Is_IsNot|IsNot_Is|In_NotIn|NotIn_In)"
    r"|ReplaceUnaryOperator_(USub_UAdd|Invert_Not)|Delete_Not|AddNot|ReplaceTrueWithFalse|ReplaceFalseWithTrue"
    r"|ReplaceAndWithOr|ReplaceOrWithAnd|ReplaceBreakWithContinue|ReplaceContinueWithBreak|NumberReplacer"
    r"|ZeroIterationForLoop)"
)
SAME = re.compile(r"strict=(True|False)")  # refuses what does not happen


class Mutant(NamedTuple):
    """A file of the library with one error in it."""

    file: str
    kind: str
    text: str

    def difference(self) -> str:
        before = (ROOT / self.file).read_text(encoding="utf-8").splitlines()
        lines = difflib.unified_diff(before, self.text.splitlines(), n=0, lineterm="")
        return "\n".join(line for line in lines if not line.startswith(("---", "+++")))

    def lines(self) -> tuple[str, str]:
        lines = self.difference().splitlines()
        old, new = ([line[1:].strip() for line in lines if line.startswith(sign)] for sign in "-+")
        return " ".join(old), " ".join(new)


def guards(file: str) -> list[str]:
    """Arguments of pytest: the tests that must notice an error in a file; none if nothing guards it."""
    path, known = Path(file), KNOWN["guards"]
    places = (place for place in (file, *(f"{folder}/" for folder in path.parents)) if place in known)
    method = path.parent.name if path.parent.parent.name == "methods" else path.stem
    arguments = known.get(next(places, ""), [])
    every = (ORACLES if argument == "ORACLES" else [argument.replace("NAME", method)] for argument in arguments)
    return [argument for own in every for argument in own]


def mutants(file: str) -> Iterator[Mutant]:
    """All mutants of a file by cosmic-ray, except in annotations, which are not executed."""
    from cosmic_ray import plugins
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.mutating import mutate_code

    source = (ROOT / file).read_text(encoding="utf-8")
    nodes = list(ast_nodes(get_ast(source)))
    for name in plugins.operator_names():
        if OPERATORS.fullmatch(name):
            operator = plugins.get_operator(name)()
            for place in range(sum(1 for node in nodes for _ in operator.mutation_positions(node))):
                text = mutate_code(source, operator, place)
                if text is not None and SAME.sub("", text) != SAME.sub("", source):
                    yield Mutant(file, name.removeprefix("core/"), text)


def planted() -> Iterator[Mutant]:
    """The mistakes of `mutants.toml`."""
    for mistake in KNOWN["planted"]:
        source = (ROOT / mistake["file"]).read_text(encoding="utf-8")
        if source.count(mistake["old"]) != 1:
            raise SystemExit(f"mutants.toml: {mistake['old']!r} is not in {mistake['file']}, or several times.")
        yield Mutant(mistake["file"], "planted", source.replace(mistake["old"], mistake["new"]))


def tree(folder: Path) -> Path:
    """A copy of the files that git tracks, as in the working tree."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file() and not name.startswith("figures/"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def work(folder: str, todo: multiprocessing.Queue, done: multiprocessing.Queue) -> None:
    """Test mutants in the copy `folder`, each in a process of its own that has all packages but not the library."""
    os.chdir(folder)
    sys.path[:0] = [folder, f"{folder}/tests"]
    sys.dont_write_bytecode = True
    os.environ |= {"OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
    import kmedoids, matplotlib.pyplot, pandas, scipy.optimize, seaborn, sklearn, torch, torchvision  # noqa: E401, F401, I001
    import torch._dynamo

    torch.set_num_threads(1)
    for number, mutant in iter(todo.get, None):
        path, started = Path(mutant.file), time.monotonic()
        original = path.read_text(encoding="utf-8")
        path.write_text(mutant.text, encoding="utf-8")
        try:
            outcome = tested(mutant.file)
            done.put((number, outcome, time.monotonic() - started, Path("tests.log").read_text(encoding="utf-8")))
        finally:
            path.write_text(original, encoding="utf-8")


def tested(file: str) -> str:
    """Outcome of the tests of a file: "noticed", "too long" or "survived"."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setsid()
            with open("tests.log", "w") as log, contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
                import pytest

                code = int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *guards(file)]))
        finally:
            os._exit(min(code, 1))
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return "survived" if os.waitstatus_to_exitcode(status) == 0 else "noticed"
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "too long"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="*", help="files of the library (default: all that have guards)")
    parser.add_argument("--sample", type=int, default=0, help="so many of cosmic-ray's mutants; 0: all")
    parser.add_argument("--seed", type=int, default=0, help="which sample")
    parser.add_argument("--jobs", type=int, default=2, help="processes side by side")
    parser.add_argument("--no-planted", action="store_true", help="leave out the known mistakes")
    given = parser.parse_args()
    known = [str(p.relative_to(ROOT)) for p in sorted(ROOT.glob("fedlib/**/*.py")) if p.stem != "__init__"]
    files = given.files or [file for file in known if guards(file)]
    equal = {(own["file"], own["line"], own["mutant"]) for own in KNOWN.get("equivalent", [])}
    every = [mutant for file in files for mutant in mutants(file) if (file, *mutant.lines()) not in equal]
    if given.sample:
        every = random.Random(given.seed).sample(every, min(given.sample, len(every)))
    every += [] if given.no_planted else [mutant for mutant in planted() if mutant.file in files]
    files = list(dict.fromkeys(mutant.file for mutant in every))
    once = {tuple(guards(file)): file for file in files}.values()
    sound = [Mutant(file, "as it is", (ROOT / file).read_text(encoding="utf-8")) for file in once]
    print(f"{len(every)} mutants of {len(files)} files, {given.jobs} side by side", flush=True)
    broken = [sound[i].file for i, outcome in run(sound, given.jobs).items() if outcome != "survived"]
    if broken:
        print(f"the tests of these files fail without any error in them: {', '.join(broken)}.", file=sys.stderr)
        return 2
    return report(every, run(every, given.jobs))


def run(every: list[Mutant], jobs: int) -> dict[int, str]:
    """Outcome of each mutant by number; survivors are printed at once. Ctrl-C omits the remaining mutants."""
    context, outcomes = multiprocessing.get_context("spawn"), {}
    todo, done = context.Queue(), context.Queue()
    for item in [*enumerate(every), *[None] * jobs]:
        todo.put(item)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        copies = [tree(Path(folder) / str(i)) for i in range(jobs)]
        workers = [context.Process(target=work, args=(str(copy), todo, done)) for copy in copies]
        for worker in workers:
            worker.start()
        while len(outcomes) < len(every):
            try:
                number, outcome, seconds, log = done.get(timeout=60)
            except KeyboardInterrupt:
                break
            except queue.Empty:
                if not any(worker.is_alive() for worker in workers):
                    raise RuntimeError("no process is left that tries mutants.") from None
                continue
            outcomes[number] = outcome
            mutant = every[number]
            if mutant.kind == "as it is" and outcome != "survived":
                print(log[-2000:])
            elif mutant.kind != "as it is" and outcome == "survived":
                print(f"\nSURVIVED {mutant.file} ({mutant.kind}, {seconds:.0f} s)\n{mutant.difference()}", flush=True)
        for worker in workers:
            worker.terminate()
    return outcomes


def report(every: list[Mutant], outcomes: dict[int, str]) -> int:
    """A line per file and one for all; 1 if any planted mistake has survived."""
    scores = {
        file: [outcomes[i] != "survived" for i, m in enumerate(every) if m.file == file and i in outcomes]
        for file in sorted({every[i].file for i in outcomes})
    }
    for file, noticed in scores.items():
        print(f"{100 * sum(noticed) / len(noticed):5.1f} %  {sum(noticed):4d} of {len(noticed):4d}  {file}")
    noticed = [outcome != "survived" for outcome in outcomes.values()]
    print(f"{100 * sum(noticed) / max(len(noticed), 1):5.1f} %  {sum(noticed):4d} of {len(noticed):4d}  in all")
    return int(any(every[i].kind == "planted" and outcome == "survived" for i, outcome in outcomes.items()))


if __name__ == "__main__":
    sys.exit(main())
