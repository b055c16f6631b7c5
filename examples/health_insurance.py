"""Visits to the doctor: a private mean of a real, public dataset, in cells (`# %%`)."""

# %% [markdown]
# # Visits to the doctor: a real, public dataset
#
# The RAND Health Insurance Experiment counted visits to a doctor. Its data are in the public domain and come
# with the package statsmodels (`pip install statsmodels`). We pretend that the visits are private, let
# everybody have a privacy level of their own, and release the mean number of visits in a year.
#
# Because the data are public we may also look at the true mean and see how far off we are. **With private data
# nobody may do that**: a comparison with the truth is itself a release.

# %%
import math

import numpy as np
from matplotlib.figure import Figure
from statsmodels.datasets import randhie

import hetdp

rows = randhie.load_pandas().data
visits = rows["mdvis"].to_numpy()
print(f"{visits.size:,} rows; columns: {', '.join(rows.columns)}")

# %% [markdown]
# ## Three public decisions
#
# **Who is a person?** The rows are years of people, and this file has no column that says whose. So a row is
# what is protected here. With a column of ids, `hetdp.mean(..., person="id", rows="average")` would protect the person.
#
# **Bounds.** They are public and never taken from the data. One visit a week is plenty: [0, 52]. More visits
# count as 52.
#
# **Levels.** In real life people choose them. Here a lottery does, which has nothing to do with visits.

# %%
BOUNDS = (0, 52)
TIERS = {"strict": 0.01, "standard": 0.05, "open": 0.5, "public": math.inf}
SHARES = [0.5, 0.3, 0.15, 0.05]

lottery = np.random.default_rng(1974)  # a public draw; the noise of a release has no seed
tier = lottery.choice(list(TIERS), visits.size, p=SHARES)
epsilon = np.array([TIERS[name] for name in tier])

# %% [markdown]
# ## Before any value is touched
#
# The levels alone say how good each method will be, in the worst case over all distributions.

# %%
levels = hetdp.Levels.of(epsilon)
print(hetdp.compare(levels, bounds=BOUNDS))

# %% [markdown]
# ## One release
#
# This is all there is to it, and all that could be published.

# %%
release = hetdp.mean(visits, epsilon=epsilon, bounds=BOUNDS)
print(release)

# %% [markdown]
# ## How far off?
#
# Only because the data are public: the true mean, and 300 releases by each method. Each of them would be paid
# for if the data were private.

# %%
truth = float(np.clip(visits, *BOUNDS).mean())
tally = hetdp.read(visits, epsilon=epsilon, bounds=BOUNDS)
methods = ("uniform", "proportional", "threshold", "adpm", "minimax")
plans = {name: hetdp.plan(levels, bounds=BOUNDS, method=name) for name in methods}
found = {name: [hetdp.release(tally, plan).unclamped for _ in range(300)] for name, plan in plans.items()}

print(f"mean of all rows, clamped: {truth:.3f} (not clamped: {visits.mean():.3f})")
for name, estimates in found.items():
    rms = math.sqrt(np.mean((np.array(estimates) - truth) ** 2))
    print(f"{name:>13}: off by {rms:.3f} (root mean square); worst case {plans[name].worst_case_error:.3f}")

low, high = release.confidence_interval(0.95)
print(f"the release above: {release.estimate:.3f}, interval {low:.3f} to {high:.3f}")

# %%
COLOURS = dict(zip(found, ("#7F7F7F", "#009E73", "#000000", "#0072B2", "#D55E00"), strict=True))
drawn = Figure(figsize=(6.2, 3.2), layout="constrained")
axes = drawn.subplots()
for place, (name, estimates) in enumerate(found.items()):
    jitter = place + np.random.default_rng(place).uniform(-0.25, 0.25, len(estimates))
    axes.plot(estimates, jitter, ".", color=COLOURS[name], markersize=3, alpha=0.6)
axes.axvline(truth, color="#444444", linestyle="--", linewidth=1.2)
axes.set_yticks(range(len(found)), list(found))
axes.set(xlabel="visits a year: 300 releases by each method; dashed: the true mean")
drawn.savefig("health_insurance.png", dpi=130)

# %% [markdown]
# Two things to see. With public people present, `proportional` becomes the plain mean of their rows: no noise,
# but few people. And `minimax` shrinks towards the midpoint, 26 visits; it promises the best worst case, and
# data far from the midpoint pay for that with a bias. `adpm` has none.

# %% [markdown]
# ## What goes wrong when ε depends on the value
#
# Suppose that people in poor or fair health, who see the doctor more often, ask for more privacy. Nobody's ε is
# exceeded. But the levels are public, so a small ε now says "not well", and the mean is pulled towards the
# healthy. No method repairs that: ε must not depend on the value.

# %%
unwell = (rows["hlthf"] + rows["hlthp"] > 0).to_numpy()
dependent = np.where(unwell, 0.01, np.where(lottery.random(visits.size) < 0.5, 0.05, 0.5))
skewed = hetdp.read(visits, epsilon=dependent, bounds=BOUNDS)
plan = hetdp.plan(skewed.levels, bounds=BOUNDS)
average = np.mean([hetdp.release(skewed, plan).unclamped for _ in range(300)])
print(f"mean visits: healthy {visits[~unwell].mean():.2f}, unwell {visits[unwell].mean():.2f}")
print(f"true mean {truth:.3f}; average of 300 releases {average:.3f}, and more of them would not come nearer")

# %% [markdown]
# ## What the bounds cost
#
# Narrow bounds mean less noise and more clamping. The sum of both can be known for public data only; for
# private data choose bounds from what is known about such values in general.

# %%
for top in (5, 10, 20, 52, 100):
    error = hetdp.plan(levels, bounds=(0, top)).worst_case_error
    pull = float(np.clip(visits, 0, top).mean()) - float(visits.mean())
    print(f"bounds [0, {top:>3}]: worst-case error {error:.3f}, clamping moves the mean by {pull:+.3f}")
