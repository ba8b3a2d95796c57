"""Detects raw values and keys (NaN, undefined, errors.x) in any text of the page and in downloads.

A script runs in the page before all others. It checks texts of elements, tooltips, fields and canvases (also
of PNG exports) as they appear, and reports an error on the console, which `open_page` collects.
"""

from __future__ import annotations

import re
from pathlib import Path

_LETTER = "A-Za-z0-9_"
_KEYS = "common|upload_text|errors|label|status|image|file|blocks|login|number|plot|slider"  # Gradio's own
RAW_VALUE = (
    f"(?<![{_LETTER}.'’])(?:NaN|nan|inf|Infinity|undefined|null)(?![{_LETTER}.])|"
    f"\\[object|(?<![{_LETTER}./])(?:{_KEYS})\\.(?!(?:png|jpe?g|webp|txt|svg|csv)\\b)[a-z_]{{2,}}(?![{_LETTER}(])"
)
_SCRIPT = """(() => {
  const nothing = new RegExp(String.raw`RAW_VALUE`, 'u');
  const heard = ['title', 'aria-label', 'aria-valuetext', 'aria-description', 'placeholder', 'alt', 'label'];
  const told = new Set();
  const look = (text, where) => {
    if (!nothing.test(text) || told.has(text)) return;
    told.add(text);
    console.error(`shown: "${String(text).slice(0, 200)}" in ${where}`);
  };
  const name = (node) =>
    node ? `${node.tagName} ${node.className} #${node.closest('[id]')?.id}` : 'what went at once';
  const see = (node) => {
    if (node.nodeType === Node.TEXT_NODE) {
      if (!/^(SCRIPT|STYLE)$/.test(node.parentElement?.tagName)) look(node.data, name(node.parentElement));
    } else if (node.nodeType === Node.ELEMENT_NODE) {
      for (const one of heard) look(node.getAttribute(one) ?? '', `${one} of ${name(node)}`);
      node.childNodes.forEach(see);
    }
  };
  new MutationObserver((records) => {
    for (const { type, target, addedNodes, attributeName } of records)
      if (type === 'childList') addedNodes.forEach(see);
      else if (type === 'characterData') see(target);
      else look(target.getAttribute(attributeName) ?? '', `${attributeName} of ${name(target)}`);
  }).observe(document, {
    subtree: true, childList: true, characterData: true, attributes: true, attributeFilter: heard,
  });
  for (const kind of [HTMLInputElement, HTMLTextAreaElement]) {
    const { get, set } = Object.getOwnPropertyDescriptor(kind.prototype, 'value');
    const spied = function (value) { look(value, `the value of ${name(this)}`); set.call(this, value); };
    Object.defineProperty(kind.prototype, 'value', { get, set: spied, configurable: true });
  }
  for (const drawn of ['fillText', 'strokeText']) {
    const own = CanvasRenderingContext2D.prototype[drawn];
    CanvasRenderingContext2D.prototype[drawn] = function (text, ...at) {
      look(text, `a drawing in ${name(this.canvas)}`);
      return own.call(this, text, ...at);
    };
  }
})()"""
SCRIPT = _SCRIPT.replace("RAW_VALUE", RAW_VALUE)


def raw_values_in(download) -> list[str]:
    """Return the raw values in the name of a download and, in a text file, in its content."""
    texts = [download.suggested_filename]
    if texts[0].endswith((".svg", ".txt", ".md")):
        content = Path(download.path()).read_text(encoding="utf-8")
        texts += re.sub("<[^>]*>", "", content).splitlines()  # image data in attributes may match by chance
    return [f"taken home: {text[:200]}" for text in texts if re.search(RAW_VALUE, text)]
