"""The checkers of investigation C: the answers that they accept, and those that they reject with what they say."""

import torch
from exercise_answers import Answers

from caracal_book.exercises import what_it_uses as check


def others_by_sum(gates):
    return (gates.sum(0) - gates) / (len(gates) - 1)


def others_by_mask(gates):
    weights = 1 - torch.eye(len(gates), dtype=gates.dtype)
    return torch.einsum("ij,jdl->idl", weights / weights.sum(1, keepdim=True), gates)


def others_in_place(gates):
    gates.neg_().add_(-gates.sum(0)).div_(len(gates) - 1)
    return gates


def share_by_formula(gates):
    energy = gates.square().sum((0, 2))
    share = len(gates) * gates.mean(0).square().sum(-1) / energy
    return torch.where(energy > 0, share, torch.zeros_like(share))


def share_by_rest(gates):
    energy, rest = (gates**2).sum((0, 2)), ((gates - gates.mean(0))**2).sum((0, 2))
    return 1 - torch.where(energy > 0, rest / energy, 1.0)


def share_by_pairs(gates):
    """The mean of the products of every two texts, each with itself too, over the mean energy."""
    products = torch.einsum("iwl,jwl->wij", gates, gates)
    return (products.mean((1, 2)) / products.diagonal(dim1=1, dim2=2).mean(-1)).nan_to_num(0.0)


def share_in_loops(gates):
    texts, width, _ = gates.shape
    share = torch.zeros(width, dtype=torch.float64)
    for c in range(width):
        mean = sum(gates[t, c] for t in range(texts)) / texts
        energy = sum(float(gates[t, c] @ gates[t, c]) for t in range(texts))
        if energy:
            share[c] = texts * float(mean @ mean) / energy
    return share


def share_with(change):
    """A formula of the mean gate's energy and of all energy, (width,), with a channel of zeros at 0."""
    def share_of_mean(gates):
        mean, energy = (gates.mean(0)**2).sum(-1), (gates**2).sum((0, 2))
        return torch.where(energy > 0, change(mean, energy, gates), 0.0)

    return share_of_mean


def share_in_place(gates):
    share = share_by_formula(gates)
    gates -= gates.mean(0)
    return share


def lags_from_behind(rises, lags, tolerance):
    needed = None
    for k in range(len(lags) - 1, -1, -1):
        if rises[:, k].max() > tolerance:
            break
        needed = lags[k]
    return needed


def lags_by_running_maximum(rises, lags, tolerance):
    worst = rises.amax(0).flip(0).cummax(0).values.flip(0)
    return next((lag for lag, rise in zip(lags, worst, strict=True) if rise <= tolerance), None)


def lags_by_counting(rises, lags, tolerance):
    too_short = (rises > tolerance).any(0).nonzero().flatten().tolist()
    return (lags + [None])[too_short[-1] + 1 if too_short else 0]


def lags_by_seed(rises, lags, tolerance):
    each = [lags_from_behind(row[None], lags, tolerance) for row in rises]
    return None if None in each else max(each)


def lags_of(change=lambda rises: rises, excess=lambda rises, tolerance: rises > tolerance):
    """The right search, in changed rises or with another bound."""
    def lags_needed(rises, lags, tolerance):
        too_much = excess(change(rises), tolerance).any(0).tolist()
        return next((lag for k, lag in enumerate(lags) if not any(too_much[k:])), None)

    return lags_needed


def first_good(rises, lags, tolerance):
    return next((lag for lag, rise in zip(lags, rises.amax(0), strict=True) if rise <= tolerance), None)


def last_bad(rises, lags, tolerance):
    return next((lag for lag, rise in zip(lags[::-1], rises.amax(0).flip(0), strict=True) if rise > tolerance), None)


def lags_then(change):
    def lags_needed(rises, lags, tolerance):
        return change(lags_from_behind(rises, lags, tolerance), lags)

    return lags_needed


RIGHT = {
    check.gates_of_others: [others_by_sum, others_by_mask],
    check.share_of_mean: [share_by_formula, share_by_rest, share_by_pairs, share_in_loops,
                          share_with(lambda mean, energy, gates: len(gates) * mean / energy.clamp(min=1e-12)),
                          lambda gates: len(gates) * (gates.mean(0)**2).sum(-1) / ((gates**2).sum((0, 2)) + 1e-12)],
    check.lags_needed: [lags_from_behind, lags_by_running_maximum, lags_by_counting, lags_by_seed, lags_of()],
}
WRONG = {
    check.gates_of_others: {
        "the mean of all": lambda gates: gates.mean(0, keepdim=True).expand_as(gates),
        "one mean": lambda gates: gates.mean(0),
        "divided by all": lambda gates: (gates.sum(0) - gates) / len(gates),
        "the next text": lambda gates: gates.roll(-1, dims=0),
        "its own": lambda gates: gates.clone(),
        "over places": lambda gates: (gates.sum(-1, keepdim=True) - gates) / max(1, gates.shape[-1] - 1),
        "in place": others_in_place,
        "single precision": lambda gates: others_by_sum(gates).float(),
        "nothing": lambda gates: None,
    },
    check.share_of_mean: {
        "nan for nothing": lambda gates: len(gates) * (gates.mean(0)**2).sum(-1) / (gates**2).sum((0, 2)),
        "all for nothing": lambda gates: (len(gates) * (gates.mean(0)**2).sum(-1)
                                          / (gates**2).sum((0, 2))).nan_to_num(1.0),
        "the rest": lambda gates: 1 - share_by_formula(gates),
        "the rest of nothing": lambda gates: 1 - (
            ((gates - gates.mean(0))**2).sum((0, 2)) / (gates**2).sum((0, 2)).clamp(min=1e-12)),
        "over lags": share_with(lambda mean, energy, gates: (
            gates.shape[-1] * (gates.mean(-1)**2).sum(0) / energy)),
        "texts forgotten": share_with(lambda mean, energy, gates: mean / energy),
        "texts squared": share_with(lambda mean, energy, gates: len(gates)**2 * mean / energy),
        "all channels": lambda gates: (
            len(gates) * (gates.mean(0)**2).sum() / (gates**2).sum()).expand(gates.shape[1]),
        "one number": lambda gates: len(gates) * (gates.mean(0)**2).sum() / (gates**2).sum(),
        "by channel of all": lambda gates: len(gates) * (gates.mean(0)**2).sum(-1) / (gates**2).sum(),
        "lag by lag": lambda gates: (
            len(gates) * gates.mean(0)**2 / (gates**2).sum(0)).nan_to_num(0.0).mean(-1),
        "lag by lag, not summed": lambda gates: (len(gates) * gates.mean(0)**2 / (gates**2).sum(0)).nan_to_num(0.0),
        "a root": lambda gates: share_by_formula(gates).sqrt(),
        "squared": lambda gates: share_by_formula(gates)**2,
        "without signs": lambda gates: share_by_formula(gates.abs()),
        "sizes and no squares": share_with(lambda mean, energy, gates: (
            len(gates) * gates.mean(0).abs().sum(-1) / gates.abs().sum((0, 2)))),
        "sum, then square": share_with(lambda mean, energy, gates: (
            len(gates) * gates.mean(0).sum(-1)**2 / energy)),
        "variance by one less": share_with(lambda mean, energy, gates: (
            1 - len(gates) * gates.var(0, correction=min(1, len(gates) - 1)).sum(-1) / energy)),
        "less the mean over lags": lambda gates: share_by_formula(gates - gates.mean(-1, keepdim=True)),
        "without chance": lambda gates: (
            len(gates) * share_by_formula(gates) - 1) / max(1, len(gates) - 1),
        "something added": lambda gates: (
            len(gates) * (gates.mean(0)**2).sum(-1) / ((gates**2).sum((0, 2)) + 1e-6)),
        "at least 1": share_with(lambda mean, energy, gates: len(gates) * mean / energy.clamp(min=1)),
        "in place": share_in_place,
        "single precision": lambda gates: share_by_formula(gates).float(),
        "nothing": lambda gates: None,
    },
    check.lags_needed: {
        "first good": first_good,
        "last bad": last_bad,
        "mean of the seeds": lags_of(lambda rises: rises.mean(0, keepdim=True)),
        "first good mean": lambda rises, lags, tolerance: first_good(rises.mean(0, keepdim=True), lags, tolerance),
        "median of the seeds": lags_of(lambda rises: rises.median(0, keepdim=True).values),
        "sum of the seeds": lags_of(lambda rises: rises.sum(0, keepdim=True)),
        "best seed": lags_of(lambda rises: rises.amin(0, keepdim=True)),
        "first seed": lags_of(lambda rises: rises[:1]),
        "last seed": lags_of(lambda rises: rises[-1:]),
        "last two seeds": lags_of(lambda rises: rises[-2:]),
        "a little tolerance more": lags_of(excess=lambda rises, tolerance: rises > tolerance + 1e-3),
        "two digits": lags_of(lambda rises: rises.round(decimals=2)),
        "without signs": lags_of(torch.abs),
        "a fall, not a rise": lags_of(torch.neg),
        "less than the tolerance": lags_of(excess=lambda rises, tolerance: rises >= tolerance),
        "any rise": lags_of(excess=lambda rises, tolerance: rises > 0),
        "against the longest": lags_of(lambda rises: rises - rises[:, -1:]),
        "a share of the largest": lags_of(excess=lambda rises, tolerance: rises > tolerance * rises.amax()),
        "mean of the longer": lags_of(lambda rises: rises.flip(1).cumsum(1).flip(1)
                                      / torch.arange(rises.shape[1], 0, -1)),
        "the next lag too": lambda rises, lags, tolerance: next(
            (lag for k, lag in enumerate(lags) if (rises[:, k:k + 2] <= tolerance).all()), None),
        "longer ones only": lambda rises, lags, tolerance: next(
            (lag for k, lag in enumerate(lags) if (rises[:, k + 1:] <= tolerance).all()), None),
        "seeds and lags confused": lambda rises, lags, tolerance: lags_from_behind(
            rises.amax(1)[:1, None].expand(1, len(lags)), lags, tolerance),
        "place in the list": lags_then(lambda lag, lags: lag if lag is None else lags.index(lag)),
        "how many": lags_then(lambda lag, lags: lag if lag is None else len(lags) - lags.index(lag)),
        "one lag on": lags_then(lambda lag, lags: lag if lag is None else lag + 1),
        "0 is none": lags_then(lambda lag, lags: lag or None),
        "longest for none": lags_then(lambda lag, lags: lags[-1] if lag is None else lag),
        "-1 for none": lags_then(lambda lag, lags: -1 if lag is None else lag),
        "0 for none": lags_then(lambda lag, lags: lag or 0),
        "the longest": lambda rises, lags, tolerance: lags[-1],
        "a float": lags_then(lambda lag, lags: lag if lag is None else float(lag)),
        "a tensor": lags_then(lambda lag, lags: lag if lag is None else torch.tensor(lag)),
        "several lags": lambda rises, lags, tolerance: torch.tensor([8, 32]),
        "nothing": lambda rises, lags, tolerance: None,
    },
}
REASONS = [
    (check.gates_of_others, "the mean of all",
     "gates_of_others of 2 texts, gates (2, 1, 1): entry [0, 0, 0] should be"),
    (check.gates_of_others, "the mean of all", "; a text's own gate is in its mean"),
    (check.gates_of_others, "divided by all", "; divide by the number of the other texts"),
    (check.gates_of_others, "one mean", "expected shape (2, 1, 1), given (1, 1)"),
    (check.gates_of_others, "in place",
     "expected the gates given to stay as they are; make new ones"),
    (check.share_of_mean, "nan for nothing",
     "share_of_mean of a channel that writes nothing, gates (4, 3, 6): entry [1] should be 0, given nan; 1 of 3 "
     "differ; the share of a channel that writes nothing is 0"),
    (check.share_of_mean, "all for nothing", "given 1; 1 of 3 differ; the share of a channel that writes nothing is 0"),
    (check.share_of_mean, "the rest", "; that is the rest, which the mean leaves"),
    (check.share_of_mean, "over lags", "; that is the mean over the lags; the mean gate is one over the texts"),
    (check.share_of_mean, "texts forgotten", "; the mean stands in for the gate of each text, so its energy counts"),
    (check.share_of_mean, "all channels", "; give each channel its own share"),
    (check.share_of_mean, "one number", "expected shape (1,), given ()"),
    (check.share_of_mean, "lag by lag", "; divide the sums over the lags, and not lag by lag"),
    (check.share_of_mean, "a root", "; an energy is a sum of squares; there is no root to take"),
    (check.share_of_mean, "without signs", "; the gates keep their signs in the mean"),
    (check.share_of_mean, "sum, then square", "; square first, and sum over the lags then"),
    (check.share_of_mean, "variance by one less", "; divide the variance by the number of texts"),
    (check.share_of_mean, "something added", "; add nothing to the energy, since it shows in a faint channel"),
    (check.share_of_mean, "in place", "expected the gates given to stay as they are; make new ones"),
    (check.share_of_mean, "nothing", "expected a tensor, given a NoneType"),
    (check.lags_needed, "first good", "lags_needed([[0.9, 0.01, 0.3, 0.01, 0.0]], [0, 1, 4, 16, 64], 0.05): expected "
     "16, given 1; after a longer lag a seed loses more than the tolerance"),
    (check.lags_needed, "last bad", "; that is the longest lag at which a seed loses too much"),
    (check.lags_needed, "mean of the seeds",
     "[1, 3, 9, 27, 81], 0.05): expected 81, given 27; a mean or a median over the seeds hides the worst of them"),
    (check.lags_needed, "sum of the seeds", "; take each seed for itself, and not their sum"),
    (check.lags_needed, "best seed", "; each seed counts, and not only the best"),
    (check.lags_needed, "first seed", "; each seed counts, and not only the first"),
    (check.lags_needed, "last seed", "; each seed counts, and not only the last"),
    (check.lags_needed, "without signs", "[2, 5, 7], 0.1): expected 5, given 7; where the loss falls, nothing is lost"),
    (check.lags_needed, "less than the tolerance", "; a seed may lose as much as the tolerance, but not more"),
    (check.lags_needed, "place in the list", "expected 8, given 2; that is the place in the list, and not the lag"),
    (check.lags_needed, "0 is none", "expected 0, given None; 0 is a lag like the others"),
    (check.lags_needed, "longest for none", "expected None, given 10; None, since a gate up to the longest lag is too"),
    (check.lags_needed, "-1 for none", "expected None, given -1; None, since"),
    (check.lags_needed, "a float", "expected 8, given 8.0; give the lag as an int"),
    (check.lags_needed, "a tensor", "expected 8, given tensor(8); give the lag as an int"),
    (check.lags_needed, "several lags", "expected 8, given tensor([ 8, 32])"),
]


class TestAnswers(Answers):
    chapter, right, wrong, reasons = check, RIGHT, WRONG, REASONS
