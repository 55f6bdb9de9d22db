# %% [markdown]
# # Why clients disagree
#
# Each client trains on its own data, so each has its own Hessian. H_N is the squared gap between the sizes of
# two clients' curvatures, H_D the cosine between their directions (Mendieta et al. 2022). Do clients whose
# data are more unequal agree less? Here are two runs: nearly all images of a client of three or four classes,
# and nearly every class with one client (α = 0.1); and a similar mixture for all (α = 10).

# %%
import fedscope

runs = {
    alpha: fedscope.train(
        alpha=alpha, clients=3, rounds=5, name=f"alpha{alpha}", registry="clients", threads=1
    )
    for alpha in (0.1, 10.0)
}

# %% [markdown]
# ## H_N and H_D, with their errors
#
# Each client at its own weights, on its own rows. `H_D` near 1: the diagonals point the same way.

# %%
found = {
    alpha: fedscope.measure(run, clients=True, samples=64, probes=8, registry="clients")
    for alpha, run in runs.items()
}
found[0.1]

# %%
found[10.0]

# %% [markdown]
# H_D says yes: with unequal data the directions agree less. H_N says the opposite, since it is no relative
# number: a client that has few classes fits them soon, its curvature is small, and so are the gaps between
# such clients. The traces show it. `H_N scale-free` divides by the sizes: most of the difference is gone, and
# what is left is less than two of its errors.

# %%
unequal, alike = (found[alpha].record.cross_client for alpha in (0.1, 10.0))
assert unequal.H_D.parameter.value < alike.H_D.parameter.value
assert unequal.H_N.parameter.value < alike.H_N.parameter.value
traces = {
    alpha: [round(trace.value) for trace in one.record.cross_client.traces] for alpha, one in found.items()
}
assert max(traces[0.1]) < min(traces[10.0])
traces

# %% [markdown]
# Every pair of clients. Alike means a small H_N, on the left, and an H_D near 1, on the right: each has a
# colour bar of its own. What noise could carry out of its range is hatched, not drawn.

# %%
found[0.1].figure("clients")

# %% [markdown]
# ## Where they went
#
# The plane in which the clients' models lie around the global one, and the loss on 128 samples of all
# clients there. Their average, in the middle, is lower than each of them: of most classes a client has hardly
# any images.

# %%
from scipy.interpolate import RegularGridInterpolator

plane = fedscope.landscape(runs[0.1], directions="clients", grid=11, samples=128, registry="clients")
record = plane.records[0]
height = RegularGridInterpolator([axis.values for axis in record.axes], record.loss)
losses = {mark.label: round(float(height(mark.at).item()), 2) for mark in record.marks}
assert all(record.center_loss < loss for label, loss in losses.items() if "client" in label)
print(losses)
plane.figure("contour")
