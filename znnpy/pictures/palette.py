"""Colours of charts, for light and dark pages."""

# On a dark page colours are lighter, to stand out as much.
PALETTE = {
    "blue": ("#2a78d6", "#3987e5"),
    "cyan": ("#12a5c9", "#22bfe0"),
    "green": ("#1baf7a", "#199e70"),
    "yellow": ("#d69200", "#c98500"),
    "violet": ("#4a3aa7", "#9085e9"),
    "orange": ("#eb6834", "#d95926"),
    "magenta": ("#d9628f", "#d55181"),
    "red": ("#e34948", "#e66767"),
    "brown": ("#9a6a3c", "#b58657"),
    "olive": ("#7f8c1f", "#a3b03a"),
    "forest": ("#008300", "#32a032"),
    "gray": ("#8a8984", "#8a8984"),
    "pale": ("#d3d2cb", "#4a4a46"),
}
"""By name: on a light page, on a dark one."""
