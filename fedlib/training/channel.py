"""The channel between the server and the clients of a round: it counts every byte sent."""

from dataclasses import dataclass

from torch.utils._pytree import tree_leaves

from fedlib.models.model import is_statistic
from fedlib.stack import Tree, keys, n_bytes


@dataclass
class Channel:
    """Bytes sent so far in one round. With `statistics=False`, BatchNorm statistics are not sent and not counted."""

    statistics: bool = True
    bytes_down: int = 0
    bytes_up: int = 0

    def down(self, tree: Tree, times: int = 1) -> Tree:
        """Count `tree` as sent from the server to `times` clients; returns `tree`."""
        self.bytes_down += times * self._weight(tree)
        return tree

    def up(self, tree: Tree) -> Tree:
        """Count `tree` as sent from clients to the server; returns `tree`."""
        self.bytes_up += self._weight(tree)
        return tree

    def _weight(self, tree: Tree) -> int:
        if self.statistics:
            return n_bytes(tree)
        leaves = zip(keys(tree), tree_leaves(tree), strict=True)
        return sum(n_bytes(t) for path, t in leaves if not (path and is_statistic(path[-1])))
