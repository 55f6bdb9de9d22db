"""fedscope: how flat, and how consistent across clients, the minima of federated-learning methods are."""

__version__ = "0.1.0"
