"""
Exploration that you can see
============================

Test.
"""

# %%
# A plot.
import matplotlib.pyplot as plt

from torchonline import OFUL

policy = OFUL(2)
plt.plot([1, 2])
