"""Draws the rows of a bench.json: charts.py RESULTS.json FOLDER

performance-light.svg and performance-dark.svg: tconv's time as a share of what one would run instead,
a line a job. Where a job has a bar, a tick shows it.
"""

import html
import json
import os
import sys

COLOURS = {
    "light": {"ground": "#ffffff", "text": "#1f2328", "faint": "#59636e", "line": "#d1d9e0", "own": "#2563b8",
              "over": "#b35900", "tick": "#1f2328"},
    "dark": {"ground": "#0d1117", "text": "#f0f6fc", "faint": "#9198a1", "line": "#3d444d", "own": "#5b9bf0",
             "over": "#e09b4b", "tick": "#f0f6fc"},
}
WIDTH, LEFT, RIGHT, STEP, TOP = 860, 330, 210, 22, 74
MOST = 2.0  # of the axis; a longer bar ends there, with its figure
TITLES = {"tools": "Beside cp, openssl, zstd, cat and cmp", "disks": "On disks", "python": "Beside Python"}


def text(x, y, words, colour, size=12, anchor="start", weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" font-size="{size}" font-weight="{weight}" '
            f'text-anchor="{anchor}">{html.escape(words)}</text>')


def clean(row):
    """What the tconv and the peer did, in short."""
    return row["job"].replace(" -> ", " → ")


def peer(row):
    words = (row["peer"] or "").split("{")[0].split()
    return " ".join(word for word in words if word not in ("-q", "-o"))


def seconds(value):
    return f"{value * 1000:.0f} ms" if value < 0.1 else f"{value:.2f} s"


def bars(rows, palette, y):
    scale = (WIDTH - LEFT - RIGHT) / MOST
    parts = []
    for row in rows:
        ratio = row["ratio"]
        long = min(ratio, MOST) * scale
        colour = palette["own"] if row["ok"] or row["bar"] is None or ratio <= row["bar"] else palette["over"]
        parts.append(text(LEFT - 10, y + 12, clean(row), palette["text"], anchor="end"))
        parts.append(f'<rect x="{LEFT}" y="{y + 2}" width="{max(long, 1):.1f}" height="13" rx="2" fill="{colour}"/>')
        if row["bar"] and row["bar"] <= MOST:
            x = LEFT + row["bar"] * scale
            parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y}" y2="{y + 17}" stroke="{palette["tick"]}" '
                         f'stroke-width="2"/>')
        figure = f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.3f}"
        parts.append(text(WIDTH - RIGHT + 12, y + 12, figure, palette["text"], weight="bold"))
        parts.append(text(WIDTH - RIGHT + 52, y + 12, f"{seconds(row['seconds'])} / {seconds(row['peer_seconds'])}",
                          palette["faint"], 11))
        y += STEP
    return parts, y


def chart(rows, machine, palette):
    groups = [(TITLES[name], [row for row in rows if row.get("group") == name]) for name in TITLES]
    groups = [(title, members) for title, members in groups if members]
    height = TOP + sum(len(members) * STEP + 40 for _, members in groups) + 34
    scale = (WIDTH - LEFT - RIGHT) / MOST
    parts = [f'<rect width="{WIDTH}" height="{height}" fill="{palette["ground"]}"/>',
             text(20, 28, "tconv's time, where 1 is what one would run instead", palette["text"], 16, weight="bold"),
             text(20, 48, f"{machine['processor']}, {machine['cores']} cores; best of each, in turn; shorter is faster; "
                          "a tick is the bar", palette["faint"])]
    for mark in (0, 0.5, 1, 1.5, 2):
        x = LEFT + mark * scale
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{height - 34}" stroke="{palette["line"]}" '
                     f'stroke-width="{2 if mark == 1 else 1}"/>')
        parts.append(text(x, height - 16, f"{mark:g}", palette["faint"], 11, "middle"))
    y = TOP
    for title, members in groups:
        y += 26
        parts.append(text(20, y - 6, title, palette["text"], 13, weight="bold"))
        drawn, y = bars(members, palette, y)
        parts += drawn
        y += 14
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
            f'font-family="system-ui, sans-serif" role="img" aria-label="tconv\'s time beside other programs">\n'
            + "\n".join(parts) + "\n</svg>\n")


def main():
    results, folder = sys.argv[1:3]
    with open(results, encoding="utf-8") as file:
        found = json.load(file)
    rows = [row for row in found["rows"] if "ratio" in row]
    for name, palette in COLOURS.items():
        with open(os.path.join(folder, f"performance-{name}.svg"), "w", encoding="utf-8") as file:
            file.write(chart(rows, found["machine"], palette))
    return 0


if __name__ == "__main__":
    sys.exit(main())
