"""``python -m fedscope``: the command line."""

from fedscope.cli.main import run

run()
