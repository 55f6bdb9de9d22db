# %% [markdown]
# # Why clients disagree
#
# Each client trains on its own data, so each has its own Hessian. H_N is how far two of them are apart, H_D
# how much they look the same way (Mendieta et al. 2022). The more unequal the clients' data, the less they
# agree.

# %%
import fedscope

runs = {
    alpha: fedscope.train(alpha=alpha, clients=3, rounds=5, name=f"alpha{alpha}", registry="runs", threads=1)
    for alpha in (0.1, 10.0)
}

# %% [markdown]
# ## H_N and H_D, with their errors
#
# Each client at its own weights, on its own rows. `H_D` near 1: the diagonals point the same way.

# %%
found = {
    alpha: fedscope.measure(run, clients=True, samples=64, probes=8, registry="runs")
    for alpha, run in runs.items()
}
found[0.1]

# %%
found[10.0]

# %% [markdown]
# Every pair of clients: dark is close. What noise could carry out of its range is hatched, not drawn.

# %%
found[0.1].figure("clients")

# %% [markdown]
# ## Where they went
#
# The plane in which the clients' models lie around the global one, and the loss on all samples there. What
# the average costs is the height of the middle above the clients' own valleys.

# %%
plane = fedscope.landscape(runs[0.1], directions="clients", grid=11, samples=128, registry="runs")
plane.figure("contour")
