#!/usr/bin/env python3
"""Draws the pictures of the READMEs: the .svg files beside this script, 800 pixels wide.

usage: draw.py [--check] [PICTURE ...]

Without a picture it writes all of them. --check writes nothing and fails if a file differs from
what would be written. Numbers come from algorithms.json, beside it, and perf/results; what else is
said stands in the tables above each picture's function. All texts have 12 pixels or more.
"""
import json
import math
import os
import re
import sys

sys.dont_write_bytecode = True  # of card.py, which lies here too
from card import (BLUE, FAINT, GREEN, GREY, GRID, INK, LIGHT, ORANGE, PAPER, PINK, RULE, TINTS,
                  Picture)

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
RANKS = (BLUE, ORANGE, GREEN, PINK)  # of a rank, and of what it owns


# ---- layers --------------------------------------------------------------------------------------

ABOVE = (  # x, width, colour, folder, what it is
    (24, 232, FAINT, "tools/", ("programs: ringbench, ringrun,", "ringinfo, zeroplan, zerotrain")),
    (268, 232, GREEN, "zero/", ("training: ZeRO stages 0 to 3,", "offload, checkpoints, configs")),
    (544, 232, ORANGE, "cuda/", ("the same calls, recorded", "on CUDA streams")),
)
ROOMS = (  # from top to bottom: colour, what these rooms are about, rows of rooms
    (BLUE, "what programs call", (
        (("mail", "messages with tags"),),
        (("create", "making, measuring, splitting, ending"),),
        (("api", "the public functions"),))),
    (ORANGE, "what ranks do", (
        (("coll", "the collectives, by algorithm"),),
        (("leaders", "small operations that leaders of groups do"),),
        (("p2p", "messages between two ranks, and what is made of them"),),
        (("rings", "rings of links: slots, moves, rails"),),
        (("memory", "memory that ranks share: cells, windows"),))),
    (GREEN, "who takes part", (
        (("core", "a communicator and one operation on it"),),
        (("health", "who lives, who is where, what failed"),),
        (("bootstrap", "how ranks that know nothing meet"),))),
    (PINK, "how bytes travel", (
        (("transport", "one link: shared memory, TCP"), ("verbs", "RDMA"), ("ofi", "libfabric")),)),
    (FAINT, "what all stand on", (
        (("plan", "arithmetic: blocks, rounds, costs"), ("reduce", "types and their loops")),
        (("sys", "threads, shared memory, sockets, the machine"),),
        (("base", "errors, log, trace, environment, clock"),))),
)
SHARES = {1: (1,), 2: (0.55, 0.45), 3: (0.54, 0.21, 0.25)}  # of a row's width


def draw_row(p, x, y, width, colour, row):
    for i, (share, (name, purpose)) in enumerate(zip(SHARES[len(row)], row)):
        p.rect(x, y, width * share - 4, 25, TINTS[colour], colour)
        p.text(x + 9, y + 17, name, 13, bold=True)
        p.text(x + (17 + 9 * len(name) if i else 94), y + 17, purpose)
        x += width * share


def layers():
    p = Picture(716, "Kolo in layers",
                "A room includes and calls only itself and the rooms below it.")
    for x, width, colour, folder, purpose in ABOVE:
        p.rect(x, 70, width, 62, TINTS[colour], colour)
        p.text(x + 12, 89, folder, 14, bold=True)
        p.lines(x + 12, 107, purpose, fill=INK)
    p.box(24, 154, 476, 26, "include/kolo: the public headers, all that tools/ and zero/ see", BLUE)
    for x in (140, 384):
        p.arrow([(x, 132), (x, 153)])
    p.arrow([(262, 180), (262, 200)])
    p.arrow([(660, 132), (660, 200)])
    p.note(652, 170, "sees comm/ itself", "end")
    p.rect(24, 201, 752, 499, PAPER, RULE, 8)
    p.text(36, 222, "comm/", 14, bold=True)
    p.text(92, 222, "the library", 13, FAINT)
    y = 232
    for i, (colour, about, rows) in enumerate(ROOMS):
        for row in rows:
            draw_row(p, 36, y, 566, colour, row)
            y += 28
        top = y - 28 * len(rows)
        p.line([(606, top), (612, top), (612, y - 3), (606, y - 3)], colour)
        p.text(621, y - 14 * len(rows) + 3, about, 13, colour, bold=True)
        if i + 1 < len(ROOMS):
            p.arrow([(322, y - 3), (322, y + 9)])
            y += 9
    return p


# ---- ring_round ----------------------------------------------------------------------------------

NRANKS = 4
MOVES = ("sends", "adds, passes", "adds, passes", "adds last, keeps", "keeps, passes",
         "keeps, passes", "keeps")


def draw_vector(p, x, y):
    """A vector in blocks, and these in slices, of which one is the round's."""
    for b in range(NRANKS):
        for s in range(4):
            fill = RANKS[b] if s == 1 else TINTS[RANKS[b]]
            p.rect(x + b * 92 + s * 22, y, 22, 26, fill, RANKS[b], 0)
        p.text(x + b * 92 + 44, y - 7, f"block {b}", 12, RANKS[b], "middle", bold=True)
    p.lines(x, y + 45, (
        "Block b belongs to rank b. A round takes one slice of each block (dark)",
        "all the way; then the next slice: so it is still in cache when it returns."))


def draw_way(p, y):
    """The slice of block 0 on its way: unrolled, seven stations and six steps."""
    for i in range(2 * NRANKS - 1):
        x, rank, parts = 38 + i * 112, (i + 1) % NRANKS, min(i + 1, NRANKS)
        p.rect(x, y, 54, 46, TINTS[RANKS[rank]], RANKS[rank], 8)
        p.text(x + 27, y + 17, f"rank {rank}", 12, INK, "middle", bold=True)
        for k in range(parts):
            p.rect(x + 6 + k * 11, y + 25, 9, 14, RANKS[0], None, 1)
        p.text(x + 27, y + 62, MOVES[i], anchor="middle")
        if i < 2 * NRANKS - 2:
            p.arrow([(x + 56, y + 23), (x + 110, y + 23)], BLUE if i < NRANKS - 1 else ORANGE, 2)
            p.note(x + 82, y + 16, f"step {i + 1}", "middle")


def draw_steps(p, y):
    """What each rank sends in each step: block (rank - step) modulo the number of ranks."""
    for rank in range(NRANKS):
        top = y + 26 + rank * 34
        p.text(38, top + 18, f"rank {rank} sends", 12, RANKS[rank], bold=True)
        for step in range(1, 2 * NRANKS - 1):
            block, x = (rank - step) % NRANKS, 54 + step * 96
            p.rect(x, top, 88, 27, TINTS[RANKS[block]], RANKS[block])
            p.text(x + 9, top + 18, f"{block}", 13, INK, bold=True)
            for k in range(min(step, NRANKS)):
                p.rect(x + 28 + k * 14, top + 7, 11, 13, RANKS[block], None, 1)
    for step in range(1, 2 * NRANKS - 1):
        p.note(98 + step * 96, y + 16, f"step {step}", "middle")


def draw_phases(p, y, left, middle, right):
    for x, end, colour, text in ((left, middle, BLUE, "reduce-scatter: N - 1 steps"),
                                 (middle + 6, right, ORANGE, "all-gather: N - 1 steps")):
        p.line([(x, y + 8), (x, y), (end, y), (end, y + 8)], colour, 2)
        p.text((x + end) / 2, y - 6, text, 13, colour, "middle", bold=True)


def ring_round():
    p = Picture(566, "One round of an all-reduce on a ring of N = 4 ranks",
                "2(N - 1) = 6 steps. In each of them every rank sends one slice to the next rank.")
    draw_vector(p, 38, 96)
    for rank, (x, y) in enumerate(((500, 92), (640, 92), (640, 140), (500, 140))):
        p.box(x, y, 80, 26, f"rank {rank}", RANKS[rank], 12, True)
    for points in ([(580, 105), (639, 105)], [(680, 118), (680, 139)],
                   [(640, 153), (581, 153)], [(540, 140), (540, 119)]):
        p.arrow(points, INK, 2)
    p.text(38, 204, "One slice of block 0", 14, bold=True)
    p.note(206, 204, "The rank after the owner sends first, the owner adds last. A small bar is "
           "one rank's part.")
    draw_phases(p, 236, 65, 398, 738)
    draw_way(p, 248)
    p.text(38, 346, "All slices of the round at once", 14, bold=True)
    p.note(300, 346, "The number is the block. Each rank sends and receives in every step.")
    draw_phases(p, 378, 150, 432, 718)
    draw_steps(p, 380)
    return p


# ---- link ----------------------------------------------------------------------------------------

SLOTS = (  # the newest first: number, state, colour, whose it is
    (0, "empty", FAINT, ("waits for", "the sender")),
    (3, "being filled", ORANGE, ("lent to", "the sender")),
    (2, "full", BLUE, ("waits for", "the receiver")),
    (1, "being read", GREEN, ("lent to", "the receiver")),
)
CYCLE = (  # a slot's life: state, colour, what ends it, who does that
    ("empty", FAINT, "acquire", "sender"),
    ("being filled", ORANGE, "commit", "sender"),
    ("full", BLUE, "peek", "receiver"),
    ("being read", GREEN, "release", "receiver"),
)


def draw_end(p, x, name, colour, notes):
    p.rect(x, 82, 136, 138, TINTS[colour], colour, 8)
    p.text(x + 68, 106, name, 14, INK, "middle", bold=True)
    p.lines(x + 68, 127, notes, 12, INK, "middle")


def draw_slots(p, x, y):
    p.rect(x - 10, 76, 440, 174, PAPER, RULE, 8)
    for i, (index, state, colour, whose) in enumerate(SLOTS):
        left = x + i * 106
        p.rect(left, y, 100, 56, TINTS[colour], colour)
        p.note(left + 50, y + 20, f"slot {index}", "middle")
        p.text(left + 50, y + 41, state, 13, INK, "middle", bold=True)
        full = state in ("full", "being read")
        p.box(left + 10, y + 63, 80, 22, f"full: {full:d}", colour, 12, mono=True)
        p.lines(left + 50, y + 102, whose, 12, FAINT, "middle", 15)


def draw_cycle(p, y):
    for i, (state, colour, call, who) in enumerate(CYCLE):
        x = 48 + i * 190
        p.box(x, y, 104, 34, state, colour, 13, True)
        if i + 1 < len(CYCLE):
            p.arrow([(x + 106, y + 17), (x + 188, y + 17)], INK, 2)
            p.text(x + 147, y + 9, call, 13, INK, "middle", mono=True)
            p.note(x + 147, y + 34, who, "middle")
        else:  # back to the first
            p.arrow([(x + 52, y + 36), (x + 52, y + 58), (100, y + 58), (100, y + 36)], INK, 2)
            p.text(370, y + 52, call, 13, INK, "middle", mono=True)
            p.note(412, y + 52, who)


def link():
    p = Picture(450, "A link: one edge of the ring in one direction",
                "Slots of equal size, 4 of 256 KiB unless said otherwise. Data flows one way.")
    draw_slots(p, 190, 116)
    draw_end(p, 24, "sender", ORANGE,
             ("a rank", "", "acquire: a free slot", "fill it", "commit: hand it on"))
    draw_end(p, 640, "receiver", GREEN,
             ("the next rank", "", "peek: the oldest", "use it", "release: free again"))
    p.arrow([(161, 98), (346, 98), (346, 115)], INK, 2)
    p.arrow([(558, 115), (558, 98), (639, 98)], INK, 2)
    p.note(400, 270, "Each end takes the slots by their numbers, and after the last one the first "
           "again.", "middle")
    p.text(24, 306, "The life of a slot", 14, bold=True)
    draw_cycle(p, 322)
    p.lines(24, 410, (
        "No free slot: acquire returns KO_EAGAIN, and the sender waits. No full slot: peek does, "
        "and the receiver waits.",
        "In shared memory full is a word of the slot's own cache line: whoever has the slot "
        "writes it, the other one watches it."), fill=INK, step=20)
    return p


# ---- algorithm_by_size ---------------------------------------------------------------------------

WAYS = {  # of an algorithm: colour, what it does
    "board": (BLUE, "each rank writes its vector where all read it: one hop"),
    "ring": (ORANGE, "slices go round the ring in 2(N - 1) hops"),
    "direct": (GREEN, "ranks read and write each other's buffers; of plain memory only while "
               "that is faster than the ring"),
}
LOWEST, HIGHEST = 3, 30  # log2 of the axis' ends, in bytes


def size_name(size):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size} B"


def rows_for(rows, memory):
    """[(first, end, name)] for this memory, in order of size. The first row that fits counts."""
    fits = [r for r in rows if r["memory"] in ("any", memory)]
    last = 1 << HIGHEST
    ends = {1 << LOWEST, last}
    for r in fits:
        ends |= {r["min_bytes"], (r["max_bytes"] or last) + 1}
    ends = sorted(e for e in ends if 1 << LOWEST <= e <= last)
    found = []
    for first, end in zip(ends, ends[1:]):
        name = next(r["algorithm"] for r in fits
                    if r["min_bytes"] <= first <= (r["max_bytes"] or last))
        if found and found[-1][2] == name:
            first = found.pop()[0]
        found.append((first, end, name))
    return found


def draw_sizes(p, left, right, top, bottom, lowest, highest, step):
    """A log axis; returns what maps bytes to x."""
    def place(size):
        return left + (math.log2(size) - lowest) / (highest - lowest) * (right - left)
    for power in range(lowest, highest + 1, step):
        x = place(1 << power)
        p.line([(x, top), (x, bottom)], GRID, 1)
        p.note(x, bottom + 17, size_name(1 << power), "middle")
    return place


def draw_ways(p, place, y, label, rows):
    p.text(24, y + 20, label, 12)
    edge = place(1 << LOWEST)
    for i, (first, end, name) in enumerate(rows):
        x, width = place(first), place(end) - place(first)
        p.rect(x, y, width, 30, TINTS[WAYS[name][0]], WAYS[name][0], 2)
        if width > 40:
            p.text(x + width / 2, y + 20, name, 13, INK, "middle", bold=True)
        if i > 0:  # where it begins; beside the next bound if that is near
            shift, anchor = 0, "middle"
            if width < 60:
                shift, anchor = -2, "end"
            elif x - edge < 60:
                shift, anchor = 4, "start"
            p.note(x + shift, y - 5, size_name(first), anchor)
        edge = x


def draw_communicator(p, place, y, said):
    p.text(24, y, said["cores"], 14, bold=True)
    p.note(24 + 9 * len(said["cores"]), y, f"{said['stores']} stores, {said['link_gb_s']} GB/s "
           f"over a link, {said['hop_us']} us a hop")
    draw_ways(p, place, y + 28, "plain memory", rows_for(said["rows"], "plain"))
    draw_ways(p, place, y + 82, "kolo_alloc memory", rows_for(said["rows"], "alloc"))


def algorithm_by_size():
    with open(os.path.join(HERE, "algorithms.json"), encoding="utf-8") as f:
        data = json.load(f)
    p = Picture(510, f"Which algorithm an {data['collective']} takes, by size",
                "Kolo measures this when a communicator is made: two such tables of one machine.")
    place = draw_sizes(p, 150, 764, 92, 376, LOWEST, HIGHEST, 3)
    for i, said in enumerate(data["communicators"]):
        p.rect(16, 73 + i * 150, 768, 22, GREY, None, 4)
        draw_communicator(p, place, 89 + i * 150, said)
    for i, (name, (colour, what)) in enumerate(WAYS.items()):
        p.box(24, 408 + i * 23, 58, 19, name, colour, 12, True)
        p.text(92, 422 + i * 23, what)
    p.note(24, 496, f"{data['machine']}, {data['ranks']} ranks, commit {data['commit']}")
    return p


# ---- zero_stages ---------------------------------------------------------------------------------

ALL, OWN = True, False
STAGES = (  # parameters, gradients, masters and moments; what is sent for an update
    (ALL, ALL, ALL, ("gradients 2 P",)),
    (ALL, OWN, OWN, ("gradients P", "parameters P")),
    (ALL, OWN, OWN, ("gradients A P", "parameters P")),
    (OWN, OWN, OWN, ("gradients A P", "parameters 2 A P")),
)
KINDS = ((116, "parameters"), (288, "gradients"), (460, "masters, moments"))


def draw_holding(p, x, y, holds_all):
    """A bar of four shards for each rank; what the rank does not hold is empty."""
    for rank in range(NRANKS):
        top = y + rank * 19
        for shard in range(NRANKS):
            held = holds_all or shard == rank
            p.rect(x + shard * 37, top, 35, 15, RANKS[shard] if held else PAPER,
                   None if held else RULE, 2, None if held else "3 2")


def zero_stages():
    p = Picture(540, "Who holds what at ZeRO stages 0 to 3",
                "4 ranks. Each tensor is cut into 4 shards, one owned by each rank. Filled: held; "
                "empty: not held.")
    for x, kind in KINDS:
        p.text(x + 73, 84, kind, 13, INK, "middle", bold=True)
    p.text(628, 84, "sent by each rank", 13, INK, bold=True)
    p.note(108, 84, "rank", "end")
    for stage, row in enumerate(STAGES):
        y = 96 + stage * 96
        p.rect(16, y, 768, 90, GREY if stage % 2 else LIGHT, None, 6)
        p.text(24, y + 51, f"stage {stage}", 13, INK, bold=True)
        for rank in range(NRANKS):
            p.note(108, y + 20 + rank * 19, f"{rank}", "end")
        for (x, _), holds_all in zip(KINDS, row):
            draw_holding(p, x, y + 8, holds_all)
        p.lines(628, y + 38 - 9 * (len(row[3]) - 1), row[3], 13, INK, step=19)
        p.note(628, y + 76, "each times (N - 1)/N")
    for rank in range(NRANKS):
        p.rect(24 + rank * 86, 490, 14, 14, RANKS[rank], None, 2)
        p.text(44 + rank * 86, 502, f"rank {rank}'s", 12)
    p.text(392, 502, "P bytes of parameters, N ranks, A micro-steps in an update", 12)
    p.note(24, 526, "Sent for one update. With A > 1 stage 1 adds up whole gradients in float on "
           "each rank, stages 2 and 3 their own shards.")
    return p


# ---- offload_update ------------------------------------------------------------------------------

LANES = ("device", "network", "bus: down", "host threads", "bus: up", "files: read", "files: write")
BUCKETS = (BLUE, ORANGE, GREEN)
LANE, TIME, UNIT = 40, 118, 24.2  # height of a lane; where time 0 lies; pixels of a unit of time
SLICE, FIRST = 1.5, 11.3  # length of a slice's update, and when the first one begins
PHASES = ((0, 8, "backward"), (9.7, 10.6, "norm"), (11.3, 21.4, "update"),
          (21.5, 27.2, "next forward"))


def timeline():
    """(lane, begin, end, colour, text) of all that happens; a slice is a unit of the files."""
    yield "device", 0, 8, FAINT, "backward"
    for i in range(3):
        yield "network", 2 + 2 * i, 4 + 2 * i, FAINT, "reduce"
        yield "bus: down", 4 + 2 * i, 5.7 + 2 * i, FAINT, "down"
    yield "network", 9.8, 10.5, FAINT, ""
    for i in range(6):
        begin, colour, name = FIRST + SLICE * i, BUCKETS[i // 2], "abcdef"[i]
        read = 10.6 + 0.7 * i if i < 3 else begin - 2 * SLICE
        yield "files: read", read, read + 0.65, colour, name
        yield "host threads", begin, begin + SLICE - 0.05, colour, name
        yield "files: write", begin + SLICE, begin + SLICE + 0.65, colour, name
        yield "bus: up", begin + SLICE, begin + SLICE + 1.1, colour, name
    for i in range(3):
        begin = FIRST + 2 * SLICE * i
        yield "device", begin, begin + 1.6, BUCKETS[i], "rest"
        gather = FIRST + 2 * SLICE * (i + 2) if i < 2 else FIRST + 6 * SLICE + 2.1
        yield "network", gather, gather + 2.05, BUCKETS[i], "gather"
    yield "device", 21.5, 27.2, FAINT, "next forward"


def lane_top(lane):
    return 112 + LANES.index(lane) * LANE


def draw_lanes(p):
    for lane in LANES:
        y = lane_top(lane)
        p.rect(16, y - 5, 768, LANE - 4, LIGHT, None, 4)
        p.text(26, y + 17, lane, 12, INK, bold=True)
    bottom = lane_top(LANES[-1]) + LANE
    for begin, end, name in PHASES:
        x = TIME + begin * UNIT
        p.line([(x, 96), (x, bottom)], RULE, 1, "3 3")
        p.text(x + (end - begin) * UNIT / 2, 90, name, 13, INK, "middle", bold=True)
    p.arrow([(TIME, bottom + 8), (776, bottom + 8)], FAINT)
    p.note(776, bottom + 25, "time", "end")


def offload_update():
    p = Picture(490, "An update with optimizer state offloaded",
                "Three buckets, two slices each: while one slice is updated those before it go "
                "up and are gathered.")
    draw_lanes(p)
    for lane, begin, end, colour, text in timeline():
        p.box(TIME + begin * UNIT, lane_top(lane), (end - begin) * UNIT, 26, text, colour)
    y = lane_top(LANES[-1]) + LANE + 42
    p.lines(24, y, (
        "Each reduced gradient comes down beside backward. The norm needs all of them, and a few "
        "bytes from every rank.",
        "Colours are buckets, a to f their slices. A bucket is gathered when its slices are up and "
        "the next one is updated.",
        "rest: what stays on the device is updated there. Files: only with state in files; they "
        "are read ahead, written behind."), fill=INK)
    return p


# ---- all_reduce_beside_peers ---------------------------------------------------------------------

RESULTS = "perf/results/amd-epyc-2-cores-2-ranks.txt"
RATIO = r"([\d.]+) \[([\d.]+), ([\d.]+)\]"
ROW = re.compile(rf"\s+(\d+)\s+(out|in)\s.*\s{RATIO}\s+{RATIO}$")
CURVES = (("alloc", "memory of kolo_alloc", GREEN), ("plain", "plain memory", BLUE))
RATIOS = (0.5, 1, 2, 5, 10, 20)


def read_results():
    """{memory: [(bytes, ratio, least, most)] out of place}, {memory: mean of all}, the heading."""
    with open(os.path.join(ROOT, RESULTS), encoding="utf-8") as f:
        lines = f.read().splitlines()
    begin = lines.index("# all_reduce")
    end = next(i for i in range(begin, len(lines)) if lines[i] == "#")
    curves, means = {"plain": [], "alloc": []}, {}
    for line in lines[begin:end]:
        row = ROW.match(line)
        if row and row[2] == "out":
            for memory, at in (("plain", 3), ("alloc", 6)):
                curves[memory].append((int(row[1]), *(float(row[at + i]) for i in range(3))))
        said = re.match(r"# all_reduce, (\w+): geometric mean of the ratios ([\d.]+)", line)
        if said:
            means[said[1]] = said[2]
    return curves, means, lines[0].lstrip("# ")


def draw_spread(p, place, level, colour, points, shift):
    for size, _, least, most in points:
        x = place(size) + shift
        p.line([(x, level(least)), (x, level(most))], TINTS[colour], 5)


def draw_curve(p, place, level, colour, points):
    p.line([(place(size), level(ratio)) for size, ratio, _, _ in points], colour, 2.5)
    for size, ratio, _, _ in points:
        p.add("circle", cx=place(size), cy=level(ratio), r=4, fill=colour)


def all_reduce_beside_peers():
    curves, means, heading = read_results()
    p = Picture(430, f"all_reduce beside MPI: {means['plain']} times as fast, "
                f"{means['alloc']} with kolo_alloc",
                "Time of the better of Open MPI and MPICH over Kolo's, within a round; above 1 "
                "Kolo is faster. Out of place.")

    def level(ratio):
        return 340 - math.log(ratio / 0.4) / math.log(26 / 0.4) * 262
    place = draw_sizes(p, 84, 756, 78, 340, 3, 27, 3)
    for ratio in RATIOS:
        one, y = ratio == 1, level(ratio)
        p.line([(74, y), (766, y)], INK if one else GRID, 2 if one else 1)
        p.text(66, y + 4, f"{ratio:g}", 12, INK if one else FAINT, "end", one)
    for i, (memory, name, colour) in enumerate(CURVES):
        draw_spread(p, place, level, colour, curves[memory], 6 * i - 3)
    for i, (memory, name, colour) in enumerate(CURVES):
        draw_curve(p, place, level, colour, curves[memory])
        p.line([(100, 106 + 20 * i), (128, 106 + 20 * i)], colour, 2.5)
        p.add("circle", cx=114, cy=106 + 20 * i, r=4, fill=colour)
        p.rect(134, 96 + 20 * i, 160, 18, PAPER)
        p.text(136, 110 + 20 * i, name, 13, colour, bold=True)
    p.lines(24, 386, (
        "Dots: median over rounds; bars: least and most. Geometric means: of all sizes, out of "
        "place and in place.", heading))
    return p


# ---- All -----------------------------------------------------------------------------------------

PICTURES = {  # what each shows, in words: for those who can't see it, and for READMEs
    layers:
        "The rooms of Kolo from top to bottom: tools/ and zero/ stand on the public headers, "
        "these and cuda/ on comm/, whose rooms are mail, create and api; coll, leaders, p2p, rings and "
        "memory; core, health and bootstrap; transport with verbs and ofi; plan, reduce, sys and base.",
    ring_round:
        "One round of an all-reduce on four ranks: a slice starts at the rank after its owner, "
        "each rank adds its part, the owner last, in three steps; in three more the sum goes "
        "round to all; and in each step every rank sends a slice of another block.",
    link:
        "A link is a ring of slots between two ranks: the sender acquires an empty slot, fills it "
        "and commits it; the receiver peeks at the oldest full slot, uses it and releases it, and "
        "it is empty again.",
    algorithm_by_size:
        "Which sizes of an all_reduce go over the board, round the ring or directly, in plain "
        "memory and in memory of kolo_alloc, as two communicators of one machine measured: the "
        "board takes small ones, direct use large ones, the ring what is between in plain memory.",
    zero_stages:
        "Who holds what on four ranks: at stage 0 every rank holds everything, at stages 1 and 2 "
        "all parameters but only its own shard of gradients, masters and moments, at stage 3 its "
        "own shard of everything; beside it what each rank sends.",
    offload_update:
        "An update with offloaded state over time: gradients come down beside backward; after the "
        "norm host threads update slice after slice, each goes up while the next one is updated, "
        "and buckets are gathered, the last of them beside the next forward.",
    all_reduce_beside_peers:
        "Time of the better of Open MPI and MPICH over Kolo's for an all_reduce on two ranks, over "
        "sizes from 8 B to 128 MiB, in plain memory and in memory of kolo_alloc: medians, least "
        "and most.",
}


def is_current(path, text):
    try:
        with open(path, encoding="utf-8") as f:
            return f.read() == text
    except FileNotFoundError:
        return False


def main(arguments):
    check = "--check" in arguments
    names = [a for a in arguments if a != "--check"]
    known = {draw.__name__: draw for draw in PICTURES}
    unknown = [n for n in names if n not in known]
    if unknown:
        sys.exit(f"draw.py: no picture {', '.join(unknown)}; there are: {', '.join(known)}")
    old = []
    for name in names or known:
        path, text = os.path.join(HERE, f"{name}.svg"), known[name]().svg(PICTURES[known[name]])
        if is_current(path, text):
            continue
        if check:
            old.append(os.path.relpath(path, ROOT))
            continue
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
    if old:
        sys.exit(f"{', '.join(old)}: not what is drawn now: python3 tools/pictures/draw.py")


if __name__ == "__main__":
    main(sys.argv[1:])
