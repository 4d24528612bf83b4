"""Turns matplotlib's SVG into an element of an HTML page, with ids of its own and a name for screen readers."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

SVG = "http://www.w3.org/2000/svg"
_LINK = "{http://www.w3.org/1999/xlink}href"
_REFERENCE = re.compile(r"url\(#([^)]+)\)")


def inline(svg: bytes, prefix: str, alt: str) -> str:
    """The drawing as an element of an HTML page.

    :param svg: A file of matplotlib's.
    :param prefix: Put in front of every id, as the ids of two figures are alike.
    :param alt: What the drawing shows.
    """
    root = ET.fromstring(svg)
    for metadata in root.findall(f"{{{SVG}}}metadata"):
        root.remove(metadata)
    for element in root.iter():
        element.tag = element.tag.removeprefix(f"{{{SVG}}}")
        for key, value in list(element.attrib.items()):
            if key == "id":
                element.set(key, f"{prefix}-{value}")
            elif key == _LINK:
                del element.attrib[key]
                element.set("href", f"#{prefix}-{value[1:]}" if value.startswith("#") else value)
            else:
                element.set(key, _REFERENCE.sub(rf"url(#{prefix}-\1)", value))
    title = ET.Element("title", {"id": f"{prefix}-title"})
    title.text = alt
    root.insert(0, title)
    root.attrib.update({"role": "img", "aria-labelledby": f"{prefix}-title", "xmlns": SVG})
    root.attrib.pop("version", None)
    return ET.tostring(root, encoding="unicode", short_empty_elements=True)
