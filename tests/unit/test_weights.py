"""Models on disk: what is damaged, hostile or foreign is found, in one line, before it is believed."""

import json
import pickle
import resource
import shutil
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch.nn.utils import prune

from caracal_min import Caracal, CaracalConfig, model, weights
from caracal_min.data import ByteTokenizer
from caracal_min.weights import OF_THE_WEIGHTS, read_weights
from caracal_min.zoo import ARCHITECTURES, baselines, load_model, make_model

SMALL = CaracalConfig(vocab_size=30, d_model=8, n_layers=3, n_heads=2, window_size=7)
CONFIG, WEIGHTS, SUMS = "config.json", "model.safetensors", "SHA256SUMS"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A small model of every architecture, saved; by name."""
    pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("saved")
    torch.manual_seed(0)
    Caracal(SMALL).save_pretrained(folder / "caracal")
    for name in ARCHITECTURES[1:]:
        make_model(name, "nano", vocab_size=30).save_pretrained(folder / name)
    return folder


def refused(folder: Path, words: str = "") -> str:
    """The one line with which a folder is refused."""
    with pytest.raises((ValueError, FileNotFoundError)) as caught:
        load_model(folder)
    said = str(caught.value)
    assert "\n" not in said and len(said) < 1000 and str(folder) in said and words in said
    return said


def without_hashes(folder: Path, **config) -> None:
    """Make it a folder of another tool, with other entries in its configuration."""
    (folder / SUMS).unlink(missing_ok=True)
    state = load_file(folder / WEIGHTS)
    save_file({name: t.clone() for name, t in state.items()}, folder / WEIGHTS, {"format": "pt"})
    (folder / CONFIG).write_text(json.dumps(json.loads((folder / CONFIG).read_text()) | config))


def flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def header_size(path: Path) -> int:
    with open(path, "rb") as file:
        return 8 + int.from_bytes(file.read(8), "little")


@pytest.mark.parametrize("architecture", ["caracal", "llama"])
def test_every_flipped_bit_is_found(saved, tmp_path, architecture):
    """50 in the header, 50 in the data, 50 in the configuration, all in the list of hashes."""
    draw, folder = torch.Generator().manual_seed(0), tmp_path / "model"
    start, end = header_size(saved / architecture / WEIGHTS), (saved / architecture / WEIGHTS).stat().st_size
    places = [(WEIGHTS, 0, start), (WEIGHTS, start, end), (CONFIG, 0, (saved / architecture / CONFIG).stat().st_size)]
    for name, first, last in places:
        for bit in torch.randint(8 * first, 8 * last, (50,), generator=draw).tolist():
            shutil.copytree(saved / architecture, folder, dirs_exist_ok=True)
            flip(folder / name, bit)
            refused(folder)
    shutil.copytree(saved / architecture, folder, dirs_exist_ok=True)
    whole = (folder / SUMS).read_bytes()
    for bit in range(8 * len(whole)):
        (folder / SUMS).write_bytes(whole)
        flip(folder / SUMS, bit)
        with pytest.raises((ValueError, FileNotFoundError), match=SUMS):
            read_weights(folder)


def test_the_hashes_are_those_that_sha256sum_checks(saved):
    done = subprocess.run(["sha256sum", "--check", "--strict", SUMS], cwd=saved / "caracal", capture_output=True,
                          text=True)
    assert (done.returncode, done.stdout) == (0, f"{CONFIG}: OK\n{WEIGHTS}: OK\n")


def test_weights_lie_where_those_of_a_new_model_do(saved):
    """safetensors puts them where the header ends; a product with an unaligned matrix can end in other bits."""
    folders = [saved / architecture for architecture in ARCHITECTURES]
    assert any(t.data_ptr() % 64 for folder in folders for t in load_file(folder / WEIGHTS).values())
    assert all(t.data_ptr() % 64 == 0 for folder in folders for t in read_weights(folder).values())


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_folder_without_hashes_loads(saved, tmp_path, architecture):
    shutil.copytree(saved / architecture, tmp_path / "model")
    without_hashes(tmp_path / "model")
    tokens = torch.randint(30, (1, 9))
    with torch.inference_mode():
        assert torch.equal(load_model(tmp_path / "model")(tokens)[0], load_model(saved / architecture)(tokens)[0])


def test_what_transformers_wrote_loads_and_it_reads_what_we_write(saved, tmp_path):
    transformers = pytest.importorskip("transformers")
    tokens = torch.randint(30, (1, 9))
    for architecture in ARCHITECTURES[1:]:
        ours = load_model(saved / architecture)
        ours.model.save_pretrained(tmp_path / architecture)
        theirs = transformers.AutoModelForCausalLM.from_pretrained(saved / architecture)
        with torch.inference_mode():
            expected = ours(tokens)[0]
            assert torch.equal(load_model(tmp_path / architecture)(tokens)[0], expected)
            torch.testing.assert_close(theirs(tokens).logits, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_a_baseline_keeps_the_type_of_its_weights(saved, tmp_path, dtype):
    load_model(saved / "jamba").to(dtype).save_pretrained(tmp_path)
    assert {p.dtype for p in load_model(tmp_path).parameters()} == {dtype}


@pytest.mark.parametrize("stored, asked, found", [
    (torch.bfloat16, None, torch.float32), (torch.float16, None, torch.float32), (torch.float32, None, torch.float32),
    (torch.float64, None, torch.float64), (torch.bfloat16, torch.bfloat16, torch.bfloat16),
    (torch.float32, torch.bfloat16, torch.bfloat16), (torch.bfloat16, torch.float64, torch.float64)])
def test_weights_are_loaded_in_float32_or_in_the_type_that_is_asked_for(tmp_path, stored, asked, found):
    """Half precision is widened, which changes no number: on a CPU it is slow, and its sums round."""
    model = Caracal(SMALL).to(stored)
    model.save_pretrained(tmp_path)
    loaded = Caracal.from_pretrained(tmp_path, device="cpu", dtype=asked)
    for a, b in zip(model.parameters(), loaded.parameters(), strict=True):
        assert b.dtype == found and torch.equal(b, a.to(found)) and b.data_ptr() % 64 == 0


@pytest.mark.parametrize("dtype", ["bfloat16", torch.int64, torch.complex64])
def test_other_types_are_refused(saved, dtype):
    with pytest.raises(ValueError, match="give a floating-point type such as torch.bfloat16, or None"):
        Caracal.from_pretrained(saved / "caracal", dtype=dtype)


def test_the_same_model_gives_the_same_bytes(saved, tmp_path):
    model = load_model(saved / "caracal")
    for _ in range(8):  # safetensors orders metadata at random, had it more than one entry
        model.save_pretrained(tmp_path)
        for name in (CONFIG, WEIGHTS, SUMS):
            assert (tmp_path / name).read_bytes() == (saved / "caracal" / name).read_bytes()


def test_other_tools_see_tensors_and_their_format(saved):
    with safe_open(saved / "caracal" / WEIGHTS, framework="pt") as file:
        assert file.metadata()["format"] == "pt"
        assert set(file.keys()) == set(Caracal(SMALL).state_dict())
    assert CaracalConfig(**{k: v for k, v in json.loads((saved / "caracal" / CONFIG).read_text()).items()
                            if k != "model_type"}) == SMALL


def test_a_download_from_the_hub_is_checked_too(saved, tmp_path, monkeypatch):
    """A cache in the hub's own layout, where the files are links."""
    import huggingface_hub.constants

    commit = "0123456789abcdef0123456789abcdef01234567"
    repo = tmp_path / "models--someone--caracal"
    shutil.copytree(saved / "caracal", repo / "blobs")
    (repo / "snapshots" / commit).mkdir(parents=True)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(commit)
    for name in (CONFIG, WEIGHTS, SUMS):
        (repo / "snapshots" / commit / name).symlink_to(repo / "blobs" / name)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    assert load_model("someone/caracal").config == SMALL
    flip(repo / "blobs" / WEIGHTS, 8 * 5000)
    with pytest.raises(ValueError, match="model.safetensors is not what was saved"):
        load_model("someone/caracal")


@pytest.mark.parametrize("architecture", ["caracal", "llama"])
@pytest.mark.parametrize("at", ["read_shapes", "read_weights", "load_tokenizer"])
def test_a_folder_that_is_saved_anew_while_it_is_read_is_refused(saved, tmp_path, monkeypatch, architecture, at):
    """Its configuration would be of one model, its weights or its tokenizer of another."""
    shutil.copytree(saved / architecture, tmp_path / "model")
    if architecture == "caracal":
        other = Caracal(CaracalConfig(**{**vars(SMALL), "gate_length": 4}))
    else:
        other = load_model(saved / architecture)
    for module in (weights, model, baselines):
        if found := getattr(module, at, None):
            monkeypatch.setattr(module, at, lambda folder, of=found: (other.save_pretrained(folder), of(folder))[1])
    refused(tmp_path / "model", "was saved anew while it was read; read it again")
    monkeypatch.undo()
    load_model(tmp_path / "model")


@pytest.mark.parametrize("architecture", ["caracal", "llama"])
def test_a_tokenizer_that_stays_with_a_model_that_has_none_is_named(saved, tmp_path, architecture):
    loaded = make_model(architecture, "nano")
    loaded.tokenizer = ByteTokenizer()
    loaded.save_pretrained(tmp_path)
    loaded.tokenizer = None
    with pytest.warns(UserWarning, match=f"^the tokenizer in {tmp_path} is from now on that of this model") as caught:
        loaded.save_pretrained(tmp_path)
    assert caught[0].filename == __file__
    assert load_model(tmp_path).tokenizer.name == "byte"
    with torch.no_grad():
        loaded.embedding.weight.fill_(1)
    with warnings.catch_warnings(action="error"), pytest.raises(UserWarning):
        loaded.save_pretrained(tmp_path)
    assert (load_model(tmp_path).embedding.weight == 1).all()  # it was saved


@pytest.mark.parametrize("architecture", ["caracal", "llama", "mamba"])
def test_the_end_of_text_is_where_transformers_reads_it(saved, tmp_path, architecture):
    transformers = pytest.importorskip("transformers")
    import caracal_min.hf  # noqa: F401

    loaded = make_model(architecture, "nano")
    loaded.tokenizer = ByteTokenizer()
    loaded.tokenizer.end_of_text = 7
    loaded.save_pretrained(tmp_path)
    assert transformers.AutoModelForCausalLM.from_pretrained(tmp_path).generation_config.eos_token_id == 7
    again = load_model(tmp_path)
    again.tokenizer = ByteTokenizer()
    again.save_pretrained(tmp_path)
    assert json.loads((tmp_path / CONFIG).read_text())["eos_token_id"] == 0


def test_files_of_two_models_do_not_pair(saved, tmp_path):
    """Of the same shapes, so that nothing but the hash can tell."""
    shutil.copytree(saved / "caracal", tmp_path / "model")
    Caracal(CaracalConfig(**vars(SMALL) | {"window_size": 5})).save_pretrained(tmp_path / "other")
    shutil.copy(tmp_path / "other" / CONFIG, tmp_path / "model")
    refused(tmp_path / "model", f"{CONFIG} is not what was saved (its SHA-256 is not the one in {SUMS})")


HOSTILE = [
    ("caracal", {"n_layers": 10**9}, "1000000000 layers"),
    ("caracal", {"n_layers": 10**4000}, "layers"),
    ("caracal", {"fourier_per_attention": 10**9}, "tensor"),
    ("caracal", {"d_model": 10**9}, "embedding.weight"),
    ("caracal", {"d_model": 10**18, "n_heads": 10**18}, "embedding.weight"),
    ("caracal", {"vocab_size": 10**12}, "embedding.weight"),
    ("caracal", {"positional_encoding": "learned", "max_positions": 10**12}, "positions.weight"),
    ("caracal", {"n_heads": 8}, "gate_mix"),
    ("caracal", {"n_layers": "3"}, "n_layers='3'; give a whole number"),
    ("caracal", {"n_layers": True}, "n_layers=True; give a whole number"),
    ("caracal", {"n_layers": 3.0}, "n_layers=3.0; give a whole number"),
    ("caracal", {"window_size": float("nan")}, "window_size=nan; give a whole number"),
    ("caracal", {"init_std": float("nan")}, "init_std=nan; give a number > 0"),
    ("caracal", {"init_std": "0.02"}, "init_std='0.02'; give a number > 0"),
    ("caracal", {"embedding_std": float("inf")}, "embedding_std=inf"),
    ("caracal", {"pre_conv": "no"}, "pre_conv='no'; give True or False"),
    ("caracal", {"vocab_size": [[[[30]]]]}, "vocab_size=[[[[30]]]]"),
    ("caracal", {"gate": ["two_stage"] * 1000}, "gate=["),
    ("caracal", {"a\nb": 1, "n_layers": 10**9}, "1000000000 layers"),
    ("caracal", {"gate_lenght": 64}, "has the field 'gate_lenght'; did you mean 'gate_length'?"),
    ("caracal", {"window_sizes": 3}, "has the field 'window_sizes'; did you mean 'window_size'?"),
    ("caracal", {"model_type": {}}, "type {}"),
    ("caracal", {"model_type": ["llama"]}, "type ['llama']"),
    ("llama", {"num_hidden_layers": 10**9}, "1000000000 layers"),
    ("mamba", {"num_hidden_layers": 10**9}, "1000000000 layers"),
    ("mamba", {"num_hidden_layers": 11}, "num_hidden_layers"),
    ("llama", {"num_hidden_layers": 5}, "foreign tensor"),
    ("llama", {"hidden_size": 10**9}, "embed_tokens"),
    ("llama", {"hidden_size": "128"}, "hidden_size='128'"),
    ("llama", {"vocab_size": 10**15}, "embed_tokens"),
    ("llama", {"intermediate_size": 10**15}, "intermediate_size"),
    ("llama", {"num_attention_heads": 0}, "num_attention_heads=0"),
    ("llama", {"num_attention_heads": 3}, "n_heads=3"),
    ("llama", {"num_labels": 10**9}, "num_labels"),
    ("llama", {"rope_theta": 5e5}, "rope_theta"),
    ("llama", {"rope_parameters": {"rope_type": "dynamic"}}, "rope_parameters"),
    ("llama", {"quantization_config": {"quant_method": "bitsandbytes"}}, "quantization_config"),
    ("jamba", {"num_experts": 10**9}, "num_experts"),
    ("jamba", {"attn_layer_period": 0}, "attn_layer_period"),
    ("mamba2", {"state_size": 10**12}, "state_size"),
    ("mamba2", {"time_step_limit": [0.0, float("nan")]}, "time_step_limit"),
]


@pytest.mark.parametrize("architecture, changes, words", HOSTILE,
                         ids=[f"{a}-{next(iter(c))!r}-{i}" for i, (a, c, _) in enumerate(HOSTILE)])
def test_a_hostile_configuration_is_refused_before_anything_is_built(saved, tmp_path, architecture, changes, words):
    """Even with nothing hashed.  In milliseconds: building 10^9 layers, even of nothing, takes days."""
    folder = tmp_path / "model"
    shutil.copytree(saved / architecture, folder)
    without_hashes(folder, **changes)
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    refused(folder, words)
    assert time.perf_counter() - start < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # KiB


def test_layers_in_name_only_are_no_layers(saved, tmp_path):
    """A header that names ten thousand layers without what belongs to one."""
    shutil.copytree(saved / "caracal", tmp_path / "model")
    without_hashes(tmp_path / "model", n_layers=10_000)
    state = load_file(tmp_path / "model" / WEIGHTS)
    save_file({n: t.clone() for n, t in state.items()} | {f"blocks.{i}.norm": torch.ones(1) for i in range(10_000)},
              tmp_path / "model" / WEIGHTS)
    start = time.perf_counter()
    refused(tmp_path / "model", "lacks tensor")
    assert time.perf_counter() - start < 5


def test_a_wide_window_costs_nothing_to_load(saved, tmp_path):
    shutil.copytree(saved / "caracal", tmp_path / "model")
    without_hashes(tmp_path / "model", window_size=10**12)
    assert load_model(tmp_path / "model").config.window_size == 10**12


OTHERS = {"architectures": ["CaracalForCausalLM"], "torch_dtype": "bfloat16", "transformers_version": "5.23.0",
          "quantization_config": {"quant_method": "fp8"},
          "auto_map": {"AutoModelForCausalLM": "evil.Model"}, "pad_token_id": None, "_name_or_path": "someone/else"}


def test_what_other_tools_write_into_a_configuration_is_kept_and_means_nothing(saved, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(saved / "caracal", folder)
    without_hashes(folder, **OTHERS)
    model = load_model(folder)
    assert model.config == SMALL and model.other_settings == OTHERS
    model.save_pretrained(tmp_path / "again")
    kept = {name: value for name, value in OTHERS.items() if name not in OF_THE_WEIGHTS}
    assert json.loads((tmp_path / "again" / CONFIG).read_text()) == {**kept, "model_type": "caracal", **vars(SMALL)}
    assert load_model(tmp_path / "again").other_settings == kept and len(kept) == len(OTHERS) - 2


@pytest.mark.parametrize("text, words", [
    ("[" * 500_000, "not readable JSON"), ('{"a":' * 100_000, "not readable JSON"), ("[1, 2]", "no JSON object"),
    ("null", "no JSON object"), ("", "not readable JSON"), ("\0" * 50, "not readable JSON"),
    ('{"n_layers": ' + "9" * 100_000 + "}", "not readable JSON"), ('{"model_type": "caracal"}', "lacks the field"),
    ('{"model_type": "' + "x" * 900_000 + '"}', "of type 'xxx"),
])
def test_a_configuration_that_is_none(saved, tmp_path, text, words):
    shutil.copytree(saved / "caracal", tmp_path / "model")
    (tmp_path / "model" / CONFIG).write_text(text)
    refused(tmp_path / "model", words)


def test_a_configuration_that_is_not_utf_8(saved, tmp_path):
    shutil.copytree(saved / "caracal", tmp_path / "model")
    (tmp_path / "model" / CONFIG).write_bytes(b'{"model_type": "\xff\xfe"}')
    refused(tmp_path / "model", "not readable JSON")


def test_a_huge_configuration_is_refused_unread(saved, tmp_path):
    shutil.copytree(saved / "caracal", tmp_path / "model")
    with open(tmp_path / "model" / CONFIG, "r+b") as file:
        file.truncate(10**9)
    refused(tmp_path / "model", "1,000,000,000 bytes, and such a file has at most 1,048,576")


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS])
@pytest.mark.parametrize("architecture", ["caracal", "llama"])
def test_a_folder_where_a_file_is_expected(saved, tmp_path, architecture, name):
    shutil.copytree(saved / architecture, tmp_path / "model")
    (tmp_path / "model" / name).unlink()
    (tmp_path / "model" / name).mkdir()
    refused(tmp_path / "model", f"has no {name}")


def small_header(text: str) -> bytes:
    return len(text).to_bytes(8, "little") + text.encode()


@pytest.mark.parametrize("data", [
    b"", b"\0" * 8, b"\xff" * 8, b"\xff" * 100, (10**8 + 1).to_bytes(8, "little") + b"{}",
    (1 << 60).to_bytes(8, "little"),
    small_header("{}"), small_header("[]"), small_header("x" * 50), small_header('{"__metadata__": 3}'),
    small_header('{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}'),
    small_header('{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}') + b"\0" * 4,
    small_header('{"a": {"dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 0]}}'),
    small_header('{"a\\nb": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}') + b"\0" * 4,
    small_header('{"embedding.weight": {"dtype": "I32", "shape": [30, 8], "data_offsets": [0, 960]}}') + b"\0" * 960,
    small_header("[" * 100_000),
], ids=range(16))
def test_weights_that_are_none(saved, tmp_path, data):
    shutil.copytree(saved / "caracal", tmp_path / "model")
    (tmp_path / "model" / WEIGHTS).write_bytes(data)
    refused(tmp_path / "model", WEIGHTS)


def test_weights_of_whole_numbers_or_of_two_types_are_refused(saved, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(saved / "caracal", folder)
    without_hashes(folder)
    state = {name: t.clone() for name, t in load_file(folder / WEIGHTS).items()}
    save_file({name: t.long() for name, t in state.items()}, folder / WEIGHTS)
    refused(folder, "tensors of type I64; weights have one of BF16, F16, F32, F64")
    save_file(state | {"norm.bias": state["norm.bias"].half()}, folder / WEIGHTS)
    refused(folder, "tensors of type F16, F32; weights have one of")


JSON = st.recursive(st.none() | st.booleans() | st.integers(-2**70, 2**70) | st.floats() | st.text(max_size=9),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3))


@settings(max_examples=150, deadline=None)
@given(field=st.sampled_from(sorted(vars(SMALL))) | st.text(max_size=9), value=JSON)
def test_any_configuration_loads_or_gets_one_line(saved, tmp_path_factory, field, value):
    folder = tmp_path_factory.mktemp("drawn")
    shutil.copytree(saved / "caracal", folder, dirs_exist_ok=True)
    without_hashes(folder, **{field: value})
    try:
        model = load_model(folder)
    except ValueError as error:
        assert "\n" not in str(error) and str(folder) in str(error) and len(str(error)) < 1000
    else:
        stored = getattr(model.config, field) if field in vars(SMALL) else model.other_settings[field]
        assert stored == value or json.dumps(stored) == json.dumps(value)  # NaN is not equal to itself


def compiled(model):
    for i, block in enumerate(model.blocks):
        model.blocks[i] = torch.compile(block)


def shared(model):
    model.blocks[1].mixer_norm.weight = model.blocks[0].mixer_norm.weight
    model.blocks[1].mlp_norm.weight.data = model.norm.weight.data


@pytest.mark.parametrize("change", [compiled, shared])
def test_a_compiled_block_and_shared_memory_are_saved_under_their_names(tmp_path, change):
    """The compiler puts `_orig_mod.` into names, which from_pretrained would refuse."""
    torch.manual_seed(0)
    model, tokens = Caracal(SMALL).eval(), torch.randint(30, (2, 9))
    change(model)
    state = torch.get_rng_state()
    model.save_pretrained(tmp_path)
    assert torch.equal(state, torch.get_rng_state())
    plain = Caracal.from_pretrained(tmp_path, device="cpu")
    assert plain.state_dict().keys() == Caracal(SMALL).state_dict().keys()
    with torch.compiler.set_stance("force_eager"):
        assert torch.equal(plain(tokens)[0], model(tokens)[0])


def pruned(model):
    prune.l1_unstructured(model.blocks[1].mixer.to_out, "weight", 0.5)


def parametrized(model):
    torch.nn.utils.parametrizations.weight_norm(model.blocks[0].mixer.to_out)


def adapted(model):
    peft = pytest.importorskip("peft")
    peft.get_peft_model(model, peft.LoraConfig(target_modules=["to_out"]))


def grown(model):
    model.embedding = torch.nn.Embedding(40, 8)


def extended(model):
    model.extra = torch.nn.Linear(3, 3)


def cut_short(model):
    del model.blocks[2]


def of_two_types(model):
    model.norm.bfloat16()


def on_meta(model):
    model.to("meta")


class Wrapped(torch.Tensor):
    pass


def a_subclass(model):
    model.norm.weight = torch.nn.Parameter(torch.ones(8).as_subclass(Wrapped))


@pytest.mark.parametrize("change, words", [
    (pruned, "'blocks.1.mixer.to_out.weight_orig', so it is pruned: call torch.nn.utils.prune.remove("),
    (parametrized, "so it is parametrized: call torch.nn.utils.parametrize.remove_parametrizations("),
    (adapted, "so it is adapted: call merge_and_unload()"),
    (grown, "tensor 'embedding.weight' of shape (40, 8), and its configuration says (30, 8)"),
    (extended, "has the foreign tensor 'extra.bias' (2 in all); undo what"), (cut_short, "lacks tensor 'blocks.2."),
    (of_two_types, "tensors of type torch.bfloat16, torch.float32; give it one"),
    (on_meta, "without data (on the device meta)"), (a_subclass, "'norm.weight' as a Wrapped"),
], ids=lambda value: getattr(value, "__name__", ""))
def test_what_could_not_be_loaded_is_not_saved(tmp_path, change, words):
    Caracal(SMALL).save_pretrained(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    model = Caracal(SMALL)
    change(model)
    with pytest.raises(ValueError, match="^the model is not saved, because it could not be loaded again") as caught:
        model.save_pretrained(tmp_path)
    assert words in str(caught.value) and "\n" not in str(caught.value)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_weights_in_parts_that_lay_there_are_removed(tmp_path):
    """Other programs read the index of parts first."""
    theirs = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"]
    for name in (*theirs, "model.other.safetensors", "notes.txt"):
        (tmp_path / name).touch()
    Caracal(SMALL).save_pretrained(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [SUMS, CONFIG, WEIGHTS, "model.other.safetensors", "notes.txt"])


def test_what_mends_a_pruned_model_and_a_parametrized_one_mends_it(tmp_path):
    model, tokens = Caracal(SMALL), torch.randint(30, (2, 9))
    pruned(model)
    parametrized(model)
    prune.remove(model.blocks[1].mixer.to_out, "weight")
    torch.nn.utils.parametrize.remove_parametrizations(model.blocks[0].mixer.to_out, "weight")
    model.save_pretrained(tmp_path)
    loaded = Caracal.from_pretrained(tmp_path, device="cpu")
    assert (loaded.blocks[1].mixer.to_out.weight == 0).sum() == 32 and torch.equal(loaded(tokens)[0], model(tokens)[0])


@pytest.mark.parametrize("architecture", ARCHITECTURES[1:])
def test_a_baseline_that_was_loaded_can_be_saved_and_loaded(saved, tmp_path, architecture):
    model, tokens = load_model(saved / architecture), torch.randint(30, (1, 9))
    model.save_pretrained(tmp_path)
    without_hashes(tmp_path, auto_map={"AutoModelForCausalLM": "evil.Model"}, torch_dtype="bfloat16")
    assert torch.equal(load_model(tmp_path)(tokens)[0], model(tokens)[0])


def test_a_pruned_baseline_is_not_saved_and_a_compiled_one_is(saved, tmp_path):
    model, tokens = load_model(saved / "llama"), torch.randint(30, (1, 9))
    expected = model(tokens)[0]
    layer = model.model.model.layers[0]
    model.model.model.layers[0] = torch.compile(layer)
    model.save_pretrained(tmp_path)
    assert torch.equal(load_model(tmp_path)(tokens)[0], expected)
    prune.l1_unstructured(layer.mlp.up_proj, "weight", 0.5)
    with pytest.raises(ValueError, match="so it is pruned"):
        model.save_pretrained(tmp_path)


class Bomb:
    """Unpickling it writes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.bin", WEIGHTS])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_pickle_is_not_opened(saved, tmp_path, architecture, name):
    folder = tmp_path / "model"
    shutil.copytree(saved / architecture, folder)
    (folder / WEIGHTS).unlink()
    (folder / name).write_bytes(pickle.dumps(Bomb(tmp_path / "ran")))
    refused(folder, WEIGHTS)
    state = load_file(saved / architecture / WEIGHTS)
    torch.save(state, folder / name)  # nor one that does no harm
    refused(folder, WEIGHTS)
    assert not (tmp_path / "ran").exists()
    pickle.loads(pickle.dumps(Bomb(tmp_path / "ran"))).close()
    assert (tmp_path / "ran").exists()  # the bomb is one


@pytest.mark.parametrize("shard", ["../elsewhere/model.safetensors", "pytorch_model.bin", "shard.safetensors"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_an_index_of_shards_is_not_followed(saved, tmp_path, architecture, shard):
    folder = tmp_path / "model"
    shutil.copytree(saved / architecture, folder)
    shutil.copytree(saved / architecture, tmp_path / "elsewhere")
    (folder / WEIGHTS).rename(folder / "shard.safetensors")
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb(tmp_path / "ran")))
    names = load_file(saved / architecture / WEIGHTS)
    for index in ("model.safetensors.index.json", "pytorch_model.bin.index.json"):
        (folder / index).write_text(json.dumps({"metadata": {}, "weight_map": dict.fromkeys(names, shard)}))
    refused(folder, "has no model.safetensors")
    assert not (tmp_path / "ran").exists()


def test_other_files_beside_the_weights_are_not_read(saved, tmp_path):
    for architecture in ARCHITECTURES:
        folder = tmp_path / architecture
        shutil.copytree(saved / architecture, folder)
        for name in ("model.safetensors.index.json", "generation_config.json", "adapter_config.json",
                     "pytorch_model.bin", "tokenizer.json", "modeling_llama.py"):
            (folder / name).write_bytes(pickle.dumps(Bomb(tmp_path / "ran")))
        load_model(folder)
    assert not (tmp_path / "ran").exists()


def test_loading_a_folder_reaches_no_network(saved):
    """In a process of its own, so that libraries that ask once have not asked before; what they catch counts too."""
    code = """
import socket, sys
reached = []
def refuse(*arguments, **_):
    reached.append(arguments)
    raise OSError("no network here")
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = socket.create_connection = refuse
import torch
from caracal_min.zoo import load_model
for folder in sys.argv[1:]:
    load_model(folder)(torch.zeros(1, 3, dtype=torch.int64))
assert reached == [], reached
try:
    socket.create_connection(("localhost", 1))
except OSError:
    assert len(reached) == 1
"""
    folders = [saved / name for name in ARCHITECTURES]
    done = subprocess.run([sys.executable, "-c", code, *folders], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
