"""The paper, equation by equation: pure tensor functions and small modules.

No files, no printing, no global random state; every random choice takes a `torch.Generator`.
`docs/paper-map.md` says which function computes which equation.
"""
