"""The rooms of the package: imports run one way, folders are light to enter, no module is long."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import caracal_book
import caracal_min

PACKAGE = Path(caracal_min.__file__).parent
BOOK = Path(caracal_book.__file__).parent
HEAVY = ("datasets", "jsonschema", "lm_eval", "matplotlib", "tiktoken", "transformers", "tyro")

# Every room may import those before it: sequences, layers, model, and what is done with it.
ORDER = ["version", "extras", "lazy", "files", "progress", "allocator", "config", "choices", "precision", "record",
         "data", "direct_kernel", "frames", "spectral", "convolution", "attention", "online", "relaxed", "partitioned",
         "projections", "packing", "caches", "modules",
         "loss", "language_model", "generation", "text", "weights", "locate", "model", "minimal",
         "quantized", "export", "hf",
         "__init__", "zoo", "evaluation", "benchmark", "training", "commands", "__main__"]
ORDER_OF_THE_BOOK = ["fineweb", "records", "runs", "measured", "ngrams", "rivals", "benchmark", "web_export", "numbers",
                     "experiments", "viz", "exercises", "rules", "commands", "__main__", "__init__"]
PLUMBING = {"__init__", "__main__", "allocator", "extras", "files", "lazy", "progress", "version"}
# What may import only these, although more stands before it.
ONLY = {"config": set(), "choices": {"config"}, "data": {"extras", "files", "progress"}, "minimal": set(),
        "record": {"extras", "files", "version"}}
# What only these import.
IMPORTED_BY = {"hf": {"evaluation", "commands"}}


def imports_of(path: Path, package: Path) -> set[tuple[str, ...]]:
    """The modules of the package that a file imports anywhere in it, as paths below the package."""
    here, found = path.relative_to(package).with_suffix("").parts, set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = here[:len(here) - node.level] + tuple((node.module or "").split(".") if node.module else ())
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == package.name:
            base = tuple(node.module.split(".")[1:])
        elif isinstance(node, ast.Import):
            found |= {tuple(a.name.split(".")[1:]) or ("__init__",) for a in node.names
                      if a.name.split(".")[0] == package.name}
            continue
        else:
            continue
        for alias in node.names:  # the name may be a module itself
            whole = (*base, alias.name)
            target = whole if exists(package, whole) else base
            found.add(target or ("__init__",))
    return found


def exists(package: Path, parts: tuple[str, ...]) -> bool:
    return package.joinpath(*parts).is_dir() or package.joinpath(*parts).with_suffix(".py").is_file()


def faults(package: Path, order: list[str]) -> list[str]:
    """Arrows against the order, and circles between the modules of one folder."""
    wrong, inside = [], {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        room = parts[0]
        if room not in order:
            wrong.append(f"{room} has no place in the order")
            continue
        for target in imports_of(path, package):
            if target[0] != room:
                allowed = ONLY.get(room, set(order[:order.index(room)]))
                if target[0] not in allowed or room not in IMPORTED_BY.get(target[0], {room}):
                    wrong.append(f"{'/'.join(parts)} imports {'/'.join(target)}")
            elif parts[-1] != "__init__":
                inside.setdefault(parts, set()).add(target)
    for start in inside:
        seen, todo = set(), list(inside[start])
        while todo:
            at = todo.pop()
            if at == start:
                wrong.append(f"{'/'.join(start)} imports itself in a circle")
                break
            if at not in seen:
                seen.add(at)
                todo += inside.get(at, ())
    return wrong


def test_imports_run_one_way():
    assert faults(PACKAGE, ORDER) == faults(BOOK, ORDER_OF_THE_BOOK) == []


def test_the_model_knows_nothing_of_the_book():
    code = ("import pkgutil, sys, caracal_min, caracal_min.commands\n"
            "print([name for name in sys.modules if name.startswith('caracal_book')])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    naming = [path.name for path in PACKAGE.rglob("*.py")
              if re.search(r"(import|from) caracal_book", path.read_text(encoding="utf-8"))]
    assert naming == []


@pytest.mark.parametrize("file, text, fault", [
    ("convolution.py", "from .model import Caracal", "convolution imports model"),
    ("data/shards.py", "from ..model import Caracal", "data/shards imports model"),
    ("data/documents.py", "def f():\n    from .corpus import load_corpus", "data/documents imports itself in a circle"),
    ("caches.py", "import caracal_min.training.recipe", "caches imports training/recipe"),
    ("generation.py", "if TYPE_CHECKING:\n    from .model import Caracal", "generation imports model"),
    ("training/trained.py", "from ..hf import CaracalForCausalLM", "training/trained imports hf"),
    ("helpers.py", "", "helpers has no place in the order"),
])
def test_an_arrow_against_the_order_is_found(tmp_path, file, text, fault):
    package = tmp_path / "caracal_min"
    for path in PACKAGE.rglob("*.py"):
        copy = package / path.relative_to(PACKAGE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    with open(package / file, "a") as target:
        target.write(f"\n{text}\n")
    assert fault in faults(package, ORDER)


@pytest.mark.parametrize("file, text, fault", [
    ("viz/clock.py", "from caracal_book.exercises import wrap_around", "viz/clock imports exercises/wrap_around"),
    ("runs/__init__.py", "from ..experiments import race", "runs/__init__ imports experiments/race"),
])
def test_an_arrow_against_the_order_of_the_book_is_found(tmp_path, file, text, fault):
    (tmp_path / "caracal_book").mkdir()
    for path in (BOOK / file, BOOK / "exercises" / "wrap_around.py", BOOK / "experiments" / "race.py"):
        copy = tmp_path / "caracal_book" / path.relative_to(BOOK)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    with open(tmp_path / "caracal_book" / file, "a") as target:
        target.write(f"\n{text}\n")
    assert fault in faults(tmp_path / "caracal_book", ORDER_OF_THE_BOOK)


def test_the_order_of_reading_names_every_room_once():
    listed = re.findall(r"^    (\w+)  ", caracal_min.__doc__, re.MULTILINE)
    assert sorted(listed) == sorted(set(ORDER) - PLUMBING)
    listed = re.findall(r"^    (\w+)  ", caracal_book.__doc__, re.MULTILINE)
    assert sorted(listed) == sorted(set(ORDER_OF_THE_BOOK) - {"__init__", "__main__"})
    readme = (PACKAGE.parent / "README.md").read_text(encoding="utf-8")
    tree = re.search(r"## What is where\n.*?```\n(.*?)```", readme, re.DOTALL)[1]
    ours, books = tree.split("book/caracal_book/")
    assert rooms_named(ours) == set(ORDER) - {"__init__"}
    assert rooms_named(books) == set(ORDER_OF_THE_BOOK) - {"__init__", "__main__"}


def rooms_named(tree: str) -> set[str]:
    return set(re.findall(r"\w+", " ".join(re.findall(r"^  (\w+/?(?:  ?\w+/?)*)  ", tree, re.MULTILINE))))


def test_folders_say_what_they_hold():
    rooms = ("benchmark", "commands", "data", "evaluation", "training", "zoo")
    for folder in (*(PACKAGE / room for room in rooms), BOOK / "commands", BOOK / "experiments", BOOK / "numbers",
                   BOOK / "rules"):
        said = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8")))
        missing = [path.stem for path in folder.glob("*.py")
                   if path.stem not in ("__init__", "__main__") and path.stem not in (said or "")]
        assert missing == [], folder


def test_a_folder_imports_nothing_heavy():
    rooms = [f"caracal_min.{path.parent.name}" for path in PACKAGE.glob("*/__init__.py")]
    code = f"import sys, caracal_min, {', '.join(rooms)}; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_module_is_long():
    long = {path.name: lines for package in (PACKAGE, BOOK) for path in package.rglob("*.py")
            if path.relative_to(package).parts[0] not in ("viz", "exercises")
            and (lines := len(path.read_text(encoding="utf-8").splitlines())) > 300}
    assert long == {}
