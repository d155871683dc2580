"""Tensors of any strides, and what a function gives for them: for the tests of all that takes sequences."""

import torch

# Layouts of attention heads, of images in channels-last, and of a batch that comes second: leading dimensions that do
# not merge into one.
APART = {
    "transposed": lambda: torch.randn(4, 2, 6, 10).transpose(0, 1),
    "channels last": lambda: torch.randn(2, 3, 4, 10).contiguous(memory_format=torch.channels_last),
    "heads": lambda: torch.randn(2, 10, 12).view(2, 10, 3, 4).permute(0, 2, 3, 1),
    "five dimensions": lambda: torch.randn(2, 3, 2, 3, 10).permute(3, 0, 2, 1, 4),
    "repeated": lambda: torch.randn(3, 1, 4, 10).transpose(0, 2).expand(4, 5, 3, 10),
}


def random_strides(x: torch.Tensor, seed: int, zeros: bool = True) -> torch.Tensor:
    """Return numbers of x `[...]` as a view with random strides; with `zeros`, some dimensions repeat one index.

    The dimensions lie in memory in a random order; some are slices of longer ones, with NaN between their numbers;
    one layout in eight is a lazily negated view.
    """
    draw = torch.Generator().manual_seed(seed)

    def one_in(n):
        return not torch.randint(n, (), generator=draw)

    order = torch.randperm(x.ndim, generator=draw).tolist()
    repeated = [zeros and one_in(6) for _ in order]
    steps = [2 if one_in(4) else 1 for _ in order]
    source = x[tuple(slice(1) if r else slice(None) for r in repeated)].permute(order)
    negated = one_in(8)
    memory = torch.full([n * step + step - 1 for n, step in zip(source.shape, steps, strict=True)], float("nan"),
                        dtype=x.dtype)
    view = memory[tuple(slice(step - 1, None, step) for step in steps)]
    view.copy_(-source if negated else source)
    view = view.permute([order.index(i) for i in range(x.ndim)]).expand(x.shape)
    return torch._neg_view(view) if negated else view


def streams(ndim: int, seed: int, zeros: bool = True, dtype=torch.float64) -> tuple[torch.Tensor, ...]:
    """Return v, g and dr of one shape, of `ndim` dimensions, each with strides of its own."""
    draw = torch.Generator().manual_seed(seed)
    shape = [*torch.randint(1, 4, (ndim - 1,), generator=draw).tolist(), 1 + seed % 9]
    return tuple(random_strides(torch.randn(shape, generator=draw, dtype=dtype), 3 * seed + i, zeros)
                 for i in range(3))


def results(f, given_, weight):
    """Return f of some tensors and its gradients by them, for a gradient of its result that `weight` begins with."""
    given_ = [x.detach().requires_grad_() for x in given_]
    y = f(*given_)
    count = y.numel()
    repeated = weight.flatten().repeat(-(-count // weight.numel()))[:count].view(y.shape)
    return [y, *torch.autograd.grad(y, given_, repeated)]


def contiguous(x: torch.Tensor) -> torch.Tensor:
    return x.clone(memory_format=torch.contiguous_format).resolve_neg()
