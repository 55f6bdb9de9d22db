# %% [markdown]
# # FedAvg against FedSAM
#
# FedSAM takes its gradients at the point of highest loss nearby, to end in a flatter minimum. Does it, here?

# %%
import fedscope

runs = {
    method: fedscope.train(method=method, rounds=15, name=f"notebook-{method}", registry="runs", threads=1)
    for method in ("fedavg", "fedsam")
}
fedscope.Registry("runs")

# %%
axes = runs["fedavg"].plot()
_ = runs["fedsam"].plot(axes)

# %% [markdown]
# ## The same samples, the same probes
#
# Measured on common samples and probes, differences have smaller errors than those of the two values would
# suggest. A verdict is given where zero is ruled out with all differences of the table judged together: all
# verdicts of a table are right with 95 %.

# %%
comparison = fedscope.compare(*runs.values(), samples=512, registry="runs")
comparison

# %%
_ = comparison.plot(quantity="trace")

# %% [markdown]
# ## In pictures
#
# Both planes share their colours. Each lies along its own network's two sharpest directions.

# %%
planes = fedscope.landscape(*runs.values(), grid=15, samples=512, registry="runs")
planes.figure("contour")

# %% [markdown]
# ## Read with care
#
# The curvature of cross-entropy falls as the training samples are fitted. On small data, or after few
# rounds, the method that fits more slowly may be sharper for that alone, whatever it does to the minimum it
# ends in: compare the training losses too.

# %%
{method: round(run.metrics[-1]["train_loss"], 3) for method, run in runs.items()}
