"""ringinfo from the outside: documented fields, sections, machines of all kinds, the probe, the environment."""
import glob
import json
import os
import re
import subprocess
import tempfile

from tap import B, SLOW, Skip, main, run, test

RINGRUN, RINGINFO = f"{B}/ringrun", f"{B}/ringinfo"
NUMBER = (int, float)

if os.environ.get("SAN"):
    os.environ["HWLOC_COMPONENTS"] = "-pci"  # that plugin leaks, and is unloaded before a suppression can name it

PART = {"kind": str, "name": str, "built": bool, "usable": bool, "reason": str}
NODE = {"what": str, "count": int, "name": str, "detail": str, "cpus": str, "children": list}
ALGORITHM = {"memory": str, "collective": str, "algorithm": str, "min_bytes": int, "max_bytes": (int, type(None)),
             "min_us": (float, type(None)), "max_us": (float, type(None))}
RING = {"launcher": str, "hop_us": NUMBER, "order": str, "slots_near": str, "nranks": int, "nslots": int, "slot_len": int, "algorithms": list, "ranks": list}
RANK = {"rank": int, "next": int, "pid": int, "host": str, "processors": int, "cpus": str,
        "transport": str, "stores": str}
EDGE = {"from": int, "to": int, "rate_GBs": NUMBER, "latency_us": NUMBER, "wrong": int, "slow": bool}
VARIABLE = {"name": str, "set": bool, "good": bool, "value": (str, type(None)), "default": (str, type(None)),
            "range": str, "help": str}


def info(*args, launcher=(), **kwargs):
    """ringinfo's JSON object, after a successful run."""
    done = run(*launcher, RINGINFO, "--json", *args, **kwargs)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def text(*args, **kwargs):
    done = run(RINGINFO, *args, **kwargs)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def environment(**variables):
    env = dict(os.environ, **variables)
    if {"HWLOC_SYNTHETIC", "HWLOC_XMLFILE"} & set(variables) and "HWLOC_COMPONENTS" not in variables:
        env.pop("HWLOC_COMPONENTS", None)  # where it is set, hwloc reads neither
    return env


def check_fields(thing, fields):
    assert set(thing) == set(fields), thing
    for name, kind in fields.items():
        assert isinstance(thing[name], kind), (name, thing)


def check_tree(node):
    check_fields(node, NODE)
    for child in node["children"]:
        check_tree(child)


def need_hwloc():
    part = next(p for p in info()["parts"] if p["name"] == "hwloc")
    if not part["built"]:
        raise Skip(part["reason"])


def machine_section(**variables):
    need_hwloc()
    lines = text(env=environment(**variables)).split("\nMachine ")[1].split("\n\n")[0].splitlines()
    return lines[1:]


@test
def json_has_the_documented_fields():
    it = info()
    assert set(it) == {"version", "parts", "machine", "distances", "ring", "probe", "environment", "unknown", "nccl"}, it
    assert it["ring"] is None and it["probe"] is None and re.fullmatch(r"\d+\.\d+\.\d+", it["version"])
    check_tree(it["machine"])
    assert it["machine"]["what"] == "machine" and it["machine"]["name"] == os.uname().nodename
    for part in it["parts"]:
        check_fields(part, PART)
        assert (part["reason"] == "") == part["usable"] and part["built"] >= part["usable"], part
    for variable in it["environment"]:
        check_fields(variable, VARIABLE)


def check_algorithms(rows, nranks):
    """Each collective has its rows together: of Kolo's own memory, then of any, without gaps; one rank needs none. What is made of
    messages has one where the board was measured to be worth it, as for an all-gather."""
    names = []
    for row in rows:
        check_fields(row, ALGORITHM)
        assert row["algorithm"] in (("lane", "direct") if row["collective"] == "send_recv" else ("ring", "board", "slices", "direct")), rows
        assert row["memory"] in ("any", "alloc"), rows
        if row["memory"] == "alloc":
            assert row["algorithm"] == "direct" and row["max_bytes"] is None, rows
            continue
        if row["min_bytes"] == 0:
            names.append(row["collective"])
            end = 0
        assert row["collective"] == names[-1] and row["min_bytes"] == end, rows
        end = row["max_bytes"] and row["max_bytes"] + 1
    board = any(row["collective"] == "all_gather" and row["algorithm"] == "board" for row in rows)
    all_of_them = ["barrier", "broadcast", "reduce", "all_reduce", "reduce_scatter", "all_gather",
                   *(("all_to_all", "gather", "scatter") if board else ()), "send_recv"]
    assert names == (all_of_them if nranks > 1 else []), rows


@test
def json_of_a_ring_has_the_documented_fields():
    for n in (1, 2, 3, 5):
        ring = info(launcher=(RINGRUN, "-n", str(n)))["ring"]
        check_fields(ring, RING)
        assert ring["launcher"] == "kolo" and ring["nranks"] == n == len(ring["ranks"])
        check_algorithms(ring["algorithms"], n)
        for r, rank in enumerate(ring["ranks"]):
            check_fields(rank, RANK)
            assert rank["rank"] == r and rank["next"] == (-1 if n == 1 else (r + 1) % n), rank
            assert rank["transport"] == ("none" if n == 1 else "shm") and rank["host"] == os.uname().nodename
        assert len({rank["pid"] for rank in ring["ranks"]}) == n


@test
def text_has_its_sections_and_fits_80_columns():
    out = text("-n", "2", "--probe", env=environment(KOLO_SLOT_LEN="8192"))
    for words in ("Kolo ", "transport  shm        yes", "cuda       no: not in this version", "\nMachine ",
                  "\nRing of 2 ranks (launcher: kolo), 7 slots of 8 KiB per link", "\nAlgorithm", "\nEdges", "0 -> 1",
                  "1 -> 0", "slow: rate below", "\nEnvironment", "yes, used"):
        assert words in out, (words, out)
    drawn = out.split("\nMachine ")[1].split("\n\n")[0]  # names of processors, devices and hosts may be long
    lines = out.replace(drawn, "").replace(os.uname().nodename, "host").splitlines()
    assert all(len(line) <= 80 for line in lines), [line for line in lines if len(line) > 80]
    out = text()
    assert "\nRing" not in out and "\nEdges" not in out and "\nMachine " in out, out


@test
def the_agreed_slots_are_told():
    ring = info("-n", "2", env=environment(KOLO_SLOTS="7", KOLO_SLOT_LEN="12288"))["ring"]
    assert (ring["nslots"], ring["slot_len"]) == (7, 12288), ring


@test
def a_binding_is_told():
    if len(os.sched_getaffinity(0)) < 2:
        raise Skip("one processor")
    cpus = sorted(os.sched_getaffinity(0))[:2]
    run_on = ("taskset", "-c", str(cpus[1]))
    ring = info(launcher=(RINGRUN, "-n", "1", "--bind", "none", *run_on))["ring"]
    assert ring["ranks"][0]["cpus"] == str(cpus[1]), ring


@test
def the_probe_measures_each_edge_once():
    for n in (2, 3, 4):
        probe = info("-n", str(n), "--probe")["probe"]
        assert set(probe) == {"edges", "best_GBs", "best_us", "slow_rule"}, probe
        assert [(e["from"], e["to"]) for e in probe["edges"]] == [(r, (r + 1) % n) for r in range(n)]
        for edge in probe["edges"]:
            check_fields(edge, EDGE)
            assert edge["wrong"] == 0 and edge["rate_GBs"] > 0 and edge["latency_us"] > 0, edge
        assert probe["best_GBs"] == max(e["rate_GBs"] for e in probe["edges"]), probe
        assert probe["best_us"] == min(e["latency_us"] for e in probe["edges"]), probe


@test
def ranks_that_share_processors_are_told():
    many = os.cpu_count() + 1
    if many > 17:
        raise Skip("so many processors that the ranks would take long")
    shares = f"{many} ranks share {many - 1} processor"
    assert shares in text("-n", str(many), "--probe")
    assert "scheduler" not in text("-n", str(min(2, many - 1)), "--probe")


@test
def the_probe_of_one_rank_has_no_edges():
    probe = info("-n", "1", "--probe")["probe"]
    assert probe["edges"] == [] and probe["best_GBs"] is None, probe
    assert "one rank sends to nobody" in text("-n", "1", "--probe")


@test
def every_variable_is_listed_with_its_value():
    with tempfile.TemporaryDirectory() as folder:
        check_values(folder)


def check_values(folder):
    names = [v["name"] for v in info()["environment"]]
    assert len(names) == len(set(names)) and "KOLO_TIMEOUT" in names
    # A job of one rank, with something that is allowed in each variable that does not change where ranks meet.
    allowed = {"KOLO_RANK": "0", "KOLO_NRANKS": "1", "KOLO_LAUNCHER": "kolo", "KOLO_SLOT_LEN": "4096",
               "KOLO_NET": "tcp", "KOLO_ORDER": "tree",
               "KOLO_LOG": "warn:/dev/null", "KOLO_TRACE": folder}
    values = {name: allowed.get(name, "13") for name in names if name not in ("KOLO_ID", "KOLO_ROOT", "KOLO_IFACE")}
    shown = {v["name"]: v for v in info(env=environment(**values))["environment"]}
    for name, value in values.items():
        assert shown[name]["set"] and shown[name]["value"] == (None if name == "KOLO_JOB" else value), shown[name]
    out = text(env=environment(**values))
    for name, value in values.items():
        line = next(x for x in out.splitlines() if x.startswith(f"  {name} "))
        assert line.split()[1] == ("(set)" if name == "KOLO_JOB" else value), line
    # Those that would change where ranks meet, and what no job has.
    for name, value in (("KOLO_ID", "13"), ("KOLO_ROOT", "localhost:13"), ("KOLO_IFACE", "some\n\"\\\xff\u20ac")):
        variable = next(v for v in info(env=environment(**{name: value}))["environment"] if v["name"] == name)
        assert variable["set"] and variable["value"] == (None if name == "KOLO_ID" else value), variable


@test
def values_that_joining_would_refuse_are_marked():
    bad = {"KOLO_SLOTS": "1000", "KOLO_TIMEOUT": "abc", "KOLO_SLOT_LEN": "4097", "KOLO_NET": "pigeon", "KOLO_LOG": "bogus\x1b",
           "KOLO_TRACE": "/no/such", "KOLO_ORDER": "bush"}
    env = environment(KOLO_IFACE="nonsense", **bad)
    assert {v["name"] for v in info(env=env)["environment"] if not v["good"]} == set(bad)
    out = text(env=env)
    for name, value in bad.items():
        assert f"\n      REFUSED: {name}={value}".replace("\x1b", "?") in out, out
    assert out.count("REFUSED") == len(bad) and all(v["good"] for v in info()["environment"])
    assert "REFUSED" not in text()


@test
def variables_alone_need_no_job():
    env = environment(KOLO_RANK="0", KOLO_SLOTS="1000", KOLO_SLOTZ="9")  # half a job, which joining would refuse
    alone = run(RINGINFO, "--environment", "--json", env=env)
    assert alone.returncode == 0, alone
    it = json.loads(alone.stdout)
    assert set(it) == {"environment", "unknown", "nccl"} and it["unknown"] == ["KOLO_SLOTZ"], it
    assert [v["name"] for v in it["environment"]] == [v["name"] for v in info()["environment"]]
    assert [v["name"] for v in it["environment"] if not v["good"]] == ["KOLO_SLOTS"], it
    assert text("--environment") == text()[text().index("\nEnvironment ") + 1:]
    for args in (("-n", "2"), ("--probe",)):
        done = run(RINGINFO, "--environment", *args)
        assert done.returncode == 2 and "--environment" in done.stderr and not done.stdout, done


@test
def variables_of_nccl_are_listed_with_what_becomes_of_them():
    env = environment(NCCL_ALGO="Ring", NCCL_IB_TC="106", NCCL_WHAT="\n", NCCLX="1")
    listed = {v["name"]: (v["value"], v["used"]) for v in info(env=env)["nccl"]}
    assert listed == {"NCCL_ALGO": ("Ring", False), "NCCL_IB_TC": ("106", True), "NCCL_WHAT": ("\n", False)}, listed
    out = text("--environment", env=env)
    assert "  NCCL_ALGO=Ring  not used\n      an order of additions" in out and "  NCCL_IB_TC=106  used\n      KOLO_VERBS_TC\n" in out, out
    assert "  NCCL_WHAT=?  not used\n" in out and "NCCLX" not in out and "NCCL" not in text("--environment"), out


@test
def variables_that_are_not_kolos_are_told():
    env = environment(KOLO_SLOTZ="9", KOLO_="", KOLO_RAN="0", KOLO_JOB_="\n", KOLONEL="1", xKOLO_A="1")
    assert sorted(info(env=env)["unknown"]) == ["KOLO_", "KOLO_JOB_", "KOLO_RAN", "KOLO_SLOTZ"]
    out = text(env=env)
    assert "\n  KOLO_SLOTZ: no variable of Kolo's; misspelt?\n" in out, out
    assert info()["unknown"] == [] and "misspelt" not in text()


@test
def bytes_that_are_no_text_are_printed_safely():
    value = b"a\xff\xc0\xaf\x1b\xe2\x82b"
    env = {**os.environb, b"KOLO_IFACE": value}
    done = subprocess.run([RINGINFO, "--json"], env=env, capture_output=True, timeout=60)
    assert done.returncode == 0, done
    shown = {v["name"]: v["value"] for v in json.loads(done.stdout.decode())["environment"]}
    assert shown["KOLO_IFACE"] == "a\ufffd\ufffd\ufffd\x1b\ufffd\ufffdb", shown
    done = subprocess.run([RINGINFO], env=env, capture_output=True, timeout=60)
    assert done.returncode == 0 and b"\x1b" not in done.stdout, done


@test
def every_variable_that_the_library_reads_is_listed():
    read = set()
    for path in glob.glob("comm/**/*.c", recursive=True):
        with open(path) as f:
            read |= set(re.findall(r'\bget(?:env)?\("(KOLO_[A-Z0-9_]+)"\)', f.read()))
    names = {v["name"] for v in info()["environment"]}
    assert "KOLO_LOG" in read and read <= names, read - names
    with open("README.md") as f:
        rows = [line for line in f if line.startswith("| `KOLO_")]
    told = {name for row in rows for name in re.findall(r"`(KOLO_[A-Z0-9_]+)`", row.split("|")[1])}
    assert told and told <= names, told - names # kolo-environment(7) has all: tests/install/man.sh


@test
def equal_packages_are_drawn_once():
    assert machine_section(HWLOC_SYNTHETIC="pack:2 numa:2 l3:2 l2:4 l1d:1 core:1 pu:2") == [
        "  2 x package 0, 1 (cpus 0-31, 32-63)",
        "    2 x NUMA node 0, 1, 2, 3 (1 GiB; cpus 0-15, 16-31, 32-47, 48-63)",
        "      2 x L3 (16 MiB)",
        "        4 x core (L2 4 MiB, L1d 32 KiB, 2 threads)"]
    assert machine_section(HWLOC_SYNTHETIC="pack:1 die:2 l2:2 core:3 pu:1") == [
        "  package 0 (cpus 0-11)",
        "    NUMA node 0 (1 GiB; cpus 0-11)",
        "    2 x die",
        "      2 x L2 (4 MiB)",
        "        3 x core"]


@test
def nics_and_gpus_are_drawn_where_they_hang():
    assert machine_section(HWLOC_XMLFILE="tests/tools/machine.xml") == [
        "  package 0 (Some Processor; cpus 0-1)",
        "    NUMA node 0 (1 GiB; cpus 0-1)",
        "    core (2 threads)",
        "    GPU nvml0 (Some GPU at 0000:10:00.0, 63.0 GB/s)",
        "  package 1 (Some Processor; cpus 2-3)",
        "    NUMA node 1 (1 GiB; cpus 2-3)",
        "    core (2 threads)",
        "    NIC ens1, mlx5_0 (PCI 15b3:101d at 0000:81:00.0, 15.8 GB/s)",
        "  NUMALatency, from row to column in the order of the rows",
        "    NUMA node 0    10    21",
        "    NUMA node 1    22    10"]
    assert info(env=environment(HWLOC_XMLFILE="tests/tools/machine.xml"))["distances"] == [
        {"name": "NUMALatency", "between": ["NUMA node 0", "NUMA node 1"], "values": [[10, 21], [22, 10]]}]


@test
def a_topology_that_can_not_be_read_is_said():
    out = "\n".join(machine_section(HWLOC_XMLFILE="/nonexistent", HWLOC_COMPONENTS="xml,stop"))
    assert "hwloc could not load" in out, out


@test
def a_build_without_hwloc_says_what_it_leaves_out():
    if SLOW:
        raise Skip("one build is enough")
    place = f"{B}/tests/without_hwloc"
    done = run(os.environ.get("MAKE", "make"), f"-j{os.cpu_count()}", f"B={place}", "HWLOC=no", "CFLAGS=-O0", "SAN=", "report",
               f"{place}/ringinfo", timeout=300)
    assert done.returncode == 0 and "hwloc   no: cores are counted" in done.stdout, done.stdout + done.stderr
    out = run(f"{place}/ringinfo").stdout
    assert "hwloc      no: not in this build" in out and "no caches, NUMA nodes, NICs or GPUs" in out, out
    assert json.loads(run(f"{place}/ringinfo", "--json").stdout)["machine"]["children"] == []


@test
def mistakes_are_refused():
    for args, word in ((["--nope"], "nope"), (["-n", "x"], "-n x"), (["-n", "0"], "-n 0"), (["nonsense"], "nonsense")):
        done = run(RINGINFO, *args)
        assert done.returncode == 2 and word in done.stderr and not done.stdout, (args, done)
    done = run(RINGRUN, "-n", "2", RINGINFO, "-n", "3")
    assert done.returncode == 2 and done.stderr.count("-n 3, but the job") == 1, done
    done = run(RINGINFO, "-n", "2", env=environment(KOLO_SLOTS="1"))
    assert done.returncode == 3 and "KOLO_SLOTS=1" in done.stderr and not done.stdout, done
    done = run(RINGINFO, env=environment(KOLO_RANK="0"))
    assert done.returncode == 3 and "without KOLO_NRANKS" in done.stderr, done


@test
def help_and_version_are_told():
    done = run(RINGINFO, "--help")
    assert done.returncode == 0 and "Exit status" in done.stdout, done
    assert run(RINGINFO, "--version").stdout == f"ringinfo (Kolo) {info()['version']}\n"


@test
def output_that_can_not_be_written_is_noticed():
    with open("/dev/full", "w") as full:
        for command in ([RINGINFO], [RINGINFO, "-n", "2", "--json"]):
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
            assert done.returncode == 3 and "could not be written" in done.stderr, done


if __name__ == "__main__":
    main()
