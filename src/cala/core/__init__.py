"""The paper's method in NumPy and SciPy: arrays in, arrays out.

`cala.core.cala` is the CALA paper from top to bottom, and `cala.core.adapters` its Eq. 7; the other
modules are what these stand on. No files, no printing, no global random state: every random choice
takes a `np.random.Generator`. `docs/paper-map.md` says which function computes which equation.
"""
