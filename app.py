"""Starts vitviz: `python app.py`, then open the address it prints; `--help` lists the options."""

import gc

# what is imported stays; looking for garbage among it cost a fifth of the start. `build._warm_up` enables it
# again
gc.disable()

from vitviz.server.launch import App

app = App()
demo = app.demo  # what a Space, and `gradio app.py`, look for

if __name__ == "__main__":
    app.serve()
