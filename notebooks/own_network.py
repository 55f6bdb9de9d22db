# %% [markdown]
# # Your own network in two calls
#
# Any `torch.nn.Module`, any data, any loss that is a mean over samples. Here: two moons, and a small
# network.

# %%
import torch
from sklearn.datasets import make_moons
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import fedscope

points, sides = make_moons(600, noise=0.2, random_state=0)
data = DataLoader(
    TensorDataset(torch.tensor(points).float(), torch.tensor(sides)), batch_size=60, shuffle=True
)
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
for _ in range(30):
    for inputs, labels in data:
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(inputs), labels).backward()
        optimizer.step()

# %% [markdown]
# ## How sharp is the minimum?
#
# The loader shuffles. fedscope reads its rows in an order of its own, so that every product sees the same
# samples. Each number has an error: of λ_max over the samples, of the trace over its random probes too.

# %%
found = fedscope.measure(net, data=data, top_k=5, density=True)
found

# %%
found.lambda_max.value, found.lambda_max.interval

# %% [markdown]
# Most eigenvalues are near zero; a few stand out. The band is the 95 % interval over the probes.

# %%
_ = found.plot()

# %% [markdown]
# ## What does the loss look like around it?
#
# The plane of the two sharpest directions. It shows two of 162 dimensions, the two in which the loss rises
# most.

# %%
plane = fedscope.landscape(net, data=data, grid=15)
_ = plane.plot(kind="surface")

# %% [markdown]
# ## Products of your own
#
# An operator is a matrix seen through its products: it adds, scales, solves, and goes to SciPy.

# %%
H = fedscope.Hessian(net, nn.functional.cross_entropy, data)
gradient = H.gradient()
float(gradient @ (H @ gradient) / (gradient @ gradient))  # the curvature along the gradient
