"""Serve the browser's scripts: ES modules that import each other by their paths in the package.

The address holds a hash of all modules, so that a browser can cache them indefinitely and never mixes two
versions. The text module of each language is generated here from the catalogues of all packages.
"""

import gzip
import hashlib
import json
from functools import cache
from importlib.resources import files

from vitviz.errors import Unknown, quoted
from vitviz.server import i18n
from vitviz.views import scripts

_ROOMS = (*scripts.ROOMS, "server")
script_of = scripts.drawing_module


def module_source(path: str) -> str:
    """Return a module's text. Raises Unknown for any other path."""
    text = _sources().get(path)
    if text is None:
        raise Unknown(f"There is no script {quoted(path)}.")
    return text


@cache
def modules_base() -> str:
    """Return the modules' base address, relative to the page."""
    whole = json.dumps(sorted(_sources().items())).encode()
    return f"gradio_api/vitviz/modules/{hashlib.blake2b(whole, digest_size=8).hexdigest()}/"


@cache
def plotly_script() -> bytes:
    """Return the plotly.js of the installed package `plotly`, gzipped: 1.5 MB instead of 4.8."""
    return gzip.compress((files("plotly") / "package_data" / "plotly.min.js").read_bytes())


def loader_script(*paths: str, then: str) -> str:
    """Return JavaScript that loads modules and passes them to `then`, an expression."""
    wanted = ", ".join(f"import(new URL('{modules_base()}{path}', document.baseURI).href)" for path in paths)
    return f"Promise.all([{wanted}]).then({then}).catch((error) => console.error(error));"


def style_sheets() -> str:
    """Return all style sheets: of the frontend, the views and the page."""
    return "\n".join(scripts.module_texts(".css", _ROOMS).values())


@cache
def _sources() -> dict[str, str]:
    """Return the source text of every module by path, including generated ones and one per language."""
    texts = {tag: json.dumps(dict(i18n.translations(tag)), ensure_ascii=False) for tag in i18n.NAMES}
    said = {f"server/i18n/{tag}.js": f"export default {text};\n" for tag, text in texts.items()}
    return {**scripts.module_texts(".js", _ROOMS), **scripts.generated_modules(), **said}
