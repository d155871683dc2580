"""What the search quotes of a built page: its words, without code, figures and output."""

from bookext.search import words

PAGE = """<html><body><nav>Chapters</nav><article class="bd-article"><section id="first"><h1>The <em>first</em>
<a class="headerlink">#</a></h1><p>Words of it,&nbsp;<code>a_name</code>.</p><pre>code()</pre>
<div class="cell_output docutils"><div class="output">3.1</div></div>
<div class="caracal-figure"><p>Drag a bar.</p><script>let x = "</p>";</script></div>
<section id="second"><h2>The second</h2>
<ul><li>one</li>
<li>two</li></ul>
<p>A sum <math><mi>v</mi><annotation>v_j</annotation></math>.</p></section></section></article><p>outside</p></body>"""


def test_words_of_a_page():
    assert words(PAGE) == "The first Words of it, a_name. The second one two A sum v."


def test_a_page_without_an_article_has_none():
    assert words("<p>outside</p>") == ""
