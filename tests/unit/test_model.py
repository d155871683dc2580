"""The model: shapes, counts, initialisation, variants, loss, compilation, and what it tells a user."""

import warnings

import pytest
import torch

from caracal_min import Caracal, CaracalConfig
from caracal_min.config import PRESETS
from caracal_min.model import BLOCK_OPTIONS

SMALL = CaracalConfig(vocab_size=50, d_model=24, n_layers=6, n_heads=4, window_size=7)


def small(**changes) -> Caracal:
    torch.manual_seed(0)
    return Caracal(CaracalConfig(**{**vars(SMALL), **changes}))


def text(batch: int = 3, length: int = 20) -> torch.Tensor:
    return torch.randint(50, (batch, length), generator=torch.Generator().manual_seed(1))


def test_logits_and_both_losses():
    model, tokens = small().double(), text()
    targets = tokens.roll(-1, 1)
    targets[:, :5] = -100  # left out of the mean
    logits, loss = model(tokens, targets)
    by_hand = -logits.log_softmax(-1)[:, 5:].gather(-1, targets[:, 5:, None]).mean()
    assert logits.shape == (3, 20, 50) and loss.dtype == torch.float64
    none, fused = model(tokens, targets, keep="none")
    assert none is None and model(tokens)[1] is None
    for found in (loss, fused, model.loss(tokens, targets)):
        assert abs(found - by_hand) < 1e-12
    last = model(tokens, keep="last", lengths=[20, 3, 7])[0]
    assert torch.allclose(last[:, 0], logits[torch.arange(3), torch.tensor([19, 2, 6])], atol=1e-12)


def test_prediction_never_sees_the_future():
    model, tokens = small().double(), text(1, 30)
    changed = tokens.clone()
    changed[0, 12] = (tokens[0, 12] + 1) % 50
    moved = (model(tokens)[0] - model(changed)[0]).abs().amax((0, 2))
    assert moved[:12].max() < 1e-12 and moved[12:].min() > 1e-9


# By hand from Appendix E: 4 D^2 + 3 D W (SWA block), 3 D^2 + D^2/H + 9 D + 3 D W (MHF block), norms, embedding.
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
    model, tokens = small(embedding_std=0.1, **changes), text(2, 25)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    for _ in range(60):
        loss = model.loss(tokens[:, :-1], tokens[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.5  # guessing gives ln 50 = 3.9
    assert all(p.grad is not None for p in model.parameters())


ZERO = torch.zeros(1, 2, dtype=torch.int64)


@pytest.mark.parametrize("build, words", [
    (lambda: small(n_heads=5), ["d_model=24", "n_heads=5"]),
    (lambda: small(n_layers=0), ["n_layers=0", ">= 1"]),
    (lambda: small(gate_length=0), ["gate_length=0", ">= 1"]),
    (lambda: small(gate="x"), ["unknown gate 'x'", "two_stage, single_stage"]),
    (lambda: small(positional_encoding="rope"), ["rope", "None, learned"]),
    (lambda: Caracal.from_preset("huge"), ["unknown preset 'huge'", ", ".join(PRESETS)]),
    (lambda: Caracal.from_preset("nano", width=3), ["unknown field 'width'", "vocab_size, d_model, "]),
    (lambda: small().compile_loss("all"), ["unknown compile 'all'", "no, blocks, model"]),
    (lambda: small()(torch.tensor([[3, 50]])), ["tokens holds id 50", "0 to 49"]),
    (lambda: small().loss(torch.tensor([[3, -1]]), ZERO), ["id -1", "0 to 49"]),
    (lambda: small()(torch.tensor([3, 4])), ["(2,)", "[batch, length]"]),
    (lambda: small()(torch.tensor([[0.5]])), ["float32", "integer"]),
    (lambda: small()(ZERO[:, :0]), ["(1, 0)", "length >= 1"]),
    (lambda: small()(ZERO.to("meta")), ["tokens is on meta", "cpu"]),
    (lambda: small().loss(ZERO, torch.tensor([[1, 99]])), ["99"]),
    (lambda: small(positional_encoding="learned", max_positions=4)(text(1, 5)), ["5 tokens", "covers 4"]),
])
def test_likely_mistakes_get_one_clear_line(build, words):
    with pytest.raises(ValueError) as caught:
        build()
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_the_forgotten_shift_is_told_once(recwarn):
    model, tokens = small(), text()
    small().loss(tokens[:, :-1], tokens[:, 1:])
    assert not recwarn
    with pytest.warns(UserWarning, match=r"targets equal tokens.*model\(text\[:, :-1\], text\[:, 1:\]\)"):
        model.loss(tokens, tokens.clone())
    model(tokens, tokens)
    assert not recwarn
    for call in (small(), small().loss):
        with pytest.warns(UserWarning, match="targets equal tokens") as caught:
            call(tokens, tokens)
        assert caught[0].filename == __file__  # the line that forgot it


def test_text_beyond_the_trained_length_is_told_once(recwarn):
    tokens = text(1, 33)
    model = small(max_positions=32)
    model(tokens[:, :32])
    small(max_positions=32, gate_length=32)(tokens)
    assert not recwarn
    with pytest.warns(UserWarning, match="33 tokens, and the model was trained on texts of 32.*gate_length=32"):
        model(tokens)
    model(tokens)
    assert not recwarn
    with pytest.warns(UserWarning, match="gate_length=32") as caught:
        small(max_positions=32)(tokens)
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="gate_length=32") as caught:
        small(max_positions=32).generate(tokens[:, :30], 20)
    assert len(caught) == 1
    with warnings.catch_warnings(action="error"):
        small(max_positions=32).generate(tokens[:, :30], 3)  # the last token drawn is not read


def test_blocks_are_compiled_with_the_options_of_their_device(monkeypatch):
    monkeypatch.setitem(BLOCK_OPTIONS, "cpu", {"unheard_of": 1})
    with pytest.raises(RuntimeError, match="unheard_of"):
        small().compile_loss("blocks")


@pytest.mark.compile
@pytest.mark.parametrize("what, graphs", [("no", 0), ("blocks", 3), ("model", 1)])
def test_compiled_the_loss_is_the_same_and_decoding_is_not_compiled(what, graphs):
    model, tokens, built = small(embedding_std=0.5, max_positions=16), text(), []

    def counted(graph, example_inputs):
        built.append(graph)
        return graph.forward

    torch.compiler.reset()
    with torch.compiler.set_stance("default", force_backend=counted):
        loss = model.compile_loss(what).loss(tokens, tokens.roll(-1, 1))
        assert len(built) == graphs
        drawn = model.generate(tokens, 9, temperature=0.0)
        assert len(built) == graphs
    torch.compiler.reset()
    plain = small(embedding_std=0.5)
    expected = plain(tokens, tokens.roll(-1, 1))[1]
    assert torch.allclose(loss, expected, atol=1e-5)
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    for a, b in zip(gradients, torch.autograd.grad(expected, list(plain.parameters())), strict=True):
        assert torch.allclose(a, b, atol=1e-4)
    assert torch.equal(drawn, plain.generate(tokens, 9, temperature=0.0))
