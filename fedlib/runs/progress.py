"""A bar over all cells of a sweep: cells finished, rounds done, ETA."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from tqdm import tqdm


@contextmanager
def board(rounds: Sequence[int], read: Callable[[], np.ndarray], progress: bool) -> Iterator[None]:
    """Inside, a thread shows `read()`, the rounds done in each cell (int64 [cells]), of `rounds`."""
    stop = threading.Event()

    def show() -> None:
        with tqdm(total=sum(rounds), unit="round", disable=not progress) as bar:
            running = True
            while running:
                running = not stop.wait(0.5)
                done = read()
                bar.set_description(f"cell {int((done >= rounds).sum())}/{len(rounds)}", refresh=False)
                bar.update(int(done.sum()) - bar.n)

    watcher = threading.Thread(target=show, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        stop.set()
        watcher.join()
