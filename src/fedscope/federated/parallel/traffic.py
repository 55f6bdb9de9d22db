"""The bytes that a round sends each way."""

from fedscope.federated.client.loop import LocalTrainer


def traffic(trainer: LocalTrainer, clients: int) -> dict[str, int]:
    """Return the bytes sent to and by ``clients`` sampled clients.

    A client receives and sends the P parameters, the Q running statistics and the method's further vectors,
    each less what is personal, in float32: the traffic of a deployment, not that between workers.
    """
    state = trainer.clients
    size = trainer.model.values.shape[1] - len(state.personal)
    layouts = (state.broadcast, state.uploads)
    down, up = (4 * clients * (size + state.further(layout)) for layout in layouts)
    return {"bytes_down": down, "bytes_up": up}
