"""The image editor's commands and history; the text of edits is what Python reads."""

import pytest

from vitviz.traces.image_edits import ImageEdits

COMMANDS, HISTORY = "server/page/editor_commands.js", "server/page/editor_history.js"
CUT = {"rect": [2, 4, 10, 6], "outline": [], "pasted": False}
FREE = {"rect": [2, 4, 5, 7], "outline": [[2, 4], [6, 4], [6, 10]], "pasted": False}


@pytest.mark.processes
@pytest.mark.parametrize(
    "expression, expected",
    [
        ("stroke('', 'brush.mean', 24, [[10, 20], [15, 23]])", "brush.mean_24.10.20.5.3"),
        ("adjust('hue_5 erase_9.4.4', 'hue', -7)", "hue_-7 erase_9.4.4"),
        ("adjust('hue_5 erase_9.4.4', 'hue', 0)", "erase_9.4.4"),
        # edits before a paste belong to the image that it left
        ("adjust('hue_5 onto.cat_0.0.4.4.0.0', 'hue', 6)", "hue_5 onto.cat_0.0.4.4.0.0 hue_6"),
        ("transform('', cut, 'move', [3, -1]).edits", "move_2.4.10.6.3.-1"),
        ("transform('', cut, 'copy', [0, 0], [-1, 1]).edits", "copy_2.4.10.6.0.0.-10.6"),
        # twice as wide: the centre stays
        ("transform('', cut, 'move', [0, 0], [2, 1]).edits", "move_2.4.10.6.-5.0.20.6"),
        ("transform('', free, 'move', [1, 1]).edits", "move_2.4.5.7.1.1.5.7.2.4.4.0.0.6"),
        (
            "transform('onto.cat_2.4.10.6.7.0.10.6', {...cut, pasted: true}, 'move', [3, 0], [-1, 1]).edits",
            "onto.cat_2.4.10.6.10.0.-10.6",
        ),
    ],
)
def test_editor_commands_match_python_strokes(node, expression, expected):
    found = node(COMMANDS, expression, cut=CUT, free=FREE)
    assert found == expected == ImageEdits.parse(found).text()


@pytest.mark.processes
def test_regions_lie_within_the_image(node):
    found = node(
        COMMANDS,
        "[rectangle([9, -3], [4, 5], [8, 8]), rectangle([9, 9], [12, 12], [8, 8]),"
        " enclosed([[1, 1], [5, 1], [5, 12]], [8, 8]), enclosed([[1, 1], [2, 2]], [8, 8]),"
        " transform('', free, 'move', [1, 0], [-1, 1]).region, transform('', free, 'move', [0, 0]),"
        " fitted(cut, [20, 20], [40, 10])]",
        cut=CUT,
        free=FREE,
    )
    plain = {"outline": [], "pasted": False}
    assert found == [
        {"rect": [4, 0, 4, 5], **plain},
        None,
        {"rect": [1, 1, 5, 7], "outline": [[1, 1], [5, 1], [5, 7]], "pasted": False},
        None,
        {"rect": [3, 4, 5, 7], "outline": [[7, 4], [3, 4], [3, 10]], "pasted": False},
        None,
        {"shift": [7, -3], "by": [0.5, 0.5]},
    ]


@pytest.mark.processes
def test_rejected_step_is_reverted_and_undone_steps_return(node):
    script = """(() => {
      const asked = [];
      const history = editHistory((edits) => asked.push(edits));
      for (const edits of ['a', 'a', 'a b', 'a b c']) history.paint(edits);
      history.refuse('a b');
      const moved = [history.undo(), history.undo(), history.undo(), history.redo()];
      history.follow('x');
      return [asked, moved, history.now(), history.undoes(), history.redoes()];
    })()"""
    asked = ["a", "a b", "a b c", "a", "", "a"]
    assert node(HISTORY, script) == [asked, [True, True, False, True], "x", True, True]
