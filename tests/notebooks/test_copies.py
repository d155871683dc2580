"""A class that a later chapter copies from an earlier one is the same, letter for letter."""

import ast

import pytest

CHAPTER_8 = "08_whole_model"


def defined(notebook):
    """Return the functions and classes of a notebook's cells as text, by name."""
    return {node.name: ast.unparse(node) for cell in notebook.cells
            if cell.cell_type == "code"
            for node in ast.parse(cell.source).body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


@pytest.mark.parametrize("chapter, names", [
    ("06_multi_head_fourier", ("causal_conv", "PlainFourier")),
    ("07_window_and_hybrid", ("window_mask", "attend", "cut", "chunked_attention", "WindowAttention"))])
def test_chapter_8_copies_the_mixers_of_the_reader(notebooks, chapter, names):
    there, here = defined(notebooks[chapter]), defined(notebooks[CHAPTER_8])
    assert {name: here.get(name) for name in names} == {name: there[name] for name in names}
