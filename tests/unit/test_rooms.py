"""The house stays small enough to be read whole: size, comments, refusals, imports one way."""

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path, PurePosixPath
from tokenize import COMMENT, generate_tokens

import caracal_min

FILES, FOLDERS, LINES, CODE, NODES, NODES_OF_A_MODULE = 32, 3, 6_500, 3_700, 36_000, 3_500
NODES_PER_LINE, COMMENTS_PER_100_LINES, REFUSING_PER_DOING = 10, 10, 0.08
HOUSE = Path(caracal_min.__file__).parent
TEXTS = {path.relative_to(HOUSE).as_posix(): path.read_text(encoding="utf-8") for path in HOUSE.rglob("*.py")}
TREES = {name: ast.parse(text) for name, text in TEXTS.items()}


def refuses(node):  # whether a statement raises and does nothing else
    inside = [*node.body, *node.orelse] if isinstance(node, ast.If | ast.For) else []
    return isinstance(node, ast.Raise | ast.Assert) or bool(inside) and all(map(refuses, inside))


def count(name):  # the nodes, the lines of code, those that refuse, and the comments of three words or more
    nodes, lines = [*ast.walk(TREES[name])], enumerate(TEXTS[name].splitlines(), 1)
    strings = (n for n in nodes if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))
    said, refusing = ({i for n in some for i in range(n.lineno, n.end_lineno + 1)}
                      for some in (strings, filter(refuses, nodes)))
    code = {i for i, line in lines if line.strip()[:1] not in ("", "#")} - said
    comments = [t.string for t in generate_tokens(iter(TEXTS[name].splitlines(True)).__next__) if t.type == COMMENT]
    return len(nodes), len(code), len(code & refusing), sum(len(text.split()) > 3 for text in comments)


def test_the_house_is_small_and_explained():
    counts = {name: count(name) for name in TREES}
    nodes, code, refusing, comments = map(sum, zip(*counts.values(), strict=True))
    assert nodes <= NODES and max(counts.values())[0] <= NODES_OF_A_MODULE, counts
    assert code <= CODE and sum(text.count("\n") for text in TEXTS.values()) <= LINES
    assert len(TREES) <= FILES and len({Path(name).parent for name in TREES} - {Path()}) <= FOLDERS
    dense = counts["minimal.py"]  # a formula of the paper a line
    assert nodes - dense[0] <= NODES_PER_LINE * (code - dense[1])
    assert 100 * comments >= COMMENTS_PER_100_LINES * code and refusing <= REFUSING_PER_DOING * (code - refusing)


def test_imports_run_one_way():
    arrows = {name: set() for name in TREES}
    for name, node in ((name, n) for name, tree in TREES.items() for n in ast.walk(tree)):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = PurePosixPath(name).parents[node.level - 1] / (node.module or "").replace(".", "/")
            for alias in node.names:  # a module, or a name of one
                files = (f"{base / alias.name}.py", f"{base}.py", f"{base / '__init__.py'}")
                arrows[name].update([file for file in files if file in TREES][:1])
    TopologicalSorter(arrows).prepare()  # CycleError names the circle


def test_no_private_name_and_no_book():
    names = r"\b(?:torch|F|nn|np|dist|forward_ad|safetensors|tokenizers|transformers)[\w.]*\._[A-Za-z]\w*|\._version"
    assert {name: found for name, text in TEXTS.items() if (found := re.findall(f"{names}|caracal_book", text))} == {}
