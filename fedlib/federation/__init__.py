"""From images to clients: partitions and the federation they make."""

from fedlib.federation.federation import Federation, federate
from fedlib.federation.partition import (
    Partition,
    classes_per_client,
    dirichlet,
    dirichlet_groups,
    domains,
    iid,
    label_groups,
    mixed_domains,
    shards,
    uneven_classes,
)

__all__ = [
    "Federation",
    "Partition",
    "classes_per_client",
    "dirichlet",
    "dirichlet_groups",
    "domains",
    "federate",
    "iid",
    "label_groups",
    "mixed_domains",
    "shards",
    "uneven_classes",
]
