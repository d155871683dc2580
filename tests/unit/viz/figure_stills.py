"""The still image of a figure, as the tests read it."""

import base64
import re
from xml.etree import ElementTree


def still_of(figure) -> str:
    """Return the SVG text of a figure's still; a browser shows nothing of one that is not well-formed."""
    data = re.search(r'src="data:image/svg\+xml;base64,([^"]+)"', figure.to_html())[1]
    text = base64.b64decode(data).decode()
    ElementTree.fromstring(text)
    return text
