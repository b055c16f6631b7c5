"""A survey about marriage: histogram, median and standard deviation of a real table, in cells (`# %%`)."""

# %% [markdown]
# # A survey about marriage: several statistics of a real, public table
#
# In 1974 readers of the magazine Redbook answered questions about their marriage and their affairs; Ray Fair studied
# the answers (*A Theory of Extramarital Affairs*, 1978). The table comes with the package statsmodels
# (`pip install statsmodels`). Each row is one woman. Few tables show better why somebody may want to choose how much
# an answer is protected.
#
# Because the data are public we may also look at the truth. **With private data nobody may do that**: a comparison
# with the truth is itself a release.

# %%
import math

import numpy as np
import polars as pl
from matplotlib.figure import Figure
from statsmodels.datasets import fair

import hetdp

people = pl.from_pandas(fair.load_pandas().data)
print(f"{len(people):,} people; columns: {', '.join(people.columns)}")

# %% [markdown]
# ## Three public decisions
#
# **Cells.** Ratings go from 1 (very poor) to 5 (very good): that is printed in the questionnaire, so it is public.
# Categories, edges and the number of bins never come from the data.
#
# **Bounds.** Years of marriage lie in [0, 40], ages in [15, 65]: from what is known of readers in general.
#
# **Levels.** In real life people choose them. Here a lottery does, which has nothing to do with the answers.

# %%
RATINGS = [1, 2, 3, 4, 5]
YEARS, AGES = (0, 40), (15, 65)
TIERS = {"strict": 0.05, "standard": 0.2, "open": 1, "public": math.inf}

lottery = np.random.default_rng(1974)  # a public draw; the noise of a release has no seed
tier = lottery.choice(list(TIERS), len(people), p=[0.4, 0.35, 0.2, 0.05])
people = people.with_columns(tier=pl.Series(tier))
options = {"epsilon": "tier", "tiers": TIERS}

# %% [markdown]
# ## One after the other
#
# Three releases. Whoever is in all three spends the sum of what they cost. Everybody in this table answered, so
# `missing="none"` promises that; in most tables `missing="estimate"` is the right choice.

# %%
ratings = hetdp.histogram(people, value="rate_marriage", categories=RATINGS, **options)
print(ratings)

# %%
median = hetdp.median(people, value="yrs_married", missing="none", bounds=YEARS, **options)
print(f"median of the years of marriage: {median:.2f}")
low, high = median.ranks(0.95)[0.5]
print(f"guaranteed is its rank: between {low:.3f} and {high:.3f}")

# %%
ages = hetdp.std(people, value="age", missing="none", bounds=AGES, **options)
low, high = ages.confidence_interval(0.95, "std")
print(f"standard deviation of the ages: {ages.std:.2f}, interval {low:.2f} to {high:.2f}; mean {ages.mean:.2f}")

# %% [markdown]
# ## All together, under one budget
#
# Now everybody spends their ε once on all three. Each question gets a share of it, here the median twice as much as
# each of the others, and what a question does not need of its share stays free.

# %%
questions = {
    "rate_marriage": hetdp.ask.histogram(categories=RATINGS),
    "yrs_married": hetdp.ask.median(bounds=YEARS, missing="none"),
    "age": hetdp.ask.std(bounds=AGES, missing="none"),
}
answers = hetdp.ask(people, questions, split={"rate_marriage": 1, "yrs_married": 2, "age": 1}, **options)
print(answers)

# %% [markdown]
# ## How far off?
#
# Only because the data are public: 100 releases of each by ADPM and by the plain alternative, in which everybody is
# treated as the strictest person. Each of them would be paid for if the data were private.

# %%
columns = {name: people[name].to_numpy() for name in questions}
share_of = {str(rating): float((columns["rate_marriage"] == rating).mean()) for rating in RATINGS}
years = columns["yrs_married"]


def rank_error(value):
    """Return by how much the ranks of a value miss one half; 0 if the median is this value."""
    below, upto = (years < value - 0.01).mean(), (years <= value + 0.01).mean()
    return max(below - 0.5, 0.5 - upto, 0.0)


def misses(answer):
    """Return how far an answer is from the truth: the worst share, the rank, the standard deviation."""
    if isinstance(answer, hetdp.Histogram):
        return max(abs(answer[name] - share) for name, share in share_of.items())
    return rank_error(float(answer)) if isinstance(answer, hetdp.Quantiles) else answer.std - columns["age"].std()


found = {}
for name, asked in questions.items():
    tally = hetdp.read(people, value=name, statistic=asked, **options)
    for method in ("uniform", "adpm"):
        plan = hetdp.plan(tally.levels, statistic=asked, method=method)
        found[name, method] = [misses(hetdp.release(tally, plan)) for _ in range(100)]
        rms = math.sqrt(np.mean(np.square(found[name, method])))
        print(f"{name:>13}, {method:>7}: off by {rms:.4f} (root mean square)")

# %%
drawn = Figure(figsize=(6.4, 3), layout="constrained")
axes = drawn.subplots()
places = np.arange(len(share_of) + 1)
shown = {label.partition(".")[0]: share for label, share in ratings.frequencies.items()}
ends = np.array(list(ratings.confidence_interval(0.95).values()))
axes.bar(places, shown.values(), color="#56B4E9", label="private estimate and 95% interval")
axes.errorbar(places, ends.mean(axis=1), yerr=np.ptp(ends, axis=1) / 2, fmt="none", ecolor="#444444", capsize=3)
axes.plot(places[:-1], list(share_of.values()), "o", color="#D55E00", markersize=5, label="truth")
axes.set_xticks(places, list(shown))
axes.set(xlabel="how 6,366 women rate their marriage, from very poor to very good", ylabel="share of people")
axes.legend(frameon=False, loc="upper left")
drawn.savefig("several_statistics.png", dpi=130)

# %% [markdown]
# A value that many people share is found exactly: 1,141 answers say 6 years, the median is among them, and so the
# median above is 6 but for half a bin. Where people are spread thinly an error in rank is an error in value too; then
# ask for the interval in units, `within=0.95`, which costs two more quantiles.
