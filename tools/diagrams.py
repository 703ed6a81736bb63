#!/usr/bin/env python3
"""Draws the diagrams of docs/concepts.md as docs/pictures/*.svg: sequences and state charts.

    tools/diagrams.py [--check]      --check: exits 1 if a picture is not the one that would be drawn
"""

import html
import math
import pathlib
import sys

from plots import PICTURES, STYLE

LINE = 34  # Pixels from one message to the next.
MARGIN = 20

# A message is (from, to, text), a lost one has "lost" as fourth; a note is (participant, text).
SEQUENCES = {
    "call-with-retry": (("client", "server"), (
        ("client", "server", "request: slot 3, sequence 7", "lost"),
        ("client", "the connection is lost: the call waits, its deadline goes on"),
        ("client", "server", "session: resumed (on a new connection)"),
        ("server", "client", "session_grant"),
        ("client", "server", "call_query: slot 3, sequence 7"),
        ("server", "client", "call_status: not received"),
        ("client", "server", "request, sent once more"),
        ("server", "the handler runs, once"),
        ("server", "client", "reply: OK"),
    )),
    "bulk-read-with-grant": (("client (owner)", "server"), (
        ("client (owner)", "expose(): a region and its reference"),
        ("client (owner)", "server", "request with the reference"),
        ("server", "Call::get()"),
        ("server", "client (owner)", "bulk_open: range, key"),
        ("client (owner)", "checks key, range, access and peer"),
        ("client (owner)", "server", "bulk_grant: the device's key"),
        ("server", "client (owner)", "RDMA reads, in pieces"),
        ("server", "client (owner)", "bulk_close"),
        ("server", "client (owner)", "reply"),
        ("client (owner)", "Region::close() calls fenced: no grant is open"),
    )),
    "broadcast-with-dead-child": (("caller", "rank 0", "rank 1 (dead)", "rank 2, below 1"), (
        ("caller", "rank 0", "forward: ranks 0 to 2"),
        ("rank 0", "rank 1 (dead)", "forward: ranks 1 and 2", "lost"),
        ("rank 0", "runs the method"),
        ("rank 0", "connection refused, or no reply in time: rank 1 is suspect"),
        ("rank 0", "rank 2, below 1", "forward: rank 2"),
        ("rank 2, below 1", "runs the method, unless rank 1 had forwarded it"),
        ("rank 2, below 1", "rank 0", "reply: rank 2 OK"),
        ("rank 0", "caller", "reply: 0 OK, 1 UNAVAILABLE, 2 OK"),
    )),
}

# States with their places in a grid (column, row), and moves (from, to, text).
CHARTS = {
    "session-states": (
        {"none": (0, 0), "beginning": (1, 0), "open": (2, 0), "reconnecting": (2, 1), "resuming": (1, 1), "ended": (3, 0)},
        (("none", "beginning", "first call"), ("beginning", "open", "grant"), ("open", "reconnecting", "connection lost"),
         ("reconnecting", "resuming", "connected"), ("resuming", "open", "grant"), ("resuming", "none", "not known there"),
         ("open", "ended", "server ends"))),
    "collective-states": (
        {"forwarding": (0, 0), "waiting": (1, 0), "reported": (2, 0), "done": (3, 0), "adopting": (1, 1)},
        (("forwarding", "waiting", "method runs"), ("waiting", "reported", "policy met"), ("reported", "done", "all outcomes"),
         ("waiting", "adopting", "child failed or suspect"), ("adopting", "waiting", "ranks below requested"))),
}


def text(x, y, content, anchor="middle", kind=""):
    kind = f' class="{kind}"' if kind else ""
    return f'<text{kind} text-anchor="{anchor}" x="{x:.0f}" y="{y:.0f}">{html.escape(content)}</text>'


def line(x1, y1, x2, y2, kind="ink", extra=""):
    return f'<line class="{kind}" x1="{x1:.0f}" y1="{y1:.0f}" x2="{x2:.0f}" y2="{y2:.0f}"{extra}/>'


def svg(width, height, title, parts):
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
                      f'aria-label="{html.escape(title)}">', STYLE,
                      '<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
                      '<path d="M0 0 8 4 0 8z" class="tip"/></marker></defs>',
                      "<style>.tip { fill: #1f2328 } @media (prefers-color-scheme: dark) { .tip { fill: #e6edf3 } }</style>",
                      *parts, "</svg>", ""])


def sequence(title, participants, steps):
    gap = 640 / max(1, len(participants) - 1)
    width = gap * (len(participants) - 1) + 2 * (MARGIN + 70)
    place = {name: MARGIN + 70 + gap * at for at, name in enumerate(participants)}
    height = 60 + LINE * (len(steps) + 1)
    parts = []
    for name, x in place.items():
        parts += [text(x, 24, name, kind="title"), line(x, 36, x, height - MARGIN, "grid")]
    for at, step in enumerate(steps):
        y = 66 + LINE * at
        if len(step) == 2:
            x = place[step[0]]
            side = "start" if x < width / 2 else "end"
            parts += [f'<circle class="tip" cx="{x:.0f}" cy="{y:.0f}" r="3"/>', text(x + (10 if side == "start" else -10), y + 4, step[1], side,
                                                                         "faint")]
            continue
        begin, end = place[step[0]], place[step[1]]
        is_lost = len(step) == 4
        if is_lost:
            end = (begin + end) / 2
            parts.append(text(end, y + 4, "×", kind="title"))
        parts.append(line(begin, y, end - math.copysign(8, end - begin) * is_lost, y,
                          extra=' stroke-dasharray="4 3"' if is_lost else ' marker-end="url(#tip)"'))
        parts.append(text((begin + place[step[1]]) / 2, y - 6, step[2]))
    return svg(width, height, title, parts)


def chart(title, states, moves):
    column, row, wide, high = 200, 120, 110, 34
    center = {name: (MARGIN + 60 + column * x, 50 + row * y) for name, (x, y) in states.items()}
    width = max(x for x, _ in center.values()) + MARGIN + 70
    height = max(y for _, y in center.values()) + 50
    parts = []
    both = {(a, b) for a, b, _ in moves if any((b, a) == (c, d) for c, d, _ in moves)}
    for a, b, label in moves:
        (x1, y1), (x2, y2) = center[a], center[b]
        length = math.hypot(x2 - x1, y2 - y1)
        ux, uy = (x2 - x1) / length, (y2 - y1) / length
        # Two moves between the same states run side by side.
        aside = 12 if (a, b) in both else 0
        x1, y1, x2, y2 = x1 - uy * aside, y1 + ux * aside, x2 - uy * aside, y2 + ux * aside

        def edge(ux=ux, uy=uy):  # From the centre of a box to its border.
            return min(wide / 2 / abs(ux) if ux else 1e9, high / 2 / abs(uy) if uy else 1e9)

        parts.append(line(x1 + ux * edge(), y1 + uy * edge(), x2 - ux * edge(), y2 - uy * edge(), extra=' marker-end="url(#tip)"'))
        x, y = (x1 + x2) / 2, (y1 + y2) / 2
        if abs(ux) > 0.9:
            parts.append(text(x, y - 7, label, kind="faint"))
        else:
            left = aside and uy > 0
            parts.append(text(x + (-8 if left else 8), y + 4, label, "end" if left else "start", "faint"))
    for name, (x, y) in center.items():
        parts.append(f'<rect class="ink" fill="none" x="{x - wide / 2:.0f}" y="{y - high / 2:.0f}" width="{wide}" height="{high}" rx="6"/>')
        parts.append(text(x, y + 4, name))
    return svg(width, height, title, parts)


def main():
    pictures = {name: sequence(name.replace("-", " "), *given) for name, given in SEQUENCES.items()}
    pictures |= {name: chart(name.replace("-", " "), *given) for name, given in CHARTS.items()}
    stale = 0
    for name, picture in pictures.items():
        path = PICTURES / f"{name}.svg"
        if sys.argv[1:] == ["--check"]:
            if not path.exists() or path.read_text(encoding="utf-8") != picture:
                print(f"{path}: not what tools/diagrams.py draws")
                stale += 1
        else:
            path.write_text(picture, encoding="utf-8")
    return 1 if stale else 0


if __name__ == "__main__":
    assert pathlib.Path(PICTURES).is_dir()
    sys.exit(main())
