"""Federations: data sets divided among clients by a partition."""

from fedlib.federation.federation import Federation, federate
from fedlib.federation.given import flower, index_lists, partition_file
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

__all__ = ["Federation", "Partition", "classes_per_client", "dirichlet", "dirichlet_groups", "domains", "federate"]
__all__ += ["flower", "iid", "index_lists", "label_groups", "mixed_domains", "partition_file", "shards"]
__all__ += ["uneven_classes"]
