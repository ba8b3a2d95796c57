"""Figures for print: `spec` describes a figure as data, `page` renders SVG, PDF and PNG with matplotlib."""
