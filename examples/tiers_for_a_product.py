"""Which privacy tiers should a product offer? In cells (`# %%`), and no value is needed."""

# %% [markdown]
# # Which privacy tiers should a product offer?
#
# A team measures minutes of use a day, between 0 and 240, from 20,000 people. Everybody may choose how much the
# statistics may learn about them. Which ε should the tiers have? All of this is decided before a value is seen:
# a plan takes nothing but how many people choose which ε.

# %%
import subprocess
import sys

from matplotlib.figure import Figure

import hetdp

PUBLIC = float("inf")
BOUNDS = (0, 240)
people = {"private": 9_000, "balanced": 8_000, "sharing": 3_000}


def plan(epsilons, method="adpm"):
    """Plan for tiers of these ε, with the numbers of people above."""
    counts = {}
    for name, epsilon in epsilons.items():
        counts[epsilon] = counts.get(epsilon, 0) + people[name]
    return hetdp.plan(counts, bounds=BOUNDS, method=method)


# %% [markdown]
# ## A first draft
#
# 0.01, 0.1 and 1: tidy, and drawn from the air. The plan says who really spends what.

# %%
draft = plan({"private": 0.01, "balanced": 0.1, "sharing": 1.0})
print(draft)

# %% [markdown]
# ## What is free
#
# The third tier is asked for ε = 1, and the release uses only the saturation level t of it. Whatever is above t
# buys nothing, so the product can promise t to these people instead: the same error.

# %%
t = draft.threshold
honest = plan({"private": 0.01, "balanced": 0.1, "sharing": t})
print(f"t = {t:.4f}; error {draft.worst_case_error:.4f} before, {honest.worst_case_error:.4f} after")

# %% [markdown]
# ## What is almost free
#
# How much further can the promise go if the squared error may grow by 1, 5 or 20 %?

# %%
for tolerance in (0.01, 0.05, 0.2):
    cap = draft.frontier(tolerance)
    capped = plan({"private": 0.01, "balanced": min(0.1, cap), "sharing": min(1.0, cap)})
    print(
        f"{tolerance:4.0%} more squared error: nobody above ε = {cap:.4f}; error {capped.worst_case_error:.3f} minutes"
    )

# %% [markdown]
# ## From the error to the tiers
#
# The dashboard needs the mean within 1.2 minutes. What would it take: more people, or a larger ε in one tier?
# This is a question for the command line, which needs no file either.

# %%
tiers = ["--tier", "private=0.01:9000", "--tier", "balanced=0.02:8000", "--tier", "sharing=0.05:3000"]
words = ["plan", *tiers, "--bounds", "0", "240", "--target-error", "1.2"]
shown = subprocess.run([sys.executable, "-m", "hetdp", *words], check=True, capture_output=True, text=True)  # noqa: S603
print(shown.stdout)

# %% [markdown]
# ## Would another method do better?

# %%
compared = hetdp.compare({0.01: 9_000, 0.1: 8_000, 1.0: 3_000}, bounds=BOUNDS)
print(compared)
compared.plot("tiers_compared.png")

# %% [markdown]
# ## The whole frontier, for the meeting

# %%
tolerances = [0.002 * 1.2**i for i in range(28)]
drawn = Figure(figsize=(6.2, 3.2), layout="constrained")
axes = drawn.subplots()
axes.plot([100 * x for x in tolerances], [draft.frontier(x) for x in tolerances], color="#0072B2", linewidth=2)
axes.axhline(t, color="#7F7F7F", linestyle="--", linewidth=1.2)
axes.set(xscale="log", xlabel="more squared error, %", ylabel="largest ε that anybody spends")
axes.xaxis.set_major_formatter("{x:g}")
drawn.savefig("tiers_frontier.png", dpi=130)

# %% [markdown]
# ## Before you ship it
#
# - ε is public. Let people choose before they give data, and never because of what their value is.
# - These ε are for *one* release. A number a month needs a budget and a ledger: see the page on publishing
#   every month.
# - What a tier allows above t is not used. Do not ask people for it.
