"""The checkers of chapter 8: the answers that they accept, and those that they reject with what they say."""

import torch
import torch.nn.functional as F
from exercise_answers import Answers

from caracal_book.exercises import whole_model as check
from caracal_min import Caracal


def moved_by_one(ids, padding):
    targets = ids[:, 1:].clone()
    targets[targets == padding] = -100
    return ids[:, :-1], targets


def moved_with_where(ids, padding):
    after = ids[..., 1:]
    return [ids[..., :-1].contiguous(), torch.where(after == padding, torch.full_like(after, -100), after)]


def written_into_the_inputs(ids, padding):
    targets = ids[:, 1:]
    targets[targets == padding] = -100
    return ids[:, :-1], targets


def counted(config, **mistakes):
    """Count by formula; each mistake replaces one part of it."""
    D, H, n = config.d_model, config.n_heads, config.n_layers
    k = config.fourier_per_attention
    attention = mistakes.get("attention", 0 if k is None else n // (k + 1))
    fourier = n - attention
    W = mistakes.get("W", (8 * D // 3 + 127) // 128 * 128)
    mixer = 3 * (D * D + D) + 2 * D
    mixer += 3 * D if config.pre_conv else 0
    mixer += mistakes.get("mix", D * D // H + D) if config.gate == "two_stage" else 0
    total = fourier * mixer + attention * 4 * D * D + n * (3 * D * W + 4 * D) + config.vocab_size * D + 2 * D
    positions = config.positional_encoding == "learned" and "no positions" not in mistakes
    return total + (config.max_positions * D if positions else 0)


def on_meta(config):
    with torch.device("meta"):
        return sum(p.numel() for p in Caracal(config).parameters())


def two_copies(E, body, tokens, targets):
    rows, columns = (E.detach().clone().requires_grad_() for _ in range(2))
    logits = body(rows[tokens]) @ columns.T
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    return torch.autograd.grad(loss, (rows, columns))


def by_hand(E, body, tokens, targets):
    """The output's part from the softmax, the input's by scattering the gradient of the vectors."""
    E = E.detach()
    vectors = E[tokens].requires_grad_()
    with torch.enable_grad():
        hidden = body(vectors)
        loss = F.cross_entropy((hidden @ E.T).flatten(0, 1), targets.flatten())
    (slope,) = torch.autograd.grad(loss, vectors)
    by_input = torch.zeros_like(E).index_add(0, tokens.flatten(), slope.flatten(0, 1))
    hidden = hidden.detach().flatten(0, 1)
    p = (hidden @ E.T).softmax(-1) - F.one_hot(targets.flatten(), len(E))
    return [by_input, p.T @ hidden / tokens.numel()]


def the_whole_twice(E, body, tokens, targets):
    one, two = two_copies(E, body, tokens, targets)
    return one + two, one + two


def sum_of_losses(E, body, tokens, targets):
    return tuple(g * tokens.numel() for g in two_copies(E, body, tokens, targets))


RIGHT = {
    check.inputs_and_targets: [moved_by_one, moved_with_where],
    check.count_parameters: [counted, lambda config: torch.tensor(counted(config)),
                             lambda config: float(counted(config))],
    check.tied_gradients: [two_copies, by_hand],
}
WRONG = {
    check.inputs_and_targets: {
        "not shifted": lambda ids, padding: (ids[:, :-1], ids[:, :-1].masked_fill(ids[:, :-1] == padding, -100)),
        "shifted the wrong way": lambda ids, padding: (ids[:, 1:], moved_by_one(ids.flip(1), padding)[1].flip(1)),
        "padding is learnt": lambda ids, padding: (ids[:, :-1], ids[:, 1:]),
        "masks the inputs only": lambda ids, padding: (
            ids[:, :-1], ids[:, 1:].masked_fill(ids[:, :-1] == padding, -100)),
        "masks the inputs too": lambda ids, padding: tuple(x.masked_fill(x == padding, -100)
                                                          for x in moved_by_one(ids, padding)),
        "writes into ids": written_into_the_inputs,
        "padding is always 0": lambda ids, padding: moved_by_one(ids, 0),
        "rolls around": lambda ids, padding: (ids, ids.roll(-1, 1)),
        "cut to the longest": lambda ids, padding: tuple(
            x[:, :int((ids != padding).sum(1).max()) - 1] for x in moved_by_one(ids, padding)),
        "targets alone": lambda ids, padding: moved_by_one(ids, padding)[1],
        "floats": lambda ids, padding: tuple(x.float() for x in moved_by_one(ids, padding)),
    },
    check.count_parameters: {
        "builds the model": lambda c: Caracal(c).num_parameters(),
        "builds the model without memory": on_meta,
        "width not rounded": lambda c: counted(c, W=8 * c.d_model // 3),
        "width 4 D": lambda c: counted(c, W=4 * c.d_model),
        "attention at 0, 3, 6": lambda c: counted(c, attention=0 if c.fourier_per_attention is None else
                                                  -(-c.n_layers // (c.fourier_per_attention + 1))),
        "the ratio is always 2:1": lambda c: counted(c, attention=c.n_layers // 3),
        "gate mix across heads": lambda c: counted(c, mix=c.d_model**2 + c.d_model),
        "gate mix without bias": lambda c: counted(c, mix=c.d_model**2 // c.n_heads),
        "forgets the positions": lambda c: counted(c, **{"no positions": True}),
        "the embedding twice": lambda c: counted(c) + c.vocab_size * c.d_model,
        "forgets the last norm": lambda c: counted(c) - 2 * c.d_model,
        "nothing": lambda c: None,
        "millions": lambda c: counted(c) / 1e6,
    },
    check.tied_gradients: {
        "the sum in both": the_whole_twice,
        "the other way round": lambda *args: two_copies(*args)[::-1],
        "sum of the losses": sum_of_losses,
        "forgets the input": lambda *args: (0 * two_copies(*args)[0], two_copies(*args)[1]),
        "one tensor": lambda *args: sum(two_copies(*args)),
        "transposed": lambda *args: tuple(g.T for g in two_copies(*args)),
    },
}
REASONS = [
    (check.inputs_and_targets, "writes into ids", "the answer wrote into them"),
    (check.inputs_and_targets, "padding is always 0", "padding that is not 0"),
    (check.inputs_and_targets, "targets alone", "expected two tensors, given Tensor"),
    (check.inputs_and_targets, "cut to the longest", "all documents shorter"),
    (check.count_parameters, "builds the model", "from the configuration alone, given one that builds TiedEmbedding"),
    (check.count_parameters, "attention at 0, 3, 6", "d_model=96, n_layers=7: expected"),
    (check.count_parameters, "forgets the positions", "learned positions: expected"),
    (check.count_parameters, "the ratio is always 2:1", "no attention: expected"),
    (check.tied_gradients, "the other way round", "by the input: entry"),
    (check.tied_gradients, "forgets the input", "no body: by the input: entry"),
]


class TestAnswers(Answers):
    chapter, right, wrong, reasons = check, RIGHT, WRONG, REASONS
