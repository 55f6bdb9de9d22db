"""Every term, oracle, memory and server rule against its value by hand, in the papers' own numbers."""

import math

import pytest
import torch
from cases import ending, options, passing, serving, step, vector
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

