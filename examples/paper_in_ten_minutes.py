"""The paper in ten minutes: each statement and the call that checks it, in cells (`# %%`)."""

# %% [markdown]
# # The paper in ten minutes
#
# *Mean Estimation Under Heterogeneous Privacy: Some Privacy Can Be Free* (Chaudhuri and Courtade). Each step
# below is one statement of the paper and the call that checks it. Values are in [−½, ½], as there.

# %%
import math

import hetdp
from hetdp.paper import bounds, experiments

n, f, eps1 = 1000, 0.7, 0.1  # 700 people at ε = 0.1, 300 others

# %% [markdown]
# ## Table I and the threshold R
#
# Two groups: the weights grow with ε up to the ratio R = 1 + 8/(n f ε₁²), and stay there.

# %%
R = bounds.R(eps1, n, f)
print(f"R = {R:.4f}, so the second group saturates at ε₂ = {R * eps1:.4f}")
for eps2 in (0.1, 0.15, R * eps1, 1.0, math.inf):
    plan = hetdp.plan({eps1: 700, eps2: 300} if eps2 > eps1 else {eps1: 1000}, bounds=(-0.5, 0.5))
    top = plan.table[-1]
    theorem_1 = bounds.upper(eps1, eps2, n, f)
    print(f"ε₂ = {eps2:<7.4g} error {plan.worst_case_mse:.3e}, Theorem 1 {theorem_1:.3e}, ε₂ spends {top.spent:.4f}")

# %% [markdown]
# ## Some privacy can be free
#
# Past the threshold the error does not fall any more, and the second group spends R·ε₁ whatever it offers. The
# rest is free.
#
# ## For any number of levels
#
# The paper's Algorithm 1 minimises Σw²/4 + 2·max(w/ε)². The minimiser is w ∝ min(ε, t), and t solves Σ ε(t −
# ε)₊ = 8.

# %%
levels = {0.02: 500, 0.1: 300, 0.5: 150, 3.0: 50}
plan = hetdp.plan(levels, bounds=(-0.5, 0.5))
t = plan.threshold
print(f"t = {t:.6f}; Σ ε(t − ε)₊ = {sum(count * e * max(t - e, 0) for e, count in levels.items()):.6f}")

# %% [markdown]
# ## The lower bound, and a sharper one
#
# Theorem 2 proves that the rate cannot be improved; its constant is about 1/1000. The certificate is a bound
# for the very ε at hand, by another argument, and leaves little room.

# %%
certificate = hetdp.certificate({0.1: 700, math.inf: 300}, bounds=(-0.5, 0.5))
print(f"ADPM ÷ Theorem 2: {certificate.upper / bounds.lower(0.1, math.inf, n, f):,.0f}")
print(f"ADPM ÷ certificate: {certificate.ratio:.2f} ({certificate.technique})")
print(certificate.sentence())

# %% [markdown]
# ## Few people: the exact optimum
#
# For a handful of people the best of *all* ε-DP mechanisms is a linear program.

# %%
best = hetdp.optimal({0.5: 4, 2.0: 2}, outputs=21)
for method in ("adpm", "minimax"):
    worst = hetdp.plan({0.5: 4, 2.0: 2}, method=method, bounds=(-0.5, 0.5)).worst_case_mse
    print(f"{method}: {worst / best.mse:.2f} times the optimum")

# %% [markdown]
# ## The figures and tables
#
# Each has an entry with numbers, a picture and verdicts. `hetdp reproduce` makes all of them with the paper's
# own settings; here some, quickly.

# %%
for name in ("table-1", "figure-1b", "figure-2", "remark-2", "example-2"):
    result = experiments.run(name, quick=True)
    for verdict in result.verdicts:
        print(f"{name:>10}  {'holds' if verdict.holds else 'FAILS'}: {verdict.claim} ({verdict.found})")
    if result.figure is not None:
        result.figure().savefig(f"paper_{name}.png", dpi=130)

# %% [markdown]
# ## Where the text and the mathematics differ
#
# Ten places, none of them in the theorems about ADPM: the page of errata lists them, each with a test.
