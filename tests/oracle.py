"""The equations of CALA, written slowly and plainly in NumPy float64, to test fast code against.

Conventions: classes are rows of a prototype table, base classes first; labels are 0-based and
index the columns of the logits; a zero vector normalises to zero, so its cosine with anything is 0;
argmax ties go to the lowest column. A share over no queries is nan.
"""

import itertools
import math

import numpy as np


def _array(x) -> np.ndarray:
    return np.array(x, dtype=np.float64)


def _mean(values) -> float:
    values = list(values)
    return float(sum(values) / len(values)) if values else math.nan


def _norm(v) -> float:
    return math.sqrt(sum(float(a) * float(a) for a in v))


def _unit(v) -> np.ndarray:
    length = _norm(v)
    return _array([a / length if length > 0 else 0.0 for a in v])


def _cosine(u, v) -> float:
    return sum(float(a) * float(b) for a, b in zip(_unit(u), _unit(v), strict=True))


def _softmax(v) -> list:
    top = max(v)
    powers = [math.exp(a - top) for a in v]
    return [p / sum(powers) for p in powers]


def _nll(row, label) -> float:
    """-log softmax(row)[label], written as log-sum-exp minus the label's logit."""
    top = max(row)
    return top + math.log(sum(math.exp(a - top) for a in row)) - row[int(label)]


def _argmax(row) -> int:
    return list(row).index(max(row))


def mix(x_i, x_j, lam) -> np.ndarray:
    """Eq. 1: lam * x_i + (1 - lam) * x_j, element by element."""
    pairs = zip(_array(x_i).ravel(), _array(x_j).ravel(), strict=True)
    return _array([lam * a + (1 - lam) * b for a, b in pairs]).reshape(np.shape(x_i))


def prototypes(features, labels, n_classes) -> np.ndarray:
    """Eq. 2: the mean of the L2-normalised rows of each class (the mean is not re-normalised)."""
    features = _array(features)
    table = np.zeros((n_classes, features.shape[1]))
    for c in range(n_classes):
        rows = [_unit(f) for f, y in zip(features, labels, strict=True) if y == c]
        assert rows, f"class {c} has no row"
        for k in range(features.shape[1]):
            table[c, k] = _mean(row[k] for row in rows)
    return table


def grow(table, new) -> np.ndarray:
    """Eq. 3: the new prototypes appended below the old ones, which stay as they are."""
    return _array([list(row) for row in table] + [list(row) for row in new])


def logits(features, prototypes, scale) -> np.ndarray:
    """Eq. 4: scale * cosine of every feature row with every prototype row."""
    return _array([[scale * _cosine(f, p) for p in prototypes] for f in features])


def la_adjusted(z, n_base, alpha) -> np.ndarray:
    """Eq. 5, the logits z + [0, alpha]: the same scalar on every novel column."""
    rows = [[v + alpha if c >= n_base else v for c, v in enumerate(row)] for row in _array(z)]
    return _array(rows)


def la_loss(z, y, n_base, alpha) -> float:
    """Eq. 5: the mean over instances of -log softmax(z + [0, alpha]) at the true label."""
    z = la_adjusted(z, n_base, alpha)
    return _mean(_nll(row, label) for row, label in zip(z, y, strict=True))


def similarity(prototypes, base_prototypes) -> np.ndarray:
    """Eq. 6: the cosine of every prototype with every base prototype, (classes, B)."""
    return logits(prototypes, base_prototypes, 1.0)


def inputs(S, kind, tau=1.0) -> np.ndarray:
    """Eq. 7, sigma: each row `raw`, `sorted` in descending order, or `softmax` of tau * S."""
    if kind == "raw":
        return _array(S)
    if kind == "sorted":
        return _array([sorted(row, reverse=True) for row in _array(S)])
    if kind == "softmax":
        return _array([_softmax([tau * s for s in row]) for row in _array(S)])
    raise ValueError(f"unknown kind {kind!r}")


def mlp(x, weights, biases) -> np.ndarray:
    """Eq. 7, g: linear layers with (out, in) weights, ReLU between them, one output, (n,)."""
    out = []
    for row in _array(x):
        h = list(row)
        for layer, (w, b) in enumerate(zip(weights, biases, strict=True)):
            h = [sum(w[o][k] * h[k] for k in range(len(h))) + b[o] for o in range(len(b))]
            if layer < len(weights) - 1:
                h = [max(a, 0.0) for a in h]
        (beta,) = h
        out.append(beta)
    return _array(out)


def adjusted(z, n_base, beta, gamma, delta=0.0) -> np.ndarray:
    """Eq. 8 with an operating point: z + [0, gamma * beta + delta]."""
    shift = [0.0] * n_base + [gamma * b + delta for b in beta]
    return _array([[v + s for v, s in zip(row, shift, strict=True)] for row in _array(z)])


def cala_loss(z_hat, y, beta, S, kind, rho, mu) -> float:
    """Eq. 9, with S the untransformed similarities of Eq. 6 and r_c = beta_c - mu * ||S_c||_2.

    balanced: mean over the classes in y of the mean -log p of their queries + rho * mean_c r_c^2
    literal: mean over queries of -log p + sum_c r_c (rho unused)
    linear-mean: mean over queries of -log p + mean_c r_c (rho unused)
    """
    nll = [_nll(row, label) for row, label in zip(_array(z_hat), y, strict=True)]
    r = [float(b) - mu * _norm(s) for b, s in zip(beta, S, strict=True)]
    if kind == "balanced":
        own = [[nll[i] for i in range(len(y)) if y[i] == c] for c in sorted({int(c) for c in y})]
        return _mean(_mean(values) for values in own) + rho * _mean(a * a for a in r)
    if kind == "literal":
        return _mean(nll) + sum(r)
    if kind == "linear-mean":
        return _mean(nll) + _mean(r)
    raise ValueError(f"unknown kind {kind!r}")


def _power(row) -> np.ndarray:
    """Signed square root, then L2-normalised."""
    return _unit([math.copysign(math.sqrt(abs(a)), a) for a in row])


def fit_whitening(features, labels, shrinkage) -> tuple:
    """Whitened metric: (mean, matrix) from base rows.

    mean is the plain mean of the power-transformed rows; Sigma_w is the scatter of the centred and
    re-normalised rows around their class means over (rows - classes); matrix is the symmetric
    inverse square root of Sigma_w + shrinkage * (tr(Sigma_w) / d) * I.
    """
    rows = [_power(f) for f in _array(features)]
    d = len(rows[0])
    mean = _array([_mean(row[k] for row in rows) for k in range(d)])
    rows = [_unit(row - mean) for row in rows]
    classes = sorted({int(label) for label in labels})
    sigma = np.zeros((d, d))
    for c in classes:
        own = [row for row, label in zip(rows, labels, strict=True) if label == c]
        centre = [_mean(row[k] for row in own) for k in range(d)]
        for row in own:
            for a in range(d):
                for b in range(d):
                    sigma[a, b] += (row[a] - centre[a]) * (row[b] - centre[b])
    sigma /= len(rows) - len(classes)
    ridge = shrinkage * sum(sigma[k, k] for k in range(d)) / d
    values, vectors = np.linalg.eigh(sigma + ridge * np.eye(d))
    matrix = np.zeros((d, d))
    for k in range(d):
        matrix += np.outer(vectors[:, k], vectors[:, k]) / math.sqrt(values[k])
    return mean, matrix


def whiten(features, mean, matrix) -> np.ndarray:
    """Whitened metric: power transform, centre, normalise, multiply by matrix, normalise."""
    return _array([_unit(matrix @ _unit(_power(f) - mean)) for f in _array(features)])


def tightness(features) -> float:
    """The mean cosine over all pairs of different rows; nan for fewer than two rows."""
    k = len(features)
    return _mean(_cosine(features[i], features[j]) for i in range(k) for j in range(i + 1, k))


def tradeoff_area(z, y, n_base) -> float:
    """AUSUC: the exact area under the base/novel accuracy curve, in [0, 1].

    With delta added to every novel column, query i changes from its best base to its best novel
    column at d_i = max_base z_i - max_novel z_i. The joint-argmax accuracies are constant between
    consecutive distinct d_i; each such interval, and the two unbounded ones, gives one point
    (x, y) = (accuracy on base queries, accuracy on novel queries). From (largest base accuracy, 0)
    to (0, largest novel accuracy), in the order of delta, the points are joined by straight lines
    (so a shared d_i gives a slanted piece) and the area between this curve and the x axis is
    taken; nothing is extended beyond the two end points. nan without base or novel queries.
    """
    z = _array(z)
    if all(label < n_base for label in y) or all(label >= n_base for label in y):
        return math.nan
    cuts = sorted({float(max(row[:n_base]) - max(row[n_base:])) for row in z})
    deltas = [cuts[0] - 1.0]
    deltas += [(low + high) / 2 for low, high in itertools.pairwise(cuts)]
    deltas += [cuts[-1] + 1.0]
    curve = [session_metrics(la_adjusted(z, n_base, delta), y, n_base) for delta in deltas]
    area = 0.0
    for a, b in itertools.pairwise(curve):
        area += (a["base"] - b["base"]) * (a["novel"] + b["novel"]) / 2
    return area


def harmonic(a, b) -> float:
    """The harmonic mean 2ab / (a + b); 0 when both are 0."""
    return 2 * a * b / (a + b) if a + b != 0 else 0.0


def session_metrics(z, y, n_base) -> dict:
    """Joint-argmax metrics of one session, as fractions: fpr is the share of novel queries
    predicted as any base class, fpr_mirror that of base queries predicted as any novel class."""
    pairs = [(_argmax(row), int(label)) for row, label in zip(_array(z), y, strict=True)]
    on_base = [(p, label) for p, label in pairs if label < n_base]
    on_novel = [(p, label) for p, label in pairs if label >= n_base]
    base = _mean(float(p == label) for p, label in on_base)
    novel = _mean(float(p == label) for p, label in on_novel)
    return {
        "accuracy": _mean(float(p == label) for p, label in pairs),
        "base": base,
        "novel": novel,
        "hm": harmonic(base, novel),
        "fpr": _mean(float(p < n_base) for p, _ in on_novel),
        "fpr_mirror": _mean(float(p >= n_base) for p, _ in on_base),
    }


def fit_scale_loss(features, labels, n_classes, scale) -> float:
    """Leave-one-out cross-entropy, mean over rows: row i is scored by Eq. 4 against the prototypes
    of all rows but i (so only its own class's prototype changes; that class needs two rows). With a
    share of 1 / (n + 2) a row counts as one of the other classes, evenly."""
    losses, doubt = [], 1 / (len(features) + 2)
    for i in range(len(features)):
        others = [k for k in range(len(features)) if k != i]
        table = prototypes([features[k] for k in others], [labels[k] for k in others], n_classes)
        z = logits([features[i]], table, scale)[0]
        elsewhere = _mean(_nll(z, c) for c in range(n_classes) if c != labels[i])
        losses.append((1 - doubt) * _nll(z, labels[i]) + doubt * elsewhere)
    return _mean(losses)
