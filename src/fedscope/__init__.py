"""fedscope: how flat, and how consistent across clients, the minima of federated-learning methods are."""

from importlib.metadata import version

__version__ = version("fedscope")
