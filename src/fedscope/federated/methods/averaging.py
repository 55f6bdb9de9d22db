"""FedAvg: local SGD, sample-weighted mean."""

from fedscope.federated.record.method import Method

FEDAVG = Method(
    name="fedavg",
    objective="ℓ(w)",
    source="McMahan et al. 2017, Algorithm 1",
)
