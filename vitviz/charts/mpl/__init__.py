"""Figures for print: `plates` says what stands on one, `sheet` makes SVG, PDF and PNG of it by matplotlib."""
