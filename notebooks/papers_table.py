# %% [markdown]
# # Reproducing a paper's table
#
# MAN's Table 2 (Yashwanth et al. 2024): λ_max and trace with and without the method. The runs on CIFAR-100
# took hours; they lie in `checkpoints/papers` with what was measured of them, so that the table is made
# again in seconds, without the data. Run this in a clone of the repository.

# %%
import csv
import subprocess
from pathlib import Path

import fedscope

papers = next(
    folder for folder in (Path("checkpoints/papers"), Path("../checkpoints/papers")) if folder.exists()
)
command = ["fedscope", "figures", "build", "man/table2", "--scale", "cpu", "--registry", str(papers)]
done = subprocess.run([*command, "--out", "gallery"], check=True, capture_output=True, text=True)
table = Path("gallery/man/table2-cpu.md").read_text(encoding="utf-8")
print(table.split("## What this is")[0])

# %% [markdown]
# Each statement of the paper is judged from intervals: it holds, does not hold, or is undecided.
#
# ## The numbers behind it
#
# The same as CSV, a line for each number, with the paper's beside it.

# %%
with Path("gallery/man/table2-cpu.csv").open(encoding="utf-8") as file:
    rows = [row for row in csv.DictReader(file) if row["value"]]
len(rows), list(rows[0])

# %% [markdown]
# ## A run of the table
#
# Every number leads to a run, whose settings and rounds are there; `make papers` brings back its weights.

# %%
registry = fedscope.Registry(papers)
run = next(run for run in registry if run.settings["method"] == "fedavg+man")
run

# %%
{
    key: run.settings[key]
    for key in ("dataset", "clients", "participation", "partition", "alpha", "lr", "seed")
}

# %%
_ = run.plot()
