"""ringbench's pictures: what is in them, and what is refused before anything is measured. Writes TAP."""
import contextlib
import json
import os
import re
import shutil
import struct
import tempfile
import xml.etree.ElementTree as ElementTree

from tap import B, SLOW, Skip, main, run, test

RINGBENCH, RINGRUN = os.path.abspath(f"{B}/ringbench"), os.path.abspath(f"{B}/ringrun")
FAST = ("-n", "2", "-i", "2", "-w", "0")

ROW = {"collective": "all_reduce", "type": "f32", "op": "sum", "root": -1, "ranks": 2, "transport": "shm",
       "algorithm": "best", "memory": "host", "in_place": False, "bytes": 64, "algbw_GBs": 1.5, "busbw_GBs": 1.5}


def need_gnuplot():
    if not shutil.which("gnuplot"):
        raise Skip("gnuplot is missing: make deps")


def need_against():
    if "--against FILE" not in run(RINGBENCH, "--help").stdout:
        raise Skip("this build has no --against: it lacks jansson: make deps")


@contextlib.contextmanager
def folder():
    with tempfile.TemporaryDirectory(dir=B) as path:
        yield os.path.abspath(path)


def write(path, *rows):
    with open(path, "w") as f:
        for row in rows:
            f.write((row if isinstance(row, str) else json.dumps(row)) + "\n")
    return path


def draw(path, *args, **kwargs):
    """Draws an SVG, and returns its texts and the finished run."""
    done = run(RINGBENCH, *args, "--plot", path, **kwargs)
    assert done.returncode == 0, done
    return [t.text for t in ElementTree.parse(path).iter() if t.tag.endswith("text") or t.tag.endswith("tspan")
            if t.text], done


def refused(code, words, *args, env=None):
    """A refusal: one message, and nothing measured."""
    done = run(RINGBENCH, *args, env=env)
    assert done.returncode == code, (args, done)
    assert all(word in done.stderr for word in words), (words, done)
    assert done.stderr.count("ringbench: ") == 1 and "all_reduce" not in done.stdout, done


def fake_gnuplot(path, *lines):
    """An environment in which gnuplot is this script."""
    with open(f"{path}/gnuplot", "w") as f:
        f.write("#!/bin/sh\n" + "\n".join(lines) + "\n")
    os.chmod(f"{path}/gnuplot", 0o755)
    return {**os.environ, "PATH": f"{path}:{os.environ['PATH']}"}


@test
def a_picture_names_curves_axes_and_the_machine():
    need_gnuplot()
    with folder() as path:
        texts, _ = draw(f"{path}/x.svg", *FAST, "all", "-e", "64K", "-f", "16")
    for coll in ("all_reduce", "broadcast", "reduce", "reduce_scatter", "all_gather"):
        for place in ("in place", "out of place"):
            assert texts.count(f"{coll} {place}") == 1, texts
    for text in ("busbw: what a link carries", "algbw: size / time", "GB/s (10⁹ bytes per second)",
                 "message size (of the whole vector)", "8 B", "32 KiB"):
        assert text in texts, (text, texts)
    assert "ringbench: f32, sum, root 0, 2 ranks, shm, best, host memory" in texts, texts
    assert any(re.search(r"; Kolo \d+\.\d+\.\d+; \d{4}-\d\d-\d\d;", t) for t in texts), texts


@test
def the_legend_has_what_was_measured_and_only_what_differs():
    need_gnuplot()
    with folder() as path:
        texts, _ = draw(f"{path}/x.svg", *FAST, "reduce", "broadcast", "-t", "f16", "-o", "all", "-r", "all", "-e", "64",
                        "--in-place")
        legend = {t for t in texts if re.match("(reduce|broadcast) ", t)}
        ops = ("sum", "prod", "min", "max", "avg")
        assert legend == ({f"broadcast root {r}" for r in (0, 1)} |
                          {f"reduce {op} root {r}" for op in ops for r in (0, 1)}), legend
        assert "ringbench: f16, in place, 2 ranks, shm, best, host memory" in texts, texts
        texts, _ = draw(f"{path}/x.svg", *FAST, "-e", "64", "--in-place")
        assert "all_reduce" in texts, texts


@test
def a_png_has_twice_the_size_of_the_svg():
    need_gnuplot()
    with folder() as path:
        draw(f"{path}/x.svg", *FAST, "-e", "1K")
        svg = ElementTree.parse(f"{path}/x.svg").getroot()
        assert run(RINGBENCH, *FAST, "-e", "1K", "--plot", f"{path}/x.png").returncode == 0
        with open(f"{path}/x.png", "rb") as f:
            head = f.read(24)
    assert head[:8] == b"\x89PNG\r\n\x1a\n" and head[12:16] == b"IHDR", head
    assert struct.unpack(">II", head[16:]) == (2 * int(svg.get("width")), 2 * int(svg.get("height"))), head


@test
def table_json_and_csv_are_written_beside_a_picture():
    need_gnuplot()
    with folder() as path:
        _, done = draw(f"{path}/x.svg", *FAST, "-e", "64", "--json", f"{path}/x.json", "--csv", f"{path}/x.csv")
        assert "0 wrong elements" in done.stdout and not done.stderr, done
        with open(f"{path}/x.json") as f, open(f"{path}/x.csv") as g:
            assert len([json.loads(line) for line in f]) == 8 and len(g.readlines()) == 9
        assert sorted(os.listdir(path)) == ["x.csv", "x.json", "x.svg"]


@test
def a_job_of_ringrun_draws_one_picture():
    need_gnuplot()
    with folder() as path:
        done = run(RINGRUN, "-n", "3", RINGBENCH, "-i", "2", "-e", "64", "--plot", f"{path}/x.svg")
        assert done.returncode == 0 and not done.stderr, done
        assert "3 ranks" in open(f"{path}/x.svg").read()


@test
def earlier_runs_are_drawn_beside_this_one():
    need_gnuplot()
    need_against()
    with folder() as path:
        before = f"{path}/before.json"
        assert run(RINGBENCH, *FAST, "-e", "64", "--json", before).returncode == 0
        # The file may be replaced by the run that is compared with it.
        texts, _ = draw(f"{path}/x.svg", *FAST, "-e", "64", "-t", "f16", "--against", before, "--json", before)
        for place in ("in place", "out of place"):
            assert f"before.json: f32 {place}" in texts and f"this run: f16 {place}" in texts, texts
        assert any(t.startswith("this run: ") for t in texts), texts
        assert all(json.loads(line)["type"] == "f16" for line in open(before))
        os.mkdir(f"{path}/other")
        other = shutil.copy(before, f"{path}/other/before.json")
        texts, _ = draw(f"{path}/x.svg", *FAST, "-e", "64", "--in-place", "--against", before, "--against", other)
        assert any(t.startswith(before) for t in texts) and any(t.startswith(other) for t in texts), texts


@test
def a_curve_keeps_its_colour_in_each_source():
    need_against()
    with folder() as path:
        file = write(f"{path}/a.json", *({**ROW, "op": op, "in_place": p} for op in ("max", "sum") for p in (False, True)))
        env = fake_gnuplot(path, f"cat > {path}/script", "echo drawn")
        done = run(RINGBENCH, *FAST, "-o", "all", "-e", "64", "--against", file, "--plot", f"{path}/x.svg", "--limit",
                   "460000", env=env)
        assert done.returncode == 0, done
        script = open(f"{path}/script").read()
    found = re.findall(r"title '(.+?): (\w+) (in|out of) place' with linespoints lc rgb '(\S+)' lw \S+ dt (\d) pt (\d+)", script)
    style = {line[:3]: line[3:] for line in found}
    assert len(style) == 14 and len(set(style.values())) == 14, style
    for (source, op, place), (colour, dash, shape) in style.items():
        assert colour == style["this run", op, place][0] and (dash == "1") == (source == "this run"), style
    assert re.search(r"yrange \[\S+:500500\]", script), script


@test
def names_can_not_break_the_picture():
    need_gnuplot()
    need_against()
    with folder() as path:
        for name, label in (("it's a_b^{2} & <c> \"d\" $x `e` \\n.json",) * 2, ("früh.json",) * 2,
                            ("new\nline.json", "new?line.json"), (b"\xff.json", "?.json")):
            file = os.path.join(os.fsencode(path), os.fsencode(name))
            texts, _ = draw(f"{path}/x.svg", *FAST, "-e", "64", "--in-place", "--against", write(file, ROW),
                            "--limit", "3:" + label)
            assert any(t.startswith(label) for t in texts) and f"{label}, 3 GB/s" in texts, texts


@test
def what_has_no_bandwidth_is_left_out_and_counted():
    need_gnuplot()
    with folder() as path:
        _, done = draw(f"{path}/x.svg", *FAST, "all_reduce", "barrier", "-e", "64")
        assert "no bandwidth (barriers, 0 bytes, null): 2\n" in done.stderr, done
        texts, done = draw(f"{path}/x.svg", "-n", "1", "-i", "2", "-e", "64")
        assert "none: a single rank uses no link" in texts and not done.stderr, (texts, done)
        texts, _ = draw(f"{path}/x.svg", *FAST, "-b", "1K", "-e", "1K")
        assert "1 KiB" in texts, texts
        done = run(RINGBENCH, "-n", "3", "-i", "2", "all_gather", "barrier", "-b", "8", "-e", "8", "--plot",
                   f"{path}/x.svg")
        assert done.returncode == 3 and "nothing was measured that has a bandwidth" in done.stderr, done


@test
def null_and_zero_in_a_file_are_left_out():
    need_gnuplot()
    need_against()
    with folder() as path:
        rows = [ROW, {**ROW, "algbw_GBs": None}, {**ROW, "bytes": 0, "algbw_GBs": 0}, {**ROW, "busbw_GBs": None}]
        _, done = draw(f"{path}/x.svg", *FAST, "-e", "64", "--against", write(f"{path}/a.json", *rows))
        assert "no bandwidth (barriers, 0 bytes, null): 2\n" in done.stderr, done


@test
def limits_are_lines_with_names():
    need_gnuplot()
    with folder() as path:
        texts, _ = draw(f"{path}/x.svg", *FAST, "-e", "64", "--limit", "10.8:memcpy", "--limit", "2500")
    assert "memcpy, 10.8 GB/s" in texts and "limit, 2500 GB/s" in texts and "5000" not in texts, texts
    assert "1000" in texts, texts


@test
def a_legend_too_long_says_so():
    need_gnuplot()
    if SLOW:
        raise Skip("many operations")
    with folder() as path:
        texts, done = draw(f"{path}/x.svg", *FAST, "-t", "all", "-o", "all", "-b", "8", "-e", "8")
    assert "the legend names the first 96 of 250 curves" in done.stderr, done
    assert len([t for t in texts if t.endswith(" place")]) == 96, texts


@test
def mistakes_are_told_before_measuring():
    need_gnuplot()
    with folder() as path:
        svg, plot = f"{path}/x.svg", ("--plot", f"{path}/x.svg")
        for words, args in (((".svg or .png", "x.pdf"), ("--plot", "x.pdf")), ((".svg or .png",), ("--plot", "-")),
                            (("barrier",), ("barrier", *plot)), (("--plot FILE",), ("--limit", "3")),
                            (("--limit 0",), (*plot, "--limit", "0")), (("--limit 3:",), (*plot, "--limit", "3:")),
                            (("--limit x",), (*plot, "--limit", "x")), (("--limit nan",), (*plot, "--limit", "nan")),
                            (("--limit 1e300",), (*plot, "--limit", "1e300")),
                            (("at most 8",), (*plot, *("--limit", "3") * 9)),
                            (("--json and --plot", svg), (*plot, "--json", svg))):
            refused(2, words, *FAST, *args)
        refused(3, ("/nonexistent/x.svg", "No such file"), *FAST, "--plot", "/nonexistent/x.svg")
        assert os.listdir(path) == []
        os.symlink("/dev/full", svg)
        done = run(RINGBENCH, *FAST, "-e", "8", *plot)
        assert done.returncode == 3 and "could not be written" in done.stderr, done


@test
def files_that_ringbench_did_not_write_are_refused_with_their_line():
    need_gnuplot()
    need_against()
    with folder() as path:
        file, plot = f"{path}/a.json", ("--plot", f"{path}/x.svg")
        less = {k: v for k, v in ROW.items() if k != "bytes"}
        for line, word, *rows in ((1, "expected", "a table"), (2, "expected", ROW, '{"collective": '),
                                  (2, "bytes", ROW, less), (1, "true or false, got null", {**ROW, "in_place": None}),
                                  (3, "expected", ROW, ROW, ""), (1, "algbw", {**ROW, "algbw_GBs": "fast"}),
                                  (1, "busbw", {**ROW, "busbw_GBs": -1}),
                                  (1, "1e9", {**ROW, "algbw_GBs": 1e300}), (1, "1e-12", {**ROW, "busbw_GBs": 1e-300}), (1, "bytes", {**ROW, "bytes": -8}),
                                  (1, "Expected object", "[1]"), (1, "empty")):
            write(file, *rows)
            refused(3, (f"{file}, line {line}: ", word, "ringbench --json"), *FAST, *plot, "--against", file)
        refused(3, ("absent.json", "No such file"), *FAST, *plot, "--against", "absent.json")
        refused(3, ("Is a directory",), *FAST, *plot, "--against", path)
        refused(2, ("each file only once",), *FAST, *plot, "--against", file, "--against", file)
        refused(2, ("--plot FILE",), *FAST, "--against", file)
        refused(2, ("at most 16",), *FAST, *plot, *(a for k in range(17) for a in ("--against", f"{k}.json")))
        assert os.listdir(path) == ["a.json"]


@test
def a_gnuplot_that_is_missing_or_can_not_draw_is_told():
    with folder() as path:
        svg = f"{path}/x.svg"
        refused(3, ("starting gnuplot", "install"), *FAST, "--plot", svg, env={**os.environ, "PATH": path})
        refused(3, ("gnuplot failed", "terminal svg"), *FAST, "--plot", svg, env=fake_gnuplot(path, "exit 1"))
        assert os.listdir(path) == ["gnuplot"]
        for words, end in ((("drew nothing",), ""), (("gnuplot failed",), "grep -q curve && exit 1; exit 0")):
            done = run(RINGBENCH, *FAST, "-e", "8", "--plot", svg, env=fake_gnuplot(path, end))
            assert done.returncode == 3 and all(w in done.stderr for w in words), done
            assert "0 wrong elements" in done.stdout, done


main()
