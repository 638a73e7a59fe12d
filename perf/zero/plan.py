#!/usr/bin/env python3
"""What zeroplan says beside what engines take: bytes of rank 0 by place, bytes that cross, and the time of an update.

usage: plan.py [--width W] [--steps N] [--rounds R] [--path DIR]

Engines of 12 square layers run in perf/zero_plan with an arena for a device; zeroplan plans the same with bandwidths that it
measured just before, with as many ranks. Both take turns, for R rounds, of whose times medians are compared. Ends with status 1
where bytes are 2 % apart or more, or times 25 %."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

B = os.environ.get("B", "build")
LAYERS, ROOM = 12, 4 << 30
MOST_BYTES, MOST_TIME = 0.02, 0.25
PRECISIONS = {"fp32": "f32", "bf16": "bf16"}

# Ranks, stage, precision, where the optimizer is, how much of it, where parameters are.
TRIALS = [
    (1, 1, "bf16", "none", 1, "none"),
    (1, 1, "fp32", "cpu", 1, "none"),
    (1, 2, "bf16", "cpu", 0.5, "none"),
    (1, 2, "bf16", "nvme", 1, "none"),
    (1, 3, "bf16", "cpu", 1, "cpu"),
    (2, 1, "fp32", "none", 1, "none"),
    (2, 1, "bf16", "cpu", 1, "none"),
    (2, 2, "bf16", "cpu", 0.5, "none"),
    (2, 2, "fp32", "nvme", 1, "none"),
    (2, 3, "bf16", "none", 1, "none"),
    (2, 3, "bf16", "cpu", 1, "cpu"),
    (2, 3, "bf16", "nvme", 1, "nvme"),
]


def call(*args):
    done = subprocess.run(args, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(args)}: status {done.returncode}\n{done.stderr}{done.stdout}")
    return json.loads(done.stdout)


def plan(options, nranks, stage, precision, optimizer, ratio, param):
    parameters = LAYERS * options.width * options.width
    share = () if optimizer == "none" else ("--offload-ratio", str(ratio))
    done = call(f"{B}/zeroplan", "--json", "-n", str(nranks), "--parameters", str(parameters), "--precision", precision,
                "--stage", str(stage), "--offload-optimizer", optimizer, *share, "--offload-param", param,
                "--nvme-path", options.path, "--device-memory", str(ROOM), "--measure")
    return done["asked"][0]


def engine(options, nranks, stage, precision, optimizer, ratio, param):
    return call(f"{B}/ringrun", "-n", str(nranks), f"{B}/perf/zero_plan", str(LAYERS), str(options.width), f"stage={stage}",
                f"type={PRECISIONS[precision]}", f"steps={options.steps}", f"device={ROOM}", f"optimizer={optimizer}",
                f"param={param}", f"ratio={ratio}", f"path={options.path}")


def apart(planned, real):
    """How far a plan is from what is, as a share of that; 0 where both are 0."""
    return (planned - real) / real if real else float(planned > 0)


def differences(planned, real):
    """Of bytes, by what they are."""
    for place in ("device", "host", "nvme"):
        held = sum(m["peak"] for m in real["memory"] if m["place"] == place)
        yield place, planned[f"{place}_bytes"], held
    yield "device, by its own account", planned["device_bytes"], real["device_peak"]
    yield "pinned", planned["pinned_bytes"], sum(m["pinned"] for m in real["memory"])
    for name, count in real["traffic"].items():
        yield name, planned["traffic"][name], count


def show(trial, rounds):
    """A row; whether it is as near as it should be. Bytes are the same in all rounds, each of a plan and what an engine took."""
    nranks, stage, precision, optimizer, ratio, param = trial
    planned, real = rounds[0]
    ms = [1e3 * statistics.median(r["seconds"] for r in side) for side in zip(*rounds)]
    rows = list(differences(planned, real))
    far = [(what, x, y) for what, x, y in rows if abs(apart(x, y)) >= MOST_BYTES]
    time = apart(*ms)
    places = [f"{planned[f'{place}_bytes'] / 2**20:9.1f}" for place in ("device", "host", "nvme")]
    print(f"{nranks} {stage:>5}  {precision:9} {optimizer:>9} {ratio:>5}  {param:6} {''.join(places)} "
          f"{100 * max((abs(apart(x, y)) for _, x, y in rows)):7.2f} {ms[0]:9.1f} {ms[1]:9.1f} {100 * time:+7.1f}", flush=True)
    for what, x, y in far:
        print(f"        {what}: planned {x}, took {y}")
    return not far and abs(time) < MOST_TIME


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--path")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.path or B) as folder:
        options.path = folder
        print(f"# {LAYERS} layers of {options.width} x {options.width}, AdamW, rank 0\n"
              "#                                            MiB on    MiB in   MiB in    bytes   planned      took    time\n"
              "# ranks                optimizer ratio  param   device     host    files   % off        ms        ms   % off")
        good = [show(trial, [(plan(options, *trial), engine(options, *trial)) for _ in range(options.rounds)]) for trial in TRIALS]
    print(f"# {sum(good)} of {len(good)} within {100 * MOST_BYTES:g} % of the bytes and {100 * MOST_TIME:g} % of the time")
    return 0 if all(good) else 1


sys.exit(main())
