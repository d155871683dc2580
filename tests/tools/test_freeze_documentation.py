"""The text of the chapters, and the tool that wrote it."""

import platform
import sys

import freeze_documentation
import pytest

from caracal_min.data.documents import DOCUMENTED, EMBEDDED

LONG = ("What this module is for. " * 10).strip()
CODE = f"""'{LONG}'
class A:
    'Of A.'
    def a(self): 'Of a.'
def b(): 'Of b.'
raise SystemExit
"""


def test_docstrings_come_in_the_order_of_the_source_and_nothing_runs(tmp_path):
    for name, text in {"json.py": CODE, "abc.py": "'Too short.'", "mine.py": f"'{LONG}'", "ast.py": "not Python",
                       "email/mime.py": f"'{LONG}'", "email/tests/mime.py": f"'{LONG}'"}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert list(freeze_documentation.docstrings(tmp_path)) == [LONG, "\n\n".join((LONG, "Of A.", "Of b.", "Of a."))]


def test_the_topics_are_those_of_the_language_reference():
    texts = list(freeze_documentation.topics())
    assert len(texts) > 50 and any(text.startswith('The "assert" statement') for text in texts)


@pytest.mark.skipif(platform.python_version() != DOCUMENTED, reason=f"the text is of Python {DOCUMENTED}")
@pytest.mark.skipif(sys.platform != "linux", reason="another system has other modules")
def test_the_frozen_text_is_what_the_tool_writes(capsys):
    assert freeze_documentation.main(["--check"]) == 0
    assert "505 documents" in capsys.readouterr().out


def test_another_text_is_found_and_left_alone(monkeypatch, capsys):
    before = EMBEDDED.read_bytes()
    monkeypatch.setattr(freeze_documentation, "topics", lambda: iter(["another text"]))
    assert freeze_documentation.main(["--check"]) == 1
    assert "is not the documentation of this Python" in capsys.readouterr().out
    assert EMBEDDED.read_bytes() == before
