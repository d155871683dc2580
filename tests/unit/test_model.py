"""The model: shapes, counts, initialisation, variants, and the way to disk and back."""

import copy
import json
import pickle
import subprocess
import sys

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from caracal_min import Caracal, CaracalConfig
from caracal_min.config import PRESETS
from caracal_min.modules import MultiHeadFourier, SlidingWindowAttention
from caracal_min.zoo import load_model

SMALL = CaracalConfig(vocab_size=50, d_model=24, n_layers=6, n_heads=4, window_size=7)


def small(seed=0, **changes) -> Caracal:
    torch.manual_seed(seed)
    return Caracal(CaracalConfig(**{**vars(SMALL), **changes}))


def test_logits_and_loss():
    model, tokens = small(), torch.randint(50, (3, 20))
    logits, loss = model(tokens)
    assert logits.shape == (3, 20, 50) and loss is None
    targets = tokens.roll(-1, 1)
    _, loss = model(tokens, targets)
    by_hand = -logits.log_softmax(-1).gather(-1, targets[..., None]).mean()
    assert torch.allclose(loss, by_hand, atol=1e-5)


def test_ignored_targets_do_not_count():
    model, tokens = small(), torch.randint(50, (1, 8))
    targets = tokens.clone()
    targets[:, :5] = -100
    logits, loss = model(tokens, targets)
    by_hand = -logits.log_softmax(-1)[:, 5:].gather(-1, tokens[:, 5:, None]).mean()
    assert torch.allclose(loss, by_hand, atol=1e-5)


def test_prediction_never_sees_the_future():
    model = small().double()
    tokens = torch.randint(50, (1, 30))
    changed = tokens.clone()
    changed[0, 12] = (tokens[0, 12] + 1) % 50
    moved = (model(tokens)[0] - model(changed)[0]).abs().amax((0, 2))
    assert moved[:12].max() < 1e-12 and moved[12:].min() > 1e-9


# Counted by hand from Appendix E: 4 D^2 + 3 D W (SWA block), 3 D^2 + D^2/H + 9 D + 3 D W (MHF block), norms, embedding.
@pytest.mark.parametrize("name, millions", [("tiny", 62.5), ("small", 119.3), ("medium", 344.3), ("large", 721.7)])
def test_parameter_counts(name, millions):
    with torch.device("meta"):
        model = Caracal.from_preset(name)
    config, d = model.config, model.config.d_model
    attention = len(config.attention_layers)
    mlp_and_norms = 3 * d * config.mlp_width + 4 * d
    fourier = 3 * d + 2 * d + 3 * (d * d + d) + (d * d // config.n_heads + d)
    by_hand = (config.vocab_size * d + config.n_layers * mlp_and_norms + attention * 4 * d * d
               + (config.n_layers - attention) * fourier + 2 * d)
    assert model.num_parameters() == by_hand
    assert round(by_hand / 1e6, 1) == millions


@pytest.mark.parametrize("k, attention", [(None, ()), (5, (5, 11)), (3, (3, 7, 11)), (2, (2, 5, 8, 11)),
                                          (1, (1, 3, 5, 7, 9, 11))])
def test_layer_pattern(k, attention):
    config = CaracalConfig(vocab_size=9, d_model=8, n_layers=12, n_heads=2, fourier_per_attention=k)
    kinds = [type(block.mixer) for block in Caracal(config).blocks]
    assert kinds == [SlidingWindowAttention if i in attention else MultiHeadFourier for i in range(12)]


def test_initialisation():
    model = Caracal.from_preset("nano", embedding_std=0.3)
    assert model.embedding.weight.std().item() == pytest.approx(0.3, rel=0.05)
    for name, p in model.named_parameters():
        if name.endswith("bias"):
            assert torch.equal(p, torch.zeros_like(p))
        elif "to_out" in name:
            assert p.std().item() == pytest.approx(0.02 / 12**0.5, rel=0.05)
        elif p.ndim > 1 and "embedding" not in name:
            assert p.std().item() == pytest.approx(0.02, rel=0.2 if "pre_conv" in name else 0.05)


@pytest.mark.parametrize("changes", [dict(fourier_per_attention=None), dict(pre_conv=False), dict(gate="single_stage"),
                                     dict(positional_encoding="learned"), dict(fourier_per_attention=1),
                                     dict(gate_length=7)])
def test_every_variant_learns_one_batch(changes):
    model = small(embedding_std=0.1, **changes)
    draw = torch.Generator().manual_seed(1)
    tokens = torch.randint(50, (2, 25), generator=draw)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    for _ in range(60):
        loss = model(tokens[:, :-1], tokens[:, 1:])[1]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.5  # guessing gives ln 50 = 3.9
    assert all(p.grad is not None for p in model.parameters())


def test_save_and_load(tmp_path):
    model, tokens = small(), torch.randint(50, (2, 9))
    model.save_pretrained(tmp_path / "deep" / "model")
    assert sorted(p.name for p in (tmp_path / "deep" / "model").iterdir()) == ["SHA256SUMS", "config.json",
                                                                                "model.safetensors"]
    loaded = Caracal.from_pretrained(tmp_path / "deep" / "model")
    assert loaded.config == model.config
    assert torch.equal(loaded(tokens)[0], model(tokens)[0])
    assert all(p.requires_grad for p in loaded.parameters())


def test_a_model_without_a_gate_length_loads_and_loads_with_one(tmp_path):
    """Written before there was one, too: no weight depends on it."""
    model, tokens = small(embedding_std=0.5, init_std=0.2).eval(), torch.randint(50, (2, 40))
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["gate_length"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "SHA256SUMS").unlink()
    assert Caracal.from_pretrained(tmp_path).config == model.config
    cut = Caracal.from_pretrained(tmp_path, gate_length=9)
    assert cut.config.gate_length == 9
    assert torch.equal(cut(tokens[:, :9])[0], model(tokens[:, :9])[0])
    found, whole = cut(tokens)[0], model(tokens)[0]
    assert torch.allclose(found[:, :9], whole[:, :9], atol=1e-4) and not torch.allclose(found, whole, atol=1e-2)
    cut.save_pretrained(tmp_path / "cut")
    assert torch.equal(Caracal.from_pretrained(tmp_path / "cut")(tokens)[0], found)
    assert torch.equal(Caracal.from_pretrained(tmp_path / "cut", gate_length=None)(tokens)[0], whole)
    assert torch.equal(load_model(tmp_path, gate_length=9)(tokens)[0], found)
    for changes, words in (({"d_model": 48}, "do not belong together"), ({"gate_lenght": 9}, "has no field"),
                           ({"gate_length": 0}, "gate_length=0; give"), ({"pre_conv": False}, "foreign tensor")):
        with pytest.raises(ValueError, match=words):
            Caracal.from_pretrained(tmp_path, **changes)


def test_load_from_the_hub_cache(tmp_path):
    """The hub's own loader, offline, on a cache folder in the hub's layout."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    repo = tmp_path / "models--someone--caracal-nano"
    model = small()
    model.save_pretrained(repo / "snapshots" / commit)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(commit)
    code = ("from caracal_min import Caracal; m = Caracal.from_pretrained('someone/caracal-nano'); "
            "print(m.embedding.weight.double().sum().item())")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          env={**__import__("os").environ, "HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == pytest.approx(model.embedding.weight.double().sum().item())


def damage(folder, what):
    config, weights = folder / "config.json", folder / "model.safetensors"
    if what == "no config":
        config.unlink()
    elif what == "no weights":
        weights.unlink()
    elif what == "truncated weights":
        weights.write_bytes(weights.read_bytes()[:1000])
    elif what == "broken json":
        config.write_text(config.read_text()[:30])
    else:
        config.write_text(json.dumps({**json.loads(config.read_text()), **what}))


@pytest.mark.parametrize("what, error, words", [
    ("no config", FileNotFoundError, ["config.json", "save_pretrained"]),
    ("no weights", FileNotFoundError, ["model.safetensors", "save_pretrained"]),
    ("truncated weights", ValueError, ["model.safetensors", "not a readable"]),
    ("broken json", ValueError, ["config.json", "not readable JSON"]),
    ({"model_type": "llama"}, ValueError, ["llama", "caracal"]),
    ({"d_model": 28}, ValueError, ["do not belong together"]),
    ({"n_layers": 7}, ValueError, ["lacks tensor", "do not belong together"]),
    ({"n_layers": 5}, ValueError, ["foreign tensor", "do not belong together"]),
])
def test_damaged_checkpoints_get_one_clear_line(tmp_path, what, error, words):
    small().save_pretrained(tmp_path)
    damage(tmp_path, what)
    with pytest.raises(error) as caught:
        Caracal.from_pretrained(tmp_path)
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("name", ["no/such/folder/anywhere", "bad name"])
def test_unknown_folder(name):
    with pytest.raises(FileNotFoundError, match="give the name of a shipped model"):
        Caracal.from_pretrained(name)


@pytest.mark.parametrize("build, words", [
    (lambda: CaracalConfig(50, 24, 6, 5), ["d_model=24", "n_heads=5"]),
    (lambda: CaracalConfig(50, 24, 0, 4), ["n_layers=0"]),
    (lambda: CaracalConfig(50, 24, 6, 4, fourier_per_attention=0), ["fourier_per_attention=0", "None"]),
    (lambda: CaracalConfig(50, 24, 6, 4, gate_length=0), ["gate_length=0", "None"]),
    (lambda: CaracalConfig(50, 24, 6, 4, gate_length=2.5), ["gate_length=2.5", "whole number"]),
    (lambda: CaracalConfig(50, 24, 6, 4, gate="x"), ["gate='x'", "two_stage"]),
    (lambda: CaracalConfig(50, 24, 6, 4, positional_encoding="rope"), ["rope", "learned"]),
    (lambda: CaracalConfig(50, 24, 6, 4, init_std=0.0), ["init_std=0.0"]),
    (lambda: Caracal.from_preset("huge"), ["huge", *PRESETS]),
    (lambda: Caracal.from_preset("nano", width=3), ["width", "d_model"]),
    (lambda: small()(torch.tensor([[3, 50]])), ["id 50", "0 to 49"]),
    (lambda: small()(torch.tensor([[3, -1]])), ["id -1", "0 to 49"]),
    (lambda: small()(torch.tensor([3, 4])), ["(2,)", "[batch, length]"]),
    (lambda: small()(torch.tensor([[0.5]])), ["float32", "integer"]),
    (lambda: small()(torch.zeros(1, 0, dtype=torch.int64)), ["(1, 0)", "length >= 1"]),
    (lambda: small()(torch.zeros(1, 2, dtype=torch.int64, device="meta")), ["meta", "tokens.to('cpu')"]),
    (lambda: small()(torch.tensor([[1]]), torch.zeros(1, 1, dtype=torch.int64, device="meta")), ["targets is on meta"]),
    (lambda: small().loss(torch.tensor([[1]]), torch.tensor([[-1]])), ["targets", "id -1"]),
    (lambda: small().logits(torch.zeros(2, 3, dtype=torch.int64), small().new_caches(3, 9)), ["6 caches", "2 rows"]),
    (lambda: small().logits(torch.zeros(3, 3, dtype=torch.int64), small().new_caches(3, 9)[:4]), ["4 caches", "6 b"]),
    (lambda: small()(torch.tensor([[1, 2]]), torch.tensor([[1]])), ["(1, 1)", "(1, 2)"]),
    (lambda: small()(torch.tensor([[1, 2]]), torch.tensor([[1, 99]])), ["targets", "id 99"]),
    (lambda: small(positional_encoding="learned", max_positions=4)(torch.zeros(1, 5, dtype=torch.int64)),
     ["5 tokens", "covers 4"]),
    (lambda: small()(*torch.ones(2, 1, 1, dtype=torch.int64), caches=small().new_caches(1, 9)),
     ["targets with caches"]),
    (lambda: small()(torch.tensor([[1, 2]]), keep="last", lengths=[1]), ["lengths without caches", "lengths[i] - 1"]),
])
def test_bad_input_gets_one_clear_line(build, words):
    with pytest.raises(ValueError) as caught:
        build()
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_a_loss_on_meta_has_the_shape_of_one():
    tokens = torch.zeros(2, 3, dtype=torch.int64, device="meta")
    assert small().to("meta").loss(tokens, tokens).shape == ()


def test_a_second_derivative_of_the_whole_model():
    """With the one kernel of attention that has it, as the message of `loss` says."""
    torch.manual_seed(0)
    model, tokens = small(window_size=4).double(), torch.randint(50, (2, 12))
    weight = model.blocks[0].mixer.to_value.weight
    direction = torch.randn_like(weight)

    def slope():
        with sdpa_kernel(SDPBackend.MATH):
            return torch.autograd.grad(model(tokens[:, :-1], tokens[:, 1:])[1], weight, create_graph=True)[0]

    (found,) = torch.autograd.grad((slope() * direction).sum(), weight)
    h, slopes = 1e-4, []
    for sign in (1, -1):
        with torch.no_grad():
            weight += sign * h * direction
        slopes.append(slope().detach())
        with torch.no_grad():
            weight -= sign * h * direction
    assert (found - (slopes[0] - slopes[1]) / (2 * h)).norm() < 1e-4 * found.norm() and found.norm() > 0


def test_loss_keeps_float64():
    model = small().double()
    tokens = torch.randint(50, (2, 12))
    loss = model(tokens[:, :-1], tokens[:, 1:])[1]
    by_hand = -model(tokens[:, :-1])[0].log_softmax(-1).gather(-1, tokens[:, 1:, None]).mean()
    assert loss.dtype == torch.float64 and abs(loss - by_hand) < 1e-12


def test_tokens_that_are_no_tensor_are_refused():
    with pytest.raises(TypeError, match="^tokens is a list; give a torch.Tensor of ids"):
        small()([[1, 2]])


def test_an_empty_batch_has_empty_logits_and_no_mean():
    tokens = torch.zeros(0, 5, dtype=torch.int64)
    model = small()
    logits, loss = model(tokens, tokens)
    assert logits.shape == (0, 5, 50) and loss.isnan() and model.loss(tokens, tokens.roll(-1, 1)).isnan()


def test_targets_that_equal_tokens_everywhere_are_told_of_once(recwarn):
    model, tokens = small(), torch.randint(50, (2, 9), generator=torch.Generator().manual_seed(0))
    one_token = torch.full((2, 9), 3)
    model(tokens[:, :-1], tokens[:, 1:])
    model(one_token, one_token)  # what follows is the same
    model.loss(tokens, torch.where(torch.arange(9) < 8, tokens, -100))
    assert not [w for w in recwarn if "targets" in str(w.message)]
    with pytest.warns(UserWarning, match=r"targets equal tokens everywhere.*model\(text\[:, :-1\], text\[:, 1:\]\)"):
        model.loss(tokens, tokens.clone())
    recwarn.clear()
    model(tokens, tokens)
    assert not [w for w in recwarn if "targets" in str(w.message)]


@pytest.mark.parametrize("what", ["no", "blocks", "model"])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
@pytest.mark.parametrize("called", [False, True])
def test_a_copy_of_a_compiled_model_has_its_own_weights(what, copied, called):
    model, tokens = small(embedding_std=0.5), torch.randint(50, (2, 20), generator=torch.Generator().manual_seed(0))
    graphs = []

    def counted(graph, example_inputs):
        graphs.append(graph)
        return graph.forward

    with torch.compiler.set_stance("default", force_backend=counted):
        torch.compiler.reset()
        model.compile_for(what)
        if called:
            model.loss(tokens, tokens.roll(-1, 1))
        twin = copied(model)
        with torch.no_grad():
            for p in twin.parameters():
                p += 0.3 * torch.randn(p.shape, generator=torch.Generator().manual_seed(1))
        graphs.clear()
        torch.compiler.reset()
        losses = [m.loss(tokens, tokens.roll(-1, 1)) for m in (model, twin)]
        assert bool(graphs) == (what != "no")
        for m, loss in zip((model, twin), losses, strict=True):
            expected = m(tokens, tokens.roll(-1, 1))[1]
            assert torch.allclose(loss, expected, atol=1e-5)
            gradients = torch.autograd.grad(loss, list(m.parameters()))
            for a, b in zip(gradients, torch.autograd.grad(expected, list(m.parameters())), strict=True):
                assert torch.allclose(a, b, atol=1e-4)
        assert (losses[0] - losses[1]).abs() > 0.1
    torch.compiler.reset()


def test_a_copy_alone_is_compiled_for_the_same():
    graphs, tokens = [], torch.randint(50, (2, 20))

    def counted(graph, example_inputs):
        graphs.append(graph)
        return graph.forward

    for what, kinds in (("no", 0), ("blocks", 3), ("model", 1)):
        twin = copy.deepcopy(small().compile_for(what))
        torch.compiler.reset()
        graphs.clear()
        with torch.compiler.set_stance("default", force_backend=counted):
            twin.loss(tokens, tokens.roll(-1, 1))
        assert len(graphs) == kinds
    torch.compiler.reset()
