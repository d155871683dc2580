"""The still image of a figure, as the tests read it."""

import re
from urllib.parse import unquote
from xml.etree import ElementTree


def still_of(figure) -> str:
    """Return the SVG text of a figure's still; a browser shows nothing of one that is not well-formed."""
    data = re.search(r'src="data:image/svg\+xml,([^"]+)"', figure.to_html())[1]
    text = unquote(data).replace("'", '"')
    ElementTree.fromstring(text)
    return text
