"""What the search reads of a built page: its words, in the section or the entry that a reader is led to."""

import pytest
from bookext.search import kind_of, read_page

PAGE = """<html><body><nav>Chapters</nav><article class="bd-article">
<section id="first"><h1><span class="chapter-number">Chapter 4 </span>The <em>first</em><a class="headerlink">#</a></h1>
<p>Words<br>of it,&nbsp;<code>a_name</code>.</p><pre>code()</pre>
<div class="caracal-figure"><p>Drag a bar.</p><script>let x = "</p>";</script></div>
<section id="second"><h2>The second</h2><ul><li>one</li><li>two</li></ul>
<p>A sum <math><mi>v</mi><annotation>v_j</annotation></math>.</p></section>
<p>After it.</p><img src="x.png" alt="a picture"><p>The end.</p></section></article><p>outside</p></body></html>"""

API = """<article class="bd-article"><section id="room"><h1>Layers</h1>
<dl class="py class"><dt class="sig sig-object py" id="room.Layer"><span>class</span> Layer(<em>d</em>)</dt>
<dd><p>A layer.</p><dl class="py method"><dt class="sig sig-object py" id="room.Layer.forward">forward(x)</dt>
<dd><p>Mixes.</p><dl class="field-list"><dt>Parameters</dt><dd><p>x: tokens</p></dd></dl></dd></dl></dd></dl>
<dl class="py function"><dt class="sig sig-object py" id="room.mix">mix()</dt><dd><p>Also mixes.</p></dd></dl>
</section></article>"""


def test_words_belong_to_their_section():
    assert read_page(PAGE) == [("first", "The first", "Words of it, a_name. After it. The end."),
                               ("second", "The second", "one two A sum v.")]


def test_an_entry_of_the_api_is_a_section():
    assert read_page(API) == [("room", "Layers", ""), ("room.Layer", "room.Layer", "A layer."),
                              ("room.Layer.forward", "room.Layer.forward", "Mixes. Parameters x: tokens"),
                              ("room.mix", "room.mix", "Also mixes.")]


def test_a_row_of_the_ledger_is_a_section():
    table = '<table><tr><th>says</th></tr><tr id="ledger-8"><td>8</td><td>It holds.</td></tr></table>'
    page = f'<article class="bd-article"><section id="claims"><h1>Claims</h1>{table}<p>End.</p></section></article>'
    assert read_page(page) == [("claims", "Claims", "says End."), ("ledger-8", "Claim 8", "8 It holds.")]


@pytest.mark.parametrize("name, kind", [("notebooks/01_mixing_tokens", 0), ("index", 1), ("book/claims", 1),
                                        ("book/solutions/01_mixing_tokens", 2), ("book/solutions/index", 2),
                                        ("book/api", 3), ("book/api/model", 3)])
def test_chapters_come_before_symbols(name, kind):
    assert kind_of(name) == kind
