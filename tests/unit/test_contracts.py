"""What other people's code may rely on: each layer is what its base class is, to adapters and to quantisation."""

import copy
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from caracal_min import Caracal, CaracalConfig
from caracal_min.projections import HeadMix, ShortConv, TiedEmbedding, TimeLastLinear

D, HELD = 16, 5


def model(**changes) -> Caracal:
    torch.manual_seed(0)
    config = dict(vocab_size=40, d_model=D, n_layers=3, n_heads=2, window_size=6, embedding_std=0.5, init_std=0.2)
    return Caracal(CaracalConfig(**config | changes)).double().eval()


def tokens(batch: int = 2, length: int = D // 2) -> torch.Tensor:
    """Ids `[batch, length]`; by default as many as the model has channels, so that no product of the two is refused."""
    return torch.randint(40, (batch, length), generator=torch.Generator().manual_seed(1))


def moved(call, ids: torch.Tensor) -> tuple[float, float]:
    """How far a change of token HELD moves the logits before it, and from it on."""
    changed = ids.clone()
    changed[:, HELD] = (ids[:, HELD] + 1) % 40
    with torch.no_grad():
        difference = (call(changed) - call(ids)).abs()
    return difference[:, :HELD].max().item(), difference[:, HELD:].max().item()


LINEAR = [name for name, module in model().named_modules() if isinstance(module, nn.Linear)]
LAYERS = {
    "linear": (TimeLastLinear(6, 4), [(6,), (3, 6), (6, 6), (1, 6), (2, 5, 6), (2, 3, 5, 6), (2, 1, 6), (0, 5, 6)]),
    "linear, no bias": (TimeLastLinear(6, 4, bias=False), [(6,), (2, 5, 6)]),
    "taps": (ShortConv(6, 6, 3, groups=6, bias=False), [(2, 6, 9), (6, 9), (2, 6, 3), (6, 3), (1, 6, 6)]),
    "taps, in other ways": (ShortConv(6, 4, 3, stride=2, padding=1, groups=2), [(2, 6, 9), (6, 9), (2, 6, 3), (6, 3)]),
    "taps, with a bias": (ShortConv(6, 6, 3, groups=6), [(2, 6, 9), (2, 6, 3)]),
    "taps, far apart": (ShortConv(6, 6, 3, groups=6, bias=False, dilation=2), [(2, 6, 9)]),
    "heads": (HeadMix(6, 6, 1, groups=3), [(2, 6, 9), (6, 9), (1, 6, 1), (6, 1), (2, 6, 1), (1, 6, 6)]),
    "heads, in other ways": (HeadMix(6, 4, 1, groups=2, padding=1), [(2, 6, 9), (6, 9), (1, 6, 1)]),
    "heads, no bias": (HeadMix(6, 6, 1, groups=3, bias=False), [(2, 6, 9), (1, 6, 1)]),
    "heads, three taps": (HeadMix(6, 6, 3, groups=3), [(2, 6, 9)]),
}


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("name", LAYERS)
def test_a_subclass_returns_what_its_base_class_returns(name, order):
    layer, shapes = LAYERS[name]
    for shape in shapes:
        x = torch.randn(shape[::order]).permute(*range(len(shape))[::order]).requires_grad_()
        found, expected = layer(x), type(layer).__base__.forward(layer, x)
        assert found.shape == expected.shape
        assert torch.allclose(found, expected, atol=1e-6), shape
        of = [x, *layer.parameters()]
        for a, b in zip(*(torch.autograd.grad(y.square().sum(), of) for y in (found, expected)), strict=True):
            assert torch.allclose(a, b, atol=1e-5), shape


@pytest.mark.parametrize("name, shape", [("linear", (6, 5)), ("linear", (2, 6, 5)), ("taps", (2, 1, 9)), ("taps", (9,)),
                                         ("taps", (2, 1, 3)), ("taps", (2, 6, 2)), ("taps", (1, 2, 6, 3)),
                                         ("heads", (1, 1, 6)), ("heads", (6,)), ("heads", (2, 3, 1)), ("heads", (1, 6)),
                                         ("heads", (2, 6, 3, 1))])
def test_a_subclass_refuses_what_its_base_class_refuses(name, shape):
    layer, _ = LAYERS[name]
    for forward in (layer, lambda x: type(layer).__base__.forward(layer, x)):
        with pytest.raises(RuntimeError):
            forward(torch.randn(shape))


def test_these_are_all_the_subclasses_in_a_model():
    found = {type(module) for module in model(positional_encoding="learned").modules()
             if type(module).__module__.startswith("caracal_min") and type(module).__base__ is not nn.Module}
    assert found - {Caracal} == {TimeLastLinear, ShortConv, HeadMix, TiedEmbedding}


@pytest.fixture
def adapted(report_missing):
    """A function that returns a model with LoRA adapters, which do something, on modules of some names."""
    try:
        import peft
    except ImportError:
        report_missing("peft is not installed: pip install -r requirements.txt")

    def build(target, **options) -> nn.Module:
        torch.manual_seed(1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PEFT's own, that it cannot merge grouped convolutions
            config = peft.LoraConfig(r=4, target_modules=target, init_lora_weights=False, **options)
            return peft.get_peft_model(model(), config).double().eval()

    return build


@pytest.mark.parametrize("target", ["all-linear", *([name] for name in LINEAR)], ids=lambda t: t if t[1:] else t[0])
def test_an_adapter_sees_no_later_token_and_can_be_merged(target, adapted):
    ids, plain, whole = tokens(), model(), adapted(target)
    found = whole(ids)[0]
    assert (found - plain(ids)[0]).abs().max() > 1e-3  # it does something
    before, after = moved(lambda x: whole(x)[0], ids)
    assert before < 1e-12 and after > 1e-3
    drawn = whole.generate(ids, 12, temperature=0.0)
    assert torch.equal(whole(drawn[:, :-1])[0][:, ids.shape[1] - 1:].argmax(-1), drawn[:, ids.shape[1]:])
    merged = whole.merge_and_unload()
    assert torch.allclose(merged(ids)[0], found, atol=1e-11)
    assert torch.equal(merged.generate(ids, 12, temperature=0.0), drawn)


def test_the_second_stage_of_the_gate_can_be_adapted_too(adapted):
    whole, ids = adapted(["gate_mix"]), tokens()
    before, after = moved(lambda x: whole(x)[0], ids)
    assert before < 1e-12 and after > 1e-3
    assert (whole(ids)[0] - model()(ids)[0]).abs().max() > 1e-3


class Quantised(torch.Tensor):
    """A weight that knows no product but `F.linear`, whose result is an ordinary tensor, as those of torchao."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function is nn.functional.linear:
            return function(*(x.as_subclass(torch.Tensor) if isinstance(x, cls) else x for x in args), **kwargs or {})
        if function in (torch.addmm, torch.baddbmm, torch.mm, torch.matmul, torch.Tensor.view, torch.Tensor.t):
            raise NotImplementedError(f"{function.__name__} of a quantised weight")
        return super().__torch_function__(function, types, args, kwargs)


def test_weights_that_only_a_linear_layer_can_multiply():
    plain, whole, ids = model(), model(), tokens()
    for module in whole.modules():
        if isinstance(module, nn.Linear):
            module.weight = nn.Parameter(module.weight.detach().as_subclass(Quantised))
    assert torch.allclose(whole(ids)[0], plain(ids)[0], atol=1e-12)
    assert torch.equal(whole.generate(ids, 9, temperature=0.0), plain.generate(ids, 9, temperature=0.0))


def test_dynamic_quantisation_of_the_linear_layers():
    """Of those of exactly PyTorch's class.  One scale for all tokens of a batch: the future moves it, by a step."""
    plain, ids = model().float(), tokens()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's, that torchao will take its place
        whole = torch.ao.quantization.quantize_dynamic(copy.deepcopy(plain), {nn.Linear})
    expected = plain(ids)[0]
    assert (whole(ids)[0] - expected).norm() < 0.1 * expected.norm()
    assert not torch.equal(whole(ids)[0], expected)
    assert whole.generate(ids, 9, temperature=0.0).shape == (2, 17)


def test_an_adapter_on_the_embedding_is_refused_and_a_copy_of_it_is_not(adapted):
    """A LoRA changes what goes in and not what comes out of the same matrix: merged, it would be another model."""
    ids = tokens()
    with pytest.raises(RuntimeError, match="output matrix too, and Embedding in its place.*modules_to_save") as caught:
        adapted(["embedding"])(ids)
    assert "\n" not in str(caught.value)
    whole = adapted(["to_gate"], modules_to_save=["embedding"])
    with torch.no_grad():
        whole.base_model.model.embedding.modules_to_save["default"].weight += 0.1
    found = whole(ids)[0]
    assert torch.allclose(whole.merge_and_unload()(ids)[0], found, atol=1e-11)


def kinds() -> dict[str, type]:
    """The names of one module of each kind and place in a block, of the outer ones, and of the model itself."""
    names = {}
    for name, module in model(positional_encoding="learned").named_modules():
        place = ".".join(part for part in name.split(".") if not part.isdigit())
        if not isinstance(module, nn.ModuleList):
            names.setdefault((place, type(module)), name)
    return {name: kind for (_, kind), name in names.items()}


PATHS = {
    "forward": lambda m, ids: m(ids),
    "loss": lambda m, ids: m.loss(ids, ids.roll(-1, 1)),
    "logits": lambda m, ids: m.logits(ids),
    "logits, cached": lambda m, ids: m.logits(ids, m.new_caches(2, 20)),
    "logits, cached, rows of two lengths": lambda m, ids: m.logits(ids, m.new_caches(2, 20), [8, 3]),
    "generate": lambda m, ids: m.generate(ids, 2),
    "generate, of lists": lambda m, ids: m.generate([[1], [2, 3]], 2),
    "stream": lambda m, ids: list(m.stream(ids, 2)),
}


@pytest.mark.parametrize("compiled", ["no", "blocks"])
@pytest.mark.parametrize("path", PATHS)
def test_hooks_of_every_module_are_called_on_every_way_through_the_model(path, compiled):
    called = set()
    whole = model(positional_encoding="learned")
    for name in kinds():
        module = whole.get_submodule(name)
        module.register_forward_pre_hook(lambda module, given, name=name: called.add((name, "before")))
        module.register_forward_hook(lambda module, given, result, name=name: called.add((name, "after")))
    with torch.compiler.set_stance("default", force_backend="eager"), torch.no_grad():
        torch.compiler.reset()
        PATHS[path](whole.compile_for(compiled), tokens())
    torch.compiler.reset()
    assert called == {(name, when) for name in kinds() for when in ("before", "after")}


def test_a_hook_of_the_embedding_can_tell_the_look_up_from_the_output():
    plain, hooked, ids = model(), model(), tokens()
    plain.blocks[0].register_forward_pre_hook(lambda block, given: (2 * given[0], *given[1:]))
    hooked.embedding.register_forward_hook(lambda m, given, out: None if given[0].is_floating_point() else 2 * out)
    assert torch.equal(hooked(ids)[0], plain(ids)[0]) and not torch.equal(plain(ids)[0], model()(ids)[0])
    assert torch.equal(hooked.loss(ids, ids.roll(-1, 1)), plain.loss(ids, ids.roll(-1, 1)))
    assert torch.equal(hooked.generate(ids, 9, temperature=0.0), plain.generate(ids, 9, temperature=0.0))


def test_a_steering_vector_steers_what_is_drawn():
    plain, steered, ids = model(), model(), tokens()
    for m in (plain, steered):
        m.compile_for("blocks")
    steered.blocks[1].register_forward_hook(lambda module, given, result: result + 3.0 * torch.arange(D).cos())
    with torch.compiler.set_stance("fail_on_recompile"):  # decoding is never compiled
        drawn = steered.generate(ids, 9, temperature=0.0)
        assert not torch.equal(drawn, plain.generate(ids, 9, temperature=0.0))
    with torch.compiler.set_stance("force_eager"):
        assert torch.equal(steered(drawn[:, :-1])[0][:, 7:].argmax(-1), drawn[:, 8:])


def offload(whole: Caracal) -> None:
    """As accelerate does: every weight is on meta but for the time in which the module that it hangs on is called."""
    for module in whole.modules():
        own = dict(module.named_parameters(recurse=False))

        def bring(module, given, own=own):
            for name, weight in own.items():
                module._parameters[name] = weight

        def take(module, given, result, own=own):
            for name, weight in own.items():
                module._parameters[name] = nn.Parameter(weight.to("meta"))

        if own:
            take(module, None, None)
            module.register_forward_pre_hook(bring)
            module.register_forward_hook(take)


@pytest.mark.parametrize("changes", [{}, dict(positional_encoding="learned", gate="single_stage", gate_length=4)])
def test_weights_that_hooks_bring_when_a_module_is_called(changes):
    plain, whole, ids = model(**changes), model(**changes), tokens()
    offload(whole)
    assert all(p.is_meta for p in whole.parameters()) and whole.device.type == "cpu"
    with torch.no_grad():
        assert torch.equal(whole(ids)[0], plain(ids)[0])
        assert torch.equal(whole.loss(ids, ids.roll(-1, 1)), plain.loss(ids, ids.roll(-1, 1)))
    assert torch.equal(whole.generate(ids, 9, seed=1), plain.generate(ids, 9, seed=1))
    for a, b in zip(*(m.generate([[1, 2, 3], [4]], 9, temperature=0.0) for m in (whole, plain)), strict=True):
        assert torch.equal(a, b)


SHARDED = """
import sys, torch, torch.distributed as dist
from caracal_min.evaluation.losses import token_losses
from torch.distributed.fsdp import fully_shard
from test_contracts import model, tokens

def main(rank, address):
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    plain, whole, ids = model(), model(), tokens()
    for block in whole.blocks:
        fully_shard(block)
    if "embedding" in sys.argv:
        fully_shard(whole.embedding)
    fully_shard(whole)
    whole.generate(ids, 1)  # before the first step
    token_losses(whole, ids)
    for step in range(2):
        for m in (plain, whole):
            m.loss(ids, ids.roll(-1, 1)).backward()
            torch.optim.SGD(m.parameters(), 0.1).step()
    with torch.no_grad():
        assert torch.allclose(whole(ids)[0], plain(ids)[0], atol=1e-12)
        assert torch.allclose(whole.logits(ids, whole.new_caches(2, 9)), plain(ids)[0], atol=1e-12)
    assert torch.equal(whole.generate(ids, 7, temperature=0.0), plain.generate(ids, 7, temperature=0.0))
    dist.destroy_process_group()

if __name__ == "__main__":
    torch.multiprocessing.spawn(main, (sys.argv[1],), nprocs=2)
"""


@pytest.mark.parametrize("more", [(), ("embedding",)])
def test_sharded_over_two_processes_it_trains_and_generates_as_whole(more, tmp_path):
    """FSDP2 shards each weight, and gathers it when the module that it hangs on, or one around it, is called."""
    (tmp_path / "sharded.py").write_text(SHARDED)
    paths = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run([sys.executable, "sharded.py", f"file://{tmp_path / 'rendezvous'}", *more], cwd=tmp_path,
                          env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}, capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr
