"""What a page says beside its text: a chapter's number, ways on, a description, and what the theme leaves nameless.

The cover's link in the sidebar is a landmark by book/_templates/navbar-logo.html; colours are in book.css.
"""

import re

from caracal_book.rules.cells import heading_of, question_of

DESCRIPTION = ("A language model built on polynomial multiplication, taken apart and put together: interactive "
               "figures, code that runs on a laptop, and what the Caracal paper says, checked.")
# What a body holds and what stands in its place.
CHANGES = [(re.compile(pattern, re.DOTALL), instead) for pattern, instead in (
    (r' role="doc-biblioentry"', ' role="listitem"'),
    (r'<div class="pst-scrollable-table-container"', r'\g<0> tabindex="0" role="group" aria-label="Table"'),
    # A browser may break a line between a formula and the full stop that follows it.
    (r'[(\[‘“]*<span class="math [^>]*>(?:(?!</math>).)*</math></span>[.,;:?!)\]’”…]*',
     r'<span class="keep-together">\g<0></span>'),
    (r'(href="[./book]*claims\.html)("[^>]*>(?:<[^>]*>)*[Cc]laim\s+(\d+)<)', r"\1#ledger-\3\2"))]
_CODE = re.compile(r'(?<=<div class="highlight"><pre>)(<span></span>)?(.*?)(?=</pre>)', re.DOTALL)
_LINE = re.compile(r"^( *)[^\n]+", re.MULTILINE)
_EXERCISES = re.compile(r'<section id="exercises">\s*<h2>.*?</h2>')
_FOLD = re.compile(r'(?<=>)([^<>]+)</a><details[^>]*><summary')


def setup(app):
    app.connect("html-page-context", finish, priority=900)


def finish(app, pagename, templatename, context, doctree):
    """Name the folds of the sidebar, let keys scroll tables, link claims to their rows and exercises to solutions."""
    stem, body = pagename.removeprefix("notebooks/"), context.get("body", "")
    for pattern, instead in CHANGES:
        body = pattern.sub(instead, body)
    # What does not fit on a phone is then indented under its line: a comment seems not to head the next one.
    body = _CODE.sub(lambda code: _LINE.sub(_in_a_span, code[2]), body)
    context["description"] = DESCRIPTION
    if stem in app.notebooks:
        context["description"] = question_of(app.notebooks[stem])[1]
        body = body.replace("<h1>", f'<h1><span class="chapter-number">{heading_of(stem)} </span>', 1)
        body = _EXERCISES.sub(rf'\g<0><p class="to-solutions"><a href="../book/solutions/{stem}.html">'
                              "Solutions to these exercises</a></p>", body)
    context["body"] = body
    if write := context.get("generate_toctree_html"):
        context["generate_toctree_html"] = lambda *args, **kwargs: _FOLD.sub(
            r'\g<0> aria-label="Pages below \1"', str(write(*args, **kwargs)))


def _in_a_span(line):
    indent = min(len(line[1]), 12)  # a header of a printed table may begin beyond the edge of a phone
    return f'<span class="line" style="--indent: {indent}ch">{line[0]}</span>'
