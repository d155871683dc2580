"""The checkers of chapter 4: right answers pass, named wrong ones fail with the case, blank ones are reported."""

import torch
from exercise_answers import Answers
from torch.fft import fft, ifft

from caracal_book.exercises import causal_convolution as check
from caracal_min.convolution import causal_conv_direct, causal_conv_fft, circular_conv, linear_conv


def overlap_add(block, g, carry):
    product = linear_conv(block, g)
    product[:len(carry)] += carry
    return product[:len(block)], product[len(block):]


def overlap_save(block, g, carry):
    """Right outputs, but the carry is the last contents."""
    seen = torch.cat([carry, block])
    return linear_conv(seen, g)[len(carry):len(seen)], seen[len(block):]


def by_loops(block, g, carry):
    product = torch.cat([carry, torch.zeros_like(block)])
    for j, content in enumerate(block):
        product[j:j + len(g)] += content * g
    return product[:len(block)], product[len(block):]


def only_within_the_block(block, g, carry):
    """The carry joins the outputs of the block; what reaches beyond a short block is lost."""
    product = linear_conv(block, g)
    shared = min(len(block), len(carry))
    product[:shared] += carry[:shared]
    return product[:len(block)], product[len(block):]


def squaring(v, g):
    length = v.shape[-1]
    return ifft(fft(v + 1j * g, n=2 * length - 1) ** 2)[..., :length].imag / 2


def by_jacobian(f, length, threshold=1e-10, dtype=torch.float64, absolute=False):
    v, g = torch.randn(2, length, dtype=dtype)
    jacobians = torch.stack(torch.autograd.functional.jacobian(f, (v, g)))
    size = 1.0 if absolute else jacobians.abs().max()
    return bool(jacobians.triu(1).abs().max() <= threshold * size)


def poke_at(token, threshold=1e-10, arguments=(0, 1)):
    """A test of causality that pokes one token (a share of the length) of v, of g or of both."""

    def is_causal(f, length):
        k = min(length - 1, int(token * length))
        pair = torch.randn(2, length, dtype=torch.float64)
        for argument in arguments:
            other = pair.clone()
            other[argument, k] += 1
            moved = (f(*other) - f(*pair)).abs()
            if k and moved[:k].max() > threshold * moved.max():
                return False
        return True

    return is_causal


def by_random_inputs(start):
    """A test of causality that draws all tokens from one on (a share of the length) anew and looks before it."""

    def is_causal(f, length):
        k = int(start * length)
        pair = torch.randn(2, length, dtype=torch.float64)
        other = torch.cat([pair[:, :k], torch.randn(2, length - k, dtype=torch.float64)], dim=1)
        moved = (f(*other) - f(*pair))[:k].abs().max()
        return bool(moved <= 1e-10 * f(*pair).abs().max())

    return is_causal


def squaring_without_fft(v, g):
    length = v.shape[-1]
    points = torch.arange(2 * length)
    powers = torch.exp(-1j * torch.pi / length * (points[:length, None] * points).double())
    values = ((v + 1j * g) @ powers) ** 2
    return (values @ powers.mH).imag / (4 * length)


def continued(tail, v, g, new_v, new_g):
    m = len(new_v)
    return padded_tail(tail, m) + causal_conv_direct(v[:m], new_g) + causal_conv_direct(new_v, g[:m])


def recomputed(tail, v, g, new_v, new_g):
    return causal_conv_direct(torch.cat([v, new_v]), torch.cat([g, new_g]))[len(v):]


def padded_tail(tail, m):
    return torch.nn.functional.pad(tail, (0, m))[:m]


RIGHT = {
    check.next_block: [overlap_add, by_loops],
    check.is_causal: [by_jacobian],
    check.conv_by_squaring: [squaring],
    check.continue_sum: [continued],
}
WRONG = {
    check.next_block: {
        "truncates and forgets": lambda block, g, carry: (
            overlap_add(block, g, 0 * carry)[0], torch.zeros_like(carry)),
        "hands on a carry and does not use it": lambda block, g, carry: overlap_add(block, g, 0 * carry),
        "passes the carry on untouched": lambda block, g, carry: (overlap_add(block, g, carry)[0], carry),
        "a short block loses the rest of the carry": only_within_the_block,
        "wraps around in each block": lambda block, g, carry: (
            ifft(fft(block) * fft(g, n=len(block))).real, overlap_add(block, g, carry)[1]),
        "does not truncate": lambda block, g, carry: (linear_conv(block, g), overlap_add(block, g, carry)[1]),
        "carries one number too many": lambda block, g, carry: (
            overlap_add(block, g, carry)[0], torch.nn.functional.pad(overlap_add(block, g, carry)[1], (0, 1))),
        "adds the carry at the end of the block": lambda block, g, carry: tuple(
            part.flip(-1) for part in overlap_add(block.flip(-1), g.flip(-1), carry.flip(-1))),
        "carries contents": overlap_save,
        "outputs alone": lambda block, g, carry: overlap_add(block, g, carry)[0],
        "answers in float32": lambda block, g, carry: tuple(part.float() for part in overlap_add(block, g, carry)),
        "forgets to return": lambda block, g, carry: None,
    },
    check.is_causal: {
        "says yes": lambda f, length: True,
        "says no": lambda f, length: False,
        "asks for exact zeros": lambda f, length: by_jacobian(f, length, threshold=0.0),
        "an absolute tolerance": lambda f, length: by_jacobian(f, length, threshold=1e-8, absolute=True),
        "too lax for a faint leak": lambda f, length: by_jacobian(f, length, threshold=1e-3),
        "float32, too coarse for a faint leak": lambda f, length: by_jacobian(f, length, 1e-4, torch.float32),
        "pokes the middle only": poke_at(0.5),
        "pokes the content only": poke_at(1.0, arguments=[0]),
        "pokes the gate only": poke_at(1.0, arguments=[1]),
        "pokes the last token only": poke_at(1.0),
        "randomises the second half only": by_random_inputs(0.5),
        "randomises from a quarter on only": by_random_inputs(0.25),
        "forgets to return": lambda f, length: None,
    },
    check.conv_by_squaring: {
        "no transform, the direct sum": causal_conv_direct,
        "no transform, a table of powers": squaring_without_fft,
        "two transforms": lambda v, g: torch.fft.irfft(
            torch.fft.rfft(v, n=2 * v.shape[-1]) * torch.fft.rfft(g, n=2 * g.shape[-1]), n=2 * v.shape[-1],
        )[..., :v.shape[-1]],
        "the package does it": causal_conv_fft,
        "two transforms in one call": lambda v, g: torch.fft.irfft(
            torch.fft.rfft(torch.stack([v, g]), n=2 * v.shape[-1]).prod(0), n=2 * v.shape[-1])[..., :v.shape[-1]],
        "no padding": lambda v, g: ifft(fft(v + 1j * g) ** 2).imag / 2,
        "forgets the half": lambda v, g: 2 * squaring(v, g),
        "takes the real part": lambda v, g: ifft(
            fft(v + 1j * g, n=2 * v.shape[-1]) ** 2)[..., :v.shape[-1]].real / 2,
        "forgets to truncate": lambda v, g: ifft(fft(v + 1j * g, n=2 * v.shape[-1]) ** 2).imag / 2,
        "answers in float32": lambda v, g: squaring(v, g).float(),
        "first entry right, others not": lambda v, g: squaring(v, g) * (torch.arange(v.shape[-1]) == 0),
        "nan": lambda v, g: squaring(v, g) * float("nan"),
        "numpy": lambda v, g: squaring(v, g).numpy(),
    },
    check.continue_sum: {
        "recomputes everything": recomputed,
        "the tail alone": lambda tail, v, g, new_v, new_g: padded_tail(tail, len(new_v)),
        "the last old tokens": lambda tail, v, g, new_v, new_g: padded_tail(tail, len(new_v))
        + causal_conv_direct(v[-len(new_v):], new_g) + causal_conv_direct(new_v, g[-len(new_v):]),
        "forgets the tail": lambda tail, v, g, new_v, new_g: causal_conv_direct(v[:len(new_v)], new_g)
        + causal_conv_direct(new_v, g[:len(new_v)]),
        "pairs new with new": lambda tail, v, g, new_v, new_g: continued(tail, v, g, new_v, new_g)
        + causal_conv_direct(new_v, new_g),
        "starts afresh": lambda tail, v, g, new_v, new_g: causal_conv_direct(new_v, new_g),
        "wraps around": lambda tail, v, g, new_v, new_g: circular_conv(
            torch.cat([v, new_v]), torch.cat([g, new_g]))[len(v):],
    },
}
REASONS = [
    (check.is_causal, "an absolute tolerance", "is_causal(a tiny circular convolution, length="),
    (check.next_block, "truncates and forgets", "and blocks of (1, 1, 1), block 0: carry: entry [0] should be"),
    (check.next_block, "a short block loses the rest of the carry", "blocks of (1, 1, 1, 1, 1), block 1: carry: entry"),
    (check.next_block, "carries contents", "block 0: carry: entry [0] should be"),
    (check.next_block, "outputs alone", "expected two tensors, outputs and carry, given Tensor"),
    (check.is_causal, "forgets to return", "given None; is a return missing"),
    (check.is_causal, "pokes the last token only", "a faint look at v[1], length=4): expected False, given True"),
    (check.conv_by_squaring, "no transform, the direct sum", "transformed 0 sequences, expected 3"),
    (check.conv_by_squaring, "no transform, a table of powers", "transformed 0 sequences, expected 3"),
    (check.conv_by_squaring, "two transforms", "transformed 6 sequences, expected 3"),
    (check.continue_sum, "recomputes everything", "and random numbers added to the tail: entry [0] should be"),
]


class TestAnswers(Answers):
    chapter, right, wrong, reasons = check, RIGHT, WRONG, REASONS
