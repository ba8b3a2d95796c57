"""The example notebook runs from its first cell to its last, and shows what it says."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.processes  # a kernel
DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def ran():
    notebook = nbformat.read(DOCS / "notebook.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "kept without outputs: they are megabytes"
    where = {"metadata": {"path": str(DOCS.parent)}}
    return NotebookClient(notebook, timeout=300, kernel_name="python3", resources=where).execute()


def shown(notebook, begins):
    """The HTML of the cell whose last line begins so."""
    (cell,) = [
        cell
        for cell in notebook.cells
        if cell.cell_type == "code" and cell.source.splitlines()[-1].startswith(begins)
    ]
    return cell.outputs[-1]["data"]["text/html"]


def test_it_runs_and_every_result_shows_itself(ran):
    for begins, said in {
        "inspector": "Inspector: vitviz-tiny",
        "trace": "Trace of an image",
        "vitviz.embedding_filters": "Embedding filters",
        "vitviz.position_similarity": "Similarity of position embeddings",
        "distance": "Attention distance",
        "vitviz.overlay": "Overlay",
        "rollout": "discard 0.9",
        "account": "the account of a logit",
        "inspector.trace": "heads=",
        "survey": "means over 4 images",
    }.items():
        cells = [
            cell
            for cell in ran.cells
            if cell.cell_type == "code" and cell.source.splitlines()[-1].split("(")[0] == begins
        ]
        assert any(said in str(cell.outputs[-1]["data"].get("text/html")) for cell in cells), begins


def test_the_canvas_stands_in_its_cell(ran):
    html = shown(ran, "vitviz.show")
    assert html.startswith("<iframe ") and "cell/explorer/layer?layer=8" in html


def test_tables_are_pandas(ran):
    assert "<table" in shown(ran, "account.frame()") and "<table" in shown(ran, "survey.frame()")
