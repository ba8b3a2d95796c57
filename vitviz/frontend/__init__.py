"""What the browser draws with: ES modules, a style sheet and their words; `vitviz.server.api.modules` hands
them out.

Nothing of a picture, a checkpoint or a user ever enters a script: a view gets its state as its component's
`value`, its numbers as bytes, and writes text with `textContent` alone.
"""
