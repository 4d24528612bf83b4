"""Turns matplotlib's SVG into an element of an HTML page, with ids of its own and a name for screen readers."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

SVG = "http://www.w3.org/2000/svg"
_LINK = "{http://www.w3.org/1999/xlink}href"
_CLASS = re.compile(r"\.(s\d+)(?={)")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")


def inline(svg: bytes, name: str, alt: str, prefix: str = "") -> str:
    """The drawing as an element of an HTML page.

    :param svg: A file of matplotlib's.
    :param name: In front of the id of its title.
    :param alt: What the drawing shows.
    :param prefix: In front of the ids and classes of its parts, as those of two figures are alike; by default ``name``.
        A drawing has thousands of them, so that a short one is worth having.
    """
    prefix = prefix or re.sub(r"[^\w-]", "-", name)
    root = ET.fromstring(svg)
    for metadata in root.findall(f"{{{SVG}}}metadata"):
        root.remove(metadata)
    for element in root.iter():
        element.tag = element.tag.removeprefix(f"{{{SVG}}}")
        if element.tag == "style":
            element.text = _CLASS.sub(rf".{prefix}-\1", element.text or "")
        for key, value in list(element.attrib.items()):
            if key in ("id", "class"):
                element.set(key, f"{prefix}-{value}")
            elif key == _LINK:
                del element.attrib[key]
                element.set("href", f"#{prefix}-{value[1:]}" if value.startswith("#") else value)
            else:
                element.set(key, _REFERENCE.sub(rf"url(#{prefix}-\1)", value))
    title = ET.Element("title", {"id": f"{name}-title"})
    title.text = alt
    root.insert(0, title)
    root.attrib.update({"role": "img", "aria-labelledby": f"{name}-title", "xmlns": SVG})
    root.attrib.pop("version", None)
    return ET.tostring(root, encoding="unicode", short_empty_elements=True)
