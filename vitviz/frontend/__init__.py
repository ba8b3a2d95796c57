"""ES modules, a style sheet and translations shared by all views; `vitviz.server.api.modules` serves them.

No data of an image, a checkpoint or a user enters a script. A view receives its state as its component's
`value` and its numbers as bytes, and writes text only with `textContent`.
"""
