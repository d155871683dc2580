"""The diagram of a model: drawn from the configuration, in the names of the model's own modules."""

import ast
import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
import torch

from caracal_book.rivals import VARIANTS
from caracal_book.rules.cells import number_of
from caracal_book.viz.model_diagram import model_diagram
from caracal_book.viz.where_we_stand import where_we_stand
from caracal_min import Caracal
from caracal_min.config import PRESETS
from caracal_min.minimal import Minimal

SVG = "{http://www.w3.org/2000/svg}"
CONFIGS = PRESETS | {f"nano, {name}": replace(PRESETS["nano"], **changes) for name, changes in VARIANTS.items()}


def elements(config, kind):
    return list(ElementTree.fromstring(model_diagram(config).svg).iter(SVG + kind))


def names_in(config):
    """Everything that is written in a typewriter face, with repetitions."""
    return [part.text for part in elements(config, "tspan") if part.get("font-family") == "monospace"]


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("kind", [Caracal, Minimal])
def test_boxes_are_the_modules_of_the_model(name, kind):
    with torch.device("meta"):
        model = kind(CONFIGS[name])
    inside_mlp = {name for name, _ in model.blocks[0].mlp.named_modules()} - {""}
    modules = {path.split(".")[-1] for path, _ in model.named_modules() if ".mlp." not in path}
    drawn = set(names_in(CONFIGS[name]))
    assert drawn == {part for part in modules if part and not part.isdigit()} - {"blocks"}
    assert inside_mlp == {"to_value", "to_gate", "to_out"}  # the one thing that the picture leaves out


@pytest.mark.parametrize("name", CONFIGS)
def test_blocks_stand_in_their_order(name):
    config = CONFIGS[name]
    words = [text.text for text in elements(config, "text")]
    drawn = [(i, kind) for i, kind in zip(words, words[1:], strict=False) if kind in ("F", "A")]
    assert drawn == [(str(i), "A" if i in config.attention_layers else "F") for i in range(config.n_layers)]
    assert ("mixer A: window attention" in words) == bool(config.attention_layers)
    assert (f"{config.window_size} tokens" in words) == bool(config.attention_layers)
    assert ("SiLU" in words) == (config.gate == "two_stage")
    assert f"{config.n_layers} blocks, D = {config.d_model}, H = {config.n_heads}" in words[0]


def test_chapter_8_says_in_words_what_it_draws(root):
    cells = json.loads((root / "notebooks" / "08_whole_model.ipynb").read_text(encoding="utf-8"))["cells"]
    (cell,) = (cell for cell in cells if "".join(cell["source"]).startswith("model_diagram("))
    drawing = model_diagram(PRESETS[re.search(r'PRESETS\["(\w+)"\]', "".join(cell["source"]))[1]])
    assert cell["metadata"]["mystnb"]["image"]["alt"] == drawing.alt


def test_a_chapter_says_in_words_where_it_stands(root):
    for path in sorted((root / "notebooks").glob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if found := re.search(r"^viz\.where_we_stand\((.*)\)$", "".join(cell["source"]), re.MULTILINE):
                assert found[1].strip('"') == number_of(path.stem), path.name
                drawing = where_we_stand(ast.literal_eval(found[1]))
                assert cell["metadata"]["mystnb"]["image"]["alt"] == drawing.alt, path.name
