#!/usr/bin/env python3
"""Draws docs/pictures/*.svg from the output of `weft sim --scenario bcast`, and prints the table of
docs/collectives-cost.md. The network is simulated: the same weft gives the same pictures on any
machine.

    tools/plots.py [--weft FILE] [--table]      --table: prints the table only
"""

import argparse
import json
import math
import pathlib
import subprocess
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
PICTURES = REPOSITORY / "docs/pictures"
NODES = (16, 64, 256, 1024, 4096, 16384, 131072)
HEALING_NODES = (256, 1024, 4096, 16384)
HEALING_SEEDS = range(2, 42)  # Even: processes that are killed; odd: hosts that fall silent.

# Okabe and Ito's colours, distinct also for colour-blind readers; `ink` is black or white.
ORDERS = (  # Name in the tool's output, name in the pictures, colour, dashes.
    ("k-nomial 32, order of CaRT", "k-nomial 32, CaRT's order", "#d55e00", "6 4"),
    ("k-nomial 4, order of CaRT", "k-nomial 4, CaRT's order", "#e69f00", "6 4"),
    ("k-nomial 32, largest first", "k-nomial 32", "#cc79a7", ""),
    ("k-nomial 4, largest first", "k-nomial 4", "#56b4e9", ""),
    ("k-nomial 8, largest first", "k-nomial 8", "#009e73", ""),
    ("greedy", "greedy (weft)", "ink", ""),
    ("bound", "bound", "#999999", "2 3"),
)
TABLE = ("bound", "greedy", "k-nomial 4, largest first", "k-nomial 8, largest first",
         "k-nomial 32, largest first", "k-nomial 4, order of CaRT", "k-nomial 32, order of CaRT")
SIZES = ("#56b4e9", "#009e73", "#e69f00", "#d55e00")

STYLE = """<style>
text { font: 12px system-ui, sans-serif; fill: #1f2328 }
.title { font-size: 14px; font-weight: 600 }
.faint { fill: #656d76 }
.grid { stroke: #d0d7de; stroke-width: 1 }
.ink { stroke: #1f2328 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .faint { fill: #9198a1 }
  .grid { stroke: #3d444d }
  .ink { stroke: #e6edf3 }
  .paper { fill: #0d1117 }
}
</style>"""


def sim(weft, nodes, seed):
    done = subprocess.run([weft, "sim", "--scenario", "bcast", "--nodes", str(nodes), "--first-seed",
                           str(seed), "--seeds", "1", "--json"], stdout=subprocess.PIPE, text=True,
                          check=True, timeout=600)
    return json.loads(done.stdout.splitlines()[-1])["models"]


def measure(weft):
    """By network: {"busy_us", "latency_us", "delivered": {order: [by n]}, "acknowledged": likewise}."""
    networks = []
    for nodes in NODES:
        for at, model in enumerate(sim(weft, nodes, 1)):
            if at == len(networks):
                networks.append({"busy_us": model["busy_us"], "latency_us": model["latency_us"],
                                 "delivered": {}, "acknowledged": {}})
            rows = model["orders"] + [{"order": "bound", "delivered_us": model["bound_us"],
                                       "acknowledged_us": None}]
            for row in rows:
                for what in ("delivered", "acknowledged"):
                    networks[at][what].setdefault(row["order"], []).append(row[f"{what}_us"])
    return networks


def print_table(networks, what):
    print(f"| ranks | {' | '.join(TABLE)} |")
    print("|---" + "|---:" * len(TABLE) + "|")
    for at, nodes in enumerate(NODES):
        cells = []
        for order in TABLE:
            values = [network[what][order][at] for network in networks]
            cells.append("" if None in values else " / ".join(f"{value:g}" for value in values))
        print(f"| {nodes} | {' | '.join(cells)} |")
    print()


class Panel:
    """One pair of axes with the ranges `across` and `up`; ticks are (place in the range, text)."""

    def __init__(self, box, title, across, up):
        self.left, self.top, self.width, self.height = box
        self.across, self.up = across, up
        self.svg = [f'<text class="title" x="{self.left}" y="{self.top - 14}">{title}</text>']

    def x(self, value):
        low, high = self.across
        return self.left + self.width * (value - low) / (high - low)

    def y(self, value):
        low, high = self.up
        return self.top + self.height * (1 - (value - low) / (high - low))

    def axes(self, x_ticks, y_ticks, x_name, y_name):
        bottom = self.top + self.height
        for place, text in y_ticks:
            y = self.y(place)
            self.svg.append(f'<line class="grid" x1="{self.left}" x2="{self.left + self.width}" '
                            f'y1="{y:.1f}" y2="{y:.1f}"/>')
            self.svg.append(f'<text class="faint" text-anchor="end" x="{self.left - 8}" '
                            f'y="{y + 4:.1f}">{text}</text>')
        for place, text in x_ticks:
            self.svg.append(f'<text class="faint" text-anchor="middle" x="{self.x(place):.1f}" '
                            f'y="{bottom + 18}">{text}</text>')
        self.svg.append(f'<text class="faint" text-anchor="middle" x="{self.left + self.width / 2}" '
                        f'y="{bottom + 38}">{x_name}</text>')
        self.svg.append(f'<text class="faint" text-anchor="middle" transform="translate('
                        f'{self.left - 44} {self.top + self.height / 2}) rotate(-90)">{y_name}</text>')

    def line(self, points, colour, dashes):
        path = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        stroke = 'class="ink" stroke-width="3"' if colour == "ink" else f'stroke="{colour}" stroke-width="2"'
        self.svg.append(f'<polyline fill="none" {stroke} stroke-linejoin="round" '
                        f'stroke-dasharray="{dashes}" points="{path}"/>')

    def dot(self, x, y, colour):
        self.svg.append(f'<circle cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="4" fill="{colour}" '
                        'fill-opacity="0.75"/>')

    def names_at_end(self, ends):
        """Labels (value, text, colour) beside the last points, moved apart where they would overlap."""
        places = []
        for value, text, colour in sorted(ends, reverse=True):  # From the top down.
            y = self.y(value)
            places.append([max(y, places[-1][0] + 15) if places else y, y, text, colour])
        over = places[-1][0] - (self.top + self.height)
        if over > 0:  # Move labels up again until the lowest fits.
            limit = self.top + self.height
            for place in reversed(places):
                place[0] = min(place[0], limit)
                limit = place[0] - 15
        right = self.left + self.width
        for y, true_y, text, colour in places:
            line = 'class="ink"' if colour == "ink" else f'stroke="{colour}"'
            self.svg.append(f'<path {line} fill="none" d="M{right + 2} {true_y:.1f} L{right + 12} {y:.1f} h6"/>')
            self.svg.append(f'<text x="{right + 22}" y="{y + 4:.1f}">{text}</text>')


def picture(name, size, title, below, panels, extra=()):
    width, height = size
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
             f'width="{width}" height="{height}" role="img">', f"<title>{title}</title>", STYLE,
             f'<rect class="paper" fill="#ffffff" width="{width}" height="{height}" rx="6"/>']
    for panel in panels:
        lines += panel.svg
    lines += extra
    lines.append(f'<text class="faint" x="24" y="{height - 14}">{below}</text>')
    lines.append("</svg>")
    PICTURES.mkdir(exist_ok=True)
    (PICTURES / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def short(nodes):
    return str(nodes) if nodes < 1024 else f"{nodes // 1024}k"


def step_for(most):
    """A round distance between the lines of a grid, at most six of them."""
    power = 10 ** math.floor(math.log10(most))
    return next(step for step in (power / 5, power / 2, power, 2 * power) if most / step <= 6)


def draw_latency(networks):
    panels = []
    for at, network in enumerate(networks):
        most = max(max(values) for values in network["delivered"].values())
        step = step_for(most)
        panel = Panel((80 + at * 580, 56, 320, 320),
                      f"g {network['busy_us']:g} µs, d {network['latency_us']:g} µs",
                      (math.log2(NODES[0]), math.log2(NODES[-1])), (0, most * 1.04))
        ticks = [(i * step, f"{i * step:g}") for i in range(int(most / step) + 1)]
        panel.axes([(math.log2(nodes), short(nodes)) for nodes in NODES], ticks,
                   "ranks (logarithmic)", "µs until the last rank has received")
        ends = []
        for order, text, colour, dashes in ORDERS:
            values = network["delivered"][order]
            panel.line([(math.log2(n), value) for n, value in zip(NODES, values)], colour, dashes)
            ends.append((values[-1], text, colour))
        panel.names_at_end(ends)
        panels.append(panel)
    picture("collectives-latency.svg", (1180, 450), "Time of a broadcast by number of ranks",
            "A message keeps its sender busy for g; its receiver sends on d later. weft sim --scenario "
            "bcast; drawn by tools/plots.py.", panels)


def draw_healing(weft):
    runs = [[], []]  # Killed processes; silent hosts.
    for nodes in HEALING_NODES:
        for seed in HEALING_SEEDS:
            runs[seed % 2].append((nodes, sim(weft, nodes, seed)[0]))
    panels = []
    for at, (title, unit, scale) in enumerate((("Processes killed: peers detect it in 1 ms", "ms", 1e3),
                                               ("Hosts silent: peers detect it in 3 s", "s", 1e6))):
        dead_most = max(model["dead_inner"] for _, model in runs[at])
        time_most = max(model["acknowledged_us"] for _, model in runs[at]) / scale
        panel = Panel((80 + at * 500, 56, 380, 300), title, (0, math.log2(1 + dead_most) * 1.03), (0, time_most * 1.12))
        places = [value for value in (0, 1, 3, 7, 15, 31, 63, 127) if value <= dead_most]
        step = step_for(time_most)
        panel.axes([(math.log2(1 + value), str(value)) for value in places],
                   [(i * step, f"{i * step:g}") for i in range(int(time_most * 1.12 / step) + 1)],
                   "dead ranks with ranks below them (logarithmic)",
                   f"{unit} until all outcomes are complete")
        for nodes, model in runs[at]:
            panel.dot(math.log2(1 + model["dead_inner"]), model["acknowledged_us"] / scale,
                      SIZES[HEALING_NODES.index(nodes)])
        panels.append(panel)
    legend = []
    for at, nodes in enumerate(HEALING_NODES):
        y = 80 + at * 22
        legend.append(f'<circle cx="988" cy="{y}" r="5" fill="{SIZES[at]}"/>')
        legend.append(f'<text x="1002" y="{y + 4}">{short(nodes)} ranks</text>')
    picture("collectives-healing.svg", (1100, 430), "Time of a broadcast in which ranks die",
            "One rank in a hundred dies at a random moment of a broadcast; a dot is one seed. "
            "weft sim --scenario bcast; drawn by tools/plots.py.", panels, legend)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weft", default=REPOSITORY / "build/release/bin/weft")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    networks = measure(options.weft)
    if options.table:
        print_table(networks, "delivered")
        print_table(networks, "acknowledged")
        return 0
    draw_latency(networks)
    draw_healing(options.weft)
    print("plots: docs/pictures/collectives-latency.svg and collectives-healing.svg are drawn")
    return 0


if __name__ == "__main__":
    sys.exit(main())
