"""The channel between the server and the clients of a round, which counts all bytes."""

from dataclasses import dataclass

from torch.utils._pytree import tree_leaves

from fedlib.models.model import is_statistic
from fedlib.stack import Tree, keys, n_bytes


@dataclass
class Channel:
    """Bytes sent in one round so far. With `statistics=False`, BatchNorm statistics are neither sent nor counted."""

    statistics: bool = True
    bytes_down: int = 0
    bytes_up: int = 0

    def down(self, tree: Tree, times: int = 1) -> Tree:
        """Count and return `tree`, sent from the server to `times` clients."""
        self.bytes_down += times * self._weight(tree)
        return tree

    def up(self, tree: Tree) -> Tree:
        """Count and return `tree`, sent from clients to the server."""
        self.bytes_up += self._weight(tree)
        return tree

    def _weight(self, tree: Tree) -> int:
        if self.statistics:
            return n_bytes(tree)
        leaves = zip(keys(tree), tree_leaves(tree), strict=True)
        return sum(n_bytes(t) for path, t in leaves if not (path and is_statistic(path[-1])))
