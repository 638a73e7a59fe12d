"""ringrun's command line: which ranks go where, the launchers' commands, what ranks are told, and every refusal. One host is
enough: --print-command starts nothing, and an ssh of the tests starts other hosts' agents here. Writes TAP."""
import json
import os
import random
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager

from tap import B, SLOW, Skip, finish, main, run, test

RINGRUN, RINGBENCH = (os.path.abspath(f"{B}/{tool}") for tool in ("ringrun", "ringbench"))
KEPT = ("PATH", "LD_LIBRARY_PATH", "TMPDIR", "ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS")


@contextmanager
def folder():
    """An empty one, which is the home folder too."""
    with tempfile.TemporaryDirectory() as path:
        yield os.path.realpath(path)


def environment(where, env):
    """Nothing that ringrun would read, and env."""
    return {**{name: os.environ[name] for name in KEPT if name in os.environ}, "HOME": where, **(env or {})}


def ringrun(where, *words, env=None, program=RINGRUN):
    return run(program, *words, cwd=where, env=environment(where, env), stdin=subprocess.DEVNULL, timeout=60)


def start(where, *words):
    pipe = subprocess.PIPE
    return subprocess.Popen([RINGRUN, *words], cwd=where, env=environment(where, None), stdin=subprocess.DEVNULL, stdout=pipe,
                            stderr=pipe, text=True)


def write(path, text, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(text if isinstance(text, bytes) else text.encode())
    os.chmod(path, mode)


def read(path):
    with open(path) as file:
        return file.read()


def check_rows(rows, check):
    """Names all rows for which check returns something."""
    wrong = [f"{row}\n    {why}" for row in rows if (why := check(*row))]
    assert not wrong, "\n".join([f"{len(wrong)} of {len(rows)} rows", *wrong])


# What a rank sees, as one line.
SHOW = """import json, os, sys
sys.stdout.write(json.dumps({"cwd": os.getcwd(), "cores": sorted(os.sched_getaffinity(0)), **os.environ}) + "\\n")"""


def ranks(where, *options, status=0, **kwargs):
    """The environments of the ranks of a job, in order of rank."""
    done = ringrun(where, *options, sys.executable, "-S", "-c", SHOW, **kwargs)
    assert done.returncode == status, done
    return sorted((json.loads(line) for line in done.stdout.splitlines()), key=lambda rank: int(rank["RANK"]))


def fake_ssh(where):
    """A folder for PATH with an ssh that runs its last word here, in an empty environment, as a login would."""
    write(f"{where}/fake/ssh", f"""#!/bin/sh
for last; do :; done
exec env -i PATH={shlex.quote(os.environ["PATH"])} HOME=/ sh -c "$last"
""", 0o755)
    return f"{where}/fake:{os.environ['PATH']}"


def free_ports(n):
    """The first of n free ports in a row."""
    while True:
        with socket.socket() as one:
            one.bind(("", 0))
            port = one.getsockname()[1]
        try:
            for each in range(port, port + n):
                with socket.socket() as one:
                    one.bind(("", each))
            return port
        except (OSError, OverflowError):
            pass


# ---- Which ranks go where ------------------------------------------------------------------------------------------------

HOSTFILE = "a slots=4\nb slots=4\n"
FOUR, ALL = [0, 1, 2, 3], {"a": [0, 1, 2, 3], "b": [0, 1, 2, 3]}
PLACED = [ # hostfile or None, options, slots of each host in order
    ("a slots=2\nb slots=3\n", "", {"a": [0, 1], "b": [0, 1, 2]}),
    ("b slots=1\na slots=1\n", "", {"b": [0], "a": [0]}),
    ("  a slots=2\n \t b slots=1\n", "", {"a": [0, 1], "b": [0]}),
    ("a\tslots=2\nb \t  slots=1\n", "", {"a": [0, 1], "b": [0]}),
    ("# two\n\n   # of them\na slots=1\n \t \n#b slots=9\nc slots=2\n\n", "", {"a": [0], "c": [0, 1]}),
    ("a slots=2\r\n\r\n# x\r\nb slots=1\r\n", "", {"a": [0, 1], "b": [0]}),
    ("a slots=2 max_slots=4 # the big one\nb slots=1\t\n", "", {"a": [0, 1], "b": [0]}),
    ("a slots=1\nb slots=2", "", {"a": [0], "b": [0, 1]}),
    ("a slots=02\n", "", {"a": [0, 1]}),
    ("a slots=4096\n", "", {"a": list(range(4096))}),
    ("me@node-1.example.org slots=1\nnode_2 slots=1\n10.9.8.7 slots=1\n", "",
     {"me@node-1.example.org": [0], "node_2": [0], "10.9.8.7": [0]}),
    ("a slots=1\nA slots=1\n", "", {"a": [0], "A": [0]}),
    (None, "--host a,b", {"a": [0], "b": [0]}),
    (None, "--host a:2,b", {"a": [0, 1], "b": [0]}),
    (None, "--host a,a", {"a": [0, 1]}),
    (None, "--host a:2,b,a:1", {"a": [0, 1, 2], "b": [0]}),
    (None, "--host b:1,a:1 --include a@b", {"b": [0], "a": [0]}),
    (HOSTFILE, "--include a", {"a": FOUR}),
    (HOSTFILE, "--include a@b", ALL),
    (HOSTFILE, "--include b@a", ALL),
    (HOSTFILE, "--include b:0", {"b": [0]}),
    (HOSTFILE, "--include a@b:0,2", {"a": FOUR, "b": [0, 2]}),
    (HOSTFILE, "--include b:3,1,2,1", {"b": [1, 2, 3]}),
    (HOSTFILE, "--include b:2@a:3@b:0", {"a": [3], "b": [0, 2]}),
    (HOSTFILE, "--include b:2@b", {"b": FOUR}),
    (HOSTFILE, "--include a@a", {"a": FOUR}),
    (HOSTFILE, "--exclude a", {"b": FOUR}),
    (HOSTFILE, "--exclude b:0", {"a": FOUR, "b": [1, 2, 3]}),
    (HOSTFILE, "--exclude a:3,0@b:1", {"a": [1, 2], "b": [0, 2, 3]}),
    (HOSTFILE, "--exclude a:0,1,2,3", {"b": FOUR}),
    (HOSTFILE, "--exclude a:0@a:1,2@a:3@b:0", {"b": [1, 2, 3]}),
    (HOSTFILE, "--num_nodes 1", {"a": FOUR}),
    (HOSTFILE, "--num_nodes 2", ALL),
    (HOSTFILE, "--num_nodes -1 --num_gpus -1", ALL),
    (HOSTFILE, "--num_gpus 1", {"a": [0], "b": [0]}),
    (HOSTFILE, "--num_accelerators 3", {"a": [0, 1, 2], "b": [0, 1, 2]}),
    (HOSTFILE, "--num_nodes 1 --num_gpus 2", {"a": [0, 1]}),
    ("a slots=4\nb slots=2\n", "--num_nodes 1 --num_gpus 3", {"a": [0, 1, 2]}),
    (HOSTFILE, "-n 8", ALL),
    (HOSTFILE, "-n 5", {"a": FOUR, "b": [0]}),
    (HOSTFILE, "-n 4", {"a": FOUR}),
    (HOSTFILE, "-n 1", {"a": [0]}),
    (HOSTFILE, "-n 2 --include a:3@b:1,2", {"a": [3], "b": [1]}),
    (HOSTFILE, "-n 3 --exclude a:0,2", {"a": [1, 3], "b": [0]}),
    (HOSTFILE, "-n 3 --num_gpus 2", {"a": [0, 1], "b": [0]}),
    (HOSTFILE, "-n 4 --num_nodes 2", {"a": FOUR}),
]
LINE = re.compile(r"# (\S+): ranks? (\d+)(?: to (\d+))?$")


def printed(done):
    """What --print-command says: host, first rank, last rank."""
    found = filter(None, map(LINE.match, done.stdout.splitlines()))
    return [(m[1], int(m[2]), int(m[3] or m[2])) for m in found]


def expected(slots):
    lines, first = [], 0
    for host, some in slots.items():
        lines.append((host, first, first + len(some) - 1))
        first += len(some)
    return lines


def print_command(where, hostfile, options, **kwargs):
    if hostfile is not None:
        write(f"{where}/hosts", hostfile)
        options = ["--hostfile", "hosts", *options]
    return ringrun(where, *options, "--force_multi", "--print-command", "PROGRAM", **kwargs)


@test
def hostfiles_lists_and_filters_place_ranks():
    with folder() as where:
        def check(hostfile, options, slots):
            done = print_command(where, hostfile, shlex.split(options))
            return "" if done.returncode == 0 and not done.stderr and printed(done) == expected(slots) else done

        check_rows(PLACED, check)


@test
def ranks_have_the_slots_that_filters_choose():
    with folder() as where:
        path = fake_ssh(where)

        def check(hostfile, options, slots):
            write(f"{where}/hosts", hostfile)
            done = ringrun(where, "-H", "hosts", *shlex.split(options), "--force_multi", "sh", "-c",
                           "echo $CROSS_RANK $CROSS_SIZE $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_SIZE $CUDA_VISIBLE_DEVICES",
                           env={"PATH": path})
            size, rank, want = sum(map(len, slots.values())), 0, []
            for node, some in enumerate(slots.values()):
                for local in range(len(some)):
                    want.append(f"{node} {len(slots)} {rank} {size} {local} {len(some)} {','.join(map(str, some))}")
                    rank += 1
            return "" if done.returncode == 0 and sorted(done.stdout.splitlines()) == sorted(want) else (done, want)

        rows = [row for row in PLACED if row[0] and row[1]]
        check_rows(rows[::3] if SLOW else rows, check)


# The rules again, as text and regular expressions.
def model(hostfile, options):
    """The slots of each host; None if something is wrong."""
    hosts = {}
    for line in map(str.strip, hostfile.split("\n")):
        if not line or line.startswith("#"):
            continue
        m = re.match(r"([^\s-]\S*)[ \t]+slots=(\d+)(\s|$)", line, re.ASCII)
        if not m or m[1] in hosts or not re.fullmatch(r"[\w.:@%\[\]-]+", m[1], re.ASCII) or not 1 <= int(m[2]) <= 4096:
            return None
        hosts[m[1]] = list(range(int(m[2])))
    for option in ("include", "exclude"):
        if option not in options:
            continue
        named = {}
        for spec in options[option].split("@"):
            name, colon, some = spec.partition(":")
            if name not in hosts or (colon and not re.fullmatch(r"\d+(,\d+)*", some)):
                return None
            some = {int(slot) for slot in some.split(",")} if colon else set(hosts[name])
            if not some <= set(hosts[name]):
                return None
            named[name] = named.get(name, set()) | some
        hosts = {h: [i for i in s if (i in named.get(h, ())) == (option == "include")] for h, s in hosts.items()}
        hosts = {h: s for h, s in hosts.items() if s}
    nodes = options.get("num_nodes", len(hosts))
    hosts = dict(list(hosts.items())[:nodes]) if nodes <= len(hosts) else {}
    slots = options.get("num_gpus", 0)
    if any(len(s) < slots for s in hosts.values()):
        return None
    hosts = {h: s[:slots or None] for h, s in hosts.items()}
    left = options.get("n", sum(map(len, hosts.values())))
    if left > sum(map(len, hosts.values())):
        return None
    for h in hosts:
        hosts[h], left = hosts[h][:left], max(0, left - len(hosts[h]))
    return {h: s for h, s in hosts.items() if s} or None


def random_case(rng):
    """A hostfile and options that are right more often than not."""
    rare = lambda usual, *others: rng.choice(others) if rng.random() < 0.04 else usual
    def line():
        return "".join((rare("", " ", "\t"), rare(rng.choice("abcd"), "-a", "a'", "", "é", "a/b"), rare(" ", "\t", "  ", ""),
                        rare("slots=", "slots", "slot="), rare(str(rng.randint(1, 5)), "0", "-1", "x", "", "4097", "9" * 30),
                        rare("", " x", "x", "\r", "\t# y")))
    lines = [rare(line(), "", "#", " # a slots=2") for _ in range(rng.randint(1, 3))]
    def spec():
        some = ",".join(str(rng.randint(0, 4)) for _ in range(rng.randint(1, 3)))
        return rng.choice("abcd") + rare(rng.choice(("", f":{some}")), ":", ":x", ",1", ":0,", ":1;2", "::1")
    options = rng.choice(({}, {}, {"include": "@".join(spec() for _ in range(rng.randint(1, 3)))}, {"exclude": spec()},
                          {"num_nodes": rng.randint(1, 3)}, {"num_gpus": rng.randint(1, 4)}))
    if rng.random() < 0.3:
        options = {**options, "n": rng.randint(1, 6)}
    return "\n".join(lines) + rare("\n", ""), options


@test
def random_hostfiles_and_filters_follow_the_rules():
    rng, seed, good = random.Random(), int(os.environ.get("T_SEED", "2026")), 0
    with folder() as where:
        for number in range(50 if SLOW else 300):
            rng.seed(seed * 100000 + number)
            hostfile, options = random_case(rng)
            words = [word for name, value in options.items() for word in ("-n" if name == "n" else f"--{name}", str(value))]
            done, want = print_command(where, hostfile, words), model(hostfile, options)
            good += want is not None
            right = done.returncode == 0 and printed(done) == expected(want) if want else done.returncode == 125 and done.stderr
            assert right, f"T_SEED={seed}, number {number}: {hostfile!r} {words}: {done}, the model says {want}"
    assert number / 5 < good < number - number / 5, good


@test
def the_own_host_needs_no_launcher():
    with folder() as where:
        for name in ("localhost", socket.gethostname(), "127.0.0.1"):
            done = ringrun(where, "--host", f"{name}:2", "--print-command", "PROGRAM")
            assert done.stdout == f"# {name}: ranks 0 to 1, started by ringrun itself\n" and done.returncode == 0, done
            done = ringrun(where, "--host", f"{name}:2", "--force_multi", "--print-command", "PROGRAM")
            assert done.stdout.startswith(f"# {name}: ranks 0 to 1\n") and f" {name} 'exec " in done.stdout, done
        done = ringrun(where, "--host", "another_user@localhost", "--print-command", "PROGRAM")
        assert " another_user@localhost 'exec " in done.stdout, done
        done = ringrun(where, "-n", "3", "--print-command", "PROGRAM")
        assert done.stdout == "# localhost: ranks 0 to 2, started by ringrun itself\n", done
        for n in 1, 2:
            done = ringrun(where, "--host", "a:1,b:2", "--no_ssh", "--node_rank", str(n - 1), "--master_addr", "a",
                           "--print-command", "PROGRAM")
            want = f"# {'ab'[n - 1]}: {'rank 0' if n == 1 else 'ranks 1 to 2'}, started by ringrun itself\n"
            assert done.stdout == want and done.returncode == 0, done


# ---- Refusals ------------------------------------------------------------------------------------------------------------

WANT = "want NAME slots=N, like 'node7 slots=8'"
REFUSED = [ # hostfile or None, options, what the error must have
    ("a slots=1\nthis is bad slots=1\n", "", ["hosts, line 2: 'this is bad slots=1'", WANT]),
    ("# x\n\nmissingslots\n", "", ["hosts, line 3: 'missingslots'", WANT]),
    ("a\n", "", ["hosts, line 1: 'a'", WANT]),
    ("a slots = 2\n", "", ["hosts, line 1: 'a slots = 2'", WANT]),
    ("a slots\n", "", ["hosts, line 1: 'a slots'", WANT]),
    ("a SLOTS=2\n", "", ["hosts, line 1: 'a SLOTS=2'", WANT]),
    ("slots=2\n", "", ["hosts, line 1: 'slots=2'", WANT]),
    ("a:2\n", "", ["hosts, line 1: 'a:2'", WANT]),
    ("", "", ["hosts names no host", "a line for each, like 'node7 slots=8'"]),
    ("# a slots=1\n\n  # b slots=1\n", "", ["hosts names no host", "a line for each, like 'node7 slots=8'"]),
    ("a slots=1\nb slots=1\n\na slots=2\n", "", ["hosts, line 4: a is in line 1 already", "write it once, with all of its"]),
    ("a slots=0\n", "", ["hosts, line 1: a has no slots", "give it some, or begin the line with #"]),
    ("a slots=-1\n", "", ["hosts, line 1: 'slots=-1'", "from 1 to 4096", WANT]),
    ("a slots=x\n", "", ["hosts, line 1: 'slots=x'", "from 1 to 4096", WANT]),
    ("a slots=\n", "", ["hosts, line 1: 'slots='", "from 1 to 4096", WANT]),
    ("a slots=2x\n", "", ["hosts, line 1: 'slots=2x'", "from 1 to 4096", WANT]),
    ("a slots=2.5\n", "", ["hosts, line 1: 'slots=2.5'", "from 1 to 4096", WANT]),
    ("a slots=4097\n", "", ["hosts, line 1: 'slots=4097'", "from 1 to 4096", WANT]),
    ("a slots=99999999999\n", "", ["hosts, line 1: 'slots=99999999999'", "from 1 to 4096", WANT]),
    ("a slots=99999999999999999999999999\n", "", ["hosts, line 1: 'slots=99999999999999999999999999'", "from 1 to 4096", WANT]),
    ("slots=2 slots=1\n", "", ["hosts, line 1: 'slots=2' is no name of a host", WANT]),
    ("-a slots=1\n", "", ["hosts, line 1: '-a' is no name of a host", WANT]),
    ("-oProxyCommand=x slots=1\n", "", ["hosts, line 1: '-oProxyCommand=x' is no name of a host", WANT]),
    ("a;reboot slots=1\n", "", ["hosts, line 1: 'a;reboot' is no name of a host", WANT]),
    ("a$(x) slots=1\n", "", ["hosts, line 1: 'a$(x)' is no name of a host", WANT]),
    ("a,b slots=1\n", "", ["hosts, line 1: 'a,b' is no name of a host", WANT]),
    ("\xe4 slots=1\n", "", ["hosts, line 1: '\xe4' is no name of a host", WANT]),
    ("".join(f"h{i} slots=4096\n" for i in range(17)), "", ["hosts has 69632 slots in all", "at most 65536 ranks"]),
    (None, "-H nowhere", ["--hostfile nowhere", "No such file or directory"]),
    (None, "-H .", ["--hostfile .", "Is a directory"]),
    (HOSTFILE, "--host a", ["--hostfile and --host", "give one of them"]),
    (None, "--host ''", ["--host ", "'' is no name of a host", "a list like a:2,b:2"]),
    (None, "--host a,,b", ["--host a,,b", "'' is no name of a host", "a list like a:2,b:2"]),
    (None, "--host a,", ["--host a,", "'' is no name of a host", "a list like a:2,b:2"]),
    (None, "--host :2", ["--host :2", "':2' is no name of a host", "a list like a:2,b:2"]),
    (None, "--host 'a b'", ["--host a b", "'a b' is no name of a host", "a list like a:2,b:2"]),
    (None, "--host a,-b:2", ["--host a,-b:2", "'-b:2' is no name of a host", "a list like a:2,b:2"]),
    (None, "--host a:0", ["--host a:0", "want HOST or HOST:SLOTS, with 1 to 4096 slots"]),
    (None, "--host b,a:x", ["--host b,a:x", "'a:x'", "want HOST or HOST:SLOTS"]),
    (None, "--host a:", ["--host a:", "'a:'", "want HOST or HOST:SLOTS"]),
    (None, "--host a:-1", ["--host a:-1", "'a:-1'", "want HOST or HOST:SLOTS"]),
    (None, "--host a:2:3", ["--host a:2:3", "'a:2:3'", "want HOST or HOST:SLOTS"]),
    (None, "--host a:4097", ["--host a:4097", "'a:4097'", "with 1 to 4096 slots"]),
    (None, "--host a:4096,a --include a", ["--host a:4096,a", "a has more than 4096 slots"]),
    (HOSTFILE, "--include c", ["--include c", "hosts has no host 'c'"]),
    (HOSTFILE, "--include a@c:0", ["--include a@c:0", "hosts has no host 'c'"]),
    (HOSTFILE, "--include a,b", ["--include a,b", "hosts has no host 'a,b'"]),
    (HOSTFILE, "--include a:4", ["--include a:4", "a has no slot 4", "hosts gives it 4 (0 to 3)"]),
    (HOSTFILE, "--include a:99999999999", ["--include a:99999999999", "'99999999999' is no list of slots", "want HOST:0,2"]),
    (HOSTFILE, "--include a:", ["--include a:", "'' is no list of slots", "want HOST:0,2 and @ between hosts"]),
    (HOSTFILE, "--include a:1,", ["--include a:1,", "'1,' is no list of slots", "want HOST:0,2 and @ between hosts"]),
    (HOSTFILE, "--include a:x", ["--include a:x", "'x' is no list of slots", "want HOST:0,2 and @ between hosts"]),
    (HOSTFILE, "--include a:0-2", ["--include a:0-2", "'0-2' is no list of slots", "want HOST:0,2 and @ between hosts"]),
    (HOSTFILE, "--include a@", ["--include a@", "has no host ''"]),
    (HOSTFILE, "--exclude c", ["--exclude c", "hosts has no host 'c'"]),
    (HOSTFILE, "--exclude b:7", ["--exclude b:7", "b has no slot 7", "hosts gives it 4 (0 to 3)"]),
    (HOSTFILE, "--exclude a@b", ["--exclude a@b", "no host is left of hosts"]),
    (HOSTFILE, "--include a --exclude b", ["--include and --exclude", "give one of them"]),
    (HOSTFILE, "--include a --num_nodes 1", ["--include and --num_nodes", "give one of them"]),
    (HOSTFILE, "--include a --num_gpus 1", ["--include and --num_gpus", "give one of them"]),
    (HOSTFILE, "--exclude a --num_nodes 1", ["--exclude and --num_nodes", "give one of them"]),
    (HOSTFILE, "--exclude a --num_accelerators 1", ["--exclude and --num_gpus", "give one of them"]),
    (HOSTFILE, "--num_nodes 3", ["--num_nodes 3", "hosts has only 2 hosts"]),
    ("a slots=4\nb slots=2\n", "--num_gpus 3", ["--num_gpus 3", "hosts, line 2: b has slots=2", "raise it, or ask for less"]),
    (None, "--host a:2,b --num_gpus 2", ["--num_gpus 2", "--host gives b only 1"]),
    (HOSTFILE, "-n 9", ["-n 9", "hosts has 8 slots", "ask for less"]),
    (HOSTFILE, "-n 4 --include a:0,1", ["-n 4", "hosts has 2 slots", "ask for less"]),
    (None, "--host a:2 -n 3", ["-n 3", "--host has 2 slots", "ask for less"]),
    (None, "--num_gpus 2 -n 3", ["-n 3", "this host has 2 slots", "ask for less"]),
    (None, "-n 2 --num_nodes 2", ["--num_nodes 2", "this host has only 1 host"]),
    *((None, f"{option} {value}", [f"{option} {value}", f"must be a number from {low} to {high}"])
      for option, low, high in (("-n", 1, 65536), ("--num_nodes", 1, 65536), ("--num_gpus", 1, 65536), ("--ssh_port", 1, 65535),
                                ("--master_port", 0, 65535), ("--node_rank", 0, 65536))
      for value in (low - 1, high + 1, "x", "1x", "99999999999999999999")),
    (HOSTFILE, "--module --no_python", ["--module and --no_python", "a module needs python3"]),
    (HOSTFILE, "--no_ssh --master_addr a", ["--no_ssh needs --node_rank", "which of the hosts this is"]),
    (HOSTFILE, "--no_ssh --node_rank 0", ["--no_ssh needs --master_addr", "an address of the first host"]),
    (HOSTFILE, "--no_ssh --node_rank 0 --master_addr a --master_port 0", ["--no_ssh needs a --master_port", "not 0"]),
    (HOSTFILE, "--node_rank 0", ["--node_rank needs --no_ssh", "one ringrun starts all hosts"]),
    *((HOSTFILE, f"--ssh_port 2222 --launcher {name}", ["--ssh_port", f"{name}'s own configuration"])
      for name in ("slurm", "mpich", "impi", "mvapich")),
    (HOSTFILE, "-q -v", ["-q and -v"]),
    (HOSTFILE, "--bind core --bind_cores_to_rank", ["--bind_cores_to_rank", "leave out --bind"]),
    (HOSTFILE, "--bind none --bind_core_list 0", ["--bind_cores_to_rank", "leave out --bind"]),
    (HOSTFILE, "--bind cores", ["--bind cores", "must be share, core or none"]),
    (HOSTFILE, "--launcher x", ["--launcher x", "must be ssh, pdsh, slurm, openmpi, mpich, impi or mvapich"]),
    (HOSTFILE, "--launcher ''", ["--launcher ", "must be ssh, pdsh"]),
    (HOSTFILE, "-x ''", ["-x ", "want NAME or NAME=VALUE"]),
    (HOSTFILE, "-x =1", ["-x =1", "want NAME or NAME=VALUE"]),
    (HOSTFILE, "-x NOT_SET", ["-x NOT_SET", "is not set here", "-x NOT_SET=VALUE"]),
    # DeepSpeed's
    (HOSTFILE, "--elastic_training", ["--elastic_training: ", "DeepSpeed", "number of ranks is fixed"]),
    (HOSTFILE, "--min_elastic_nodes 1", ["--min_elastic_nodes: ", "DeepSpeed", "number of hosts is fixed"]),
    (HOSTFILE, "--max_elastic_nodes 2", ["--max_elastic_nodes: ", "DeepSpeed", "number of hosts is fixed"]),
    (HOSTFILE, "--autotuning run", ["--autotuning: ", "DeepSpeed", "zeroplan"]),
    (HOSTFILE, "--venv_script x", ["--venv_script: ", "DeepSpeed", "activate it before ringrun"]),
    (HOSTFILE, "--log_level info", ["--log_level: ", "DeepSpeed", "use -v or -q"]),
]


def refused(done, words):
    """What is wrong with a refusal; nothing if it is as it should be."""
    one_line = done.stderr.startswith("ringrun: ") and done.stderr.count("\n") == 1
    return "" if done.returncode == 125 and one_line and not done.stdout and all(w in done.stderr for w in words) else done


@test
def mistakes_are_refused_with_their_place_and_a_cure():
    with folder() as where:
        check_rows(REFUSED, lambda file, options, words: refused(print_command(where, file, shlex.split(options)), words))


@test
def unknown_options_and_missing_programs_name_the_help():
    with folder() as where:
        for words, what in (("--nope true", "--nope"), ("-Z true", "'Z'"), ("--num 2 true", "--num"), ("-n", "'n'"),
                            ("--check=1", "--check"), ("--hostfile", "--hostfile")):
            done = ringrun(where, *words.split())
            assert done.returncode == 125 and what in done.stderr and "--help lists the options" in done.stderr, done
        done = ringrun(where, "-n", "2")
        assert not refused(done, ["PROGRAM is missing", "--help lists the options"]), done
        # What follows PROGRAM is the program's.
        done = ringrun(where, "-n", "1", "echo", "-n", "--nope")
        assert done.returncode == 0 and done.stdout == "--nope", done


@test
def a_hostfile_that_may_not_be_read_is_refused():
    with folder() as where:
        write(f"{where}/hosts", HOSTFILE, 0)
        drop = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--"] if os.geteuid() == 0 else []
        if drop and not shutil.which("setpriv"):
            raise Skip("root reads everything, and setpriv is missing")
        done = run(*drop, RINGRUN, "-H", "hosts", "--print-command", "PROGRAM", cwd=where, env=environment(where, None))
        assert not refused(done, ["--hostfile hosts", "Permission denied"]), done


@test
def a_node_rank_outside_the_hosts_is_refused():
    with folder() as where:
        for options, words in ((["--host", "a:1,b:2"], ["--node_rank 2", "of --host are numbered from 0 to 1"]),
                               (["--host", "a:1,b:2,c,d", "-n", "3"], ["--node_rank 2", "of --host are numbered from 0 to 1"])):
            done = ringrun(where, *options, "--no_ssh", "--node_rank", "2", "--master_addr", "a", "true")
            assert not refused(done, words), done


# ---- CUDA_VISIBLE_DEVICES ------------------------------------------------------------------------------------------------

IGNORED = "ringrun: CUDA_VISIBLE_DEVICES=2,0 is ignored: options choose the slots\n"
# As root of a user namespace: a machine with three GPUs, whatever this one has.
WITH_GPUS = ["unshare", "-rm", "sh", "-c", "mount -t tmpfs none /proc/driver && mkdir -p /proc/driver/nvidia/gpus/0 "
             "/proc/driver/nvidia/gpus/1 /proc/driver/nvidia/gpus/2 && exec \"$@\"", "sh"]


def devices(where, options, visible, *before):
    done = run(*before, RINGRUN, *options, "sh", "-c", "echo $LOCAL_RANK $CUDA_VISIBLE_DEVICES", cwd=where,
               env=environment(where, {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}))
    return done.returncode, sorted(done.stdout.splitlines()), done.stderr


@test
def cuda_visible_devices_chooses_slots_if_nothing_else_does():
    if run(*WITH_GPUS, "true").returncode:
        raise Skip("no user namespaces with mounts here")
    with folder() as where:
        for options, visible, want, said in (
            ([], None, ["0 0,1,2", "1 0,1,2", "2 0,1,2"], ""),
            ([], "GPU-4f,GPU-a0", ["0 GPU-4f,GPU-a0", "1 GPU-4f,GPU-a0"], ""), # names stay as they are
            ([], "2,0", ["0 0,2", "1 0,2"], ""),
            (["--include", "localhost:1"], "2,0", ["0 1"], IGNORED),
            (["--exclude", "localhost:1"], "2,0", ["0 0,2", "1 0,2"], IGNORED),
            (["--num_gpus", "1"], "2,0", ["0 0"], IGNORED),
            (["--num_nodes", "1"], "2,0", ["0 0,1,2", "1 0,1,2", "2 0,1,2"], IGNORED),
            (["-n", "2"], "2,0", ["0 2,0", "1 2,0"], ""), # ranks, no slots
            (["--host", "localhost:2"], "2,0", ["0 0,1", "1 0,1"], ""),
        ):
            found = devices(where, options, visible, *WITH_GPUS)
            assert found == (0, want, said), (options, visible, found)
        for visible in ("3", "0,9"):
            found = devices(where, [], visible, *WITH_GPUS)
            assert found[0] == 125 and "CUDA_VISIBLE_DEVICES" in found[2] and visible[-1] in found[2], found
        for visible in ("", "-1"): # all are hidden: cores are what is left
            code, lines, said = devices(where, [], visible, *WITH_GPUS)
            assert code == 0 and not said and all(line.split()[1:] == visible.split() for line in lines), (lines, said)


@test
def filters_name_hosts_without_their_users_and_by_addresses():
    with folder() as where:
        write(f"{where}/hosts", "me@a slots=2\nfe80::1 slots=2\n")
        for spec, want in (("a", "me@a: ranks 0 to 1"), ("a:1", "me@a: rank 0"), ("fe80::1", "fe80::1: ranks 0 to 1"),
                           ("fe80::1:0", "fe80::1: rank 0"), ("a:0@fe80::1", "fe80::1: ranks 1 to 2")):
            done = ringrun(where, "-H", "hosts", "-i", spec, "--print-command", "x")
            assert done.returncode == 0 and f"# {want}\n" in done.stdout, (spec, done)


@test
def two_names_of_this_host_are_refused():
    with folder() as where:
        done = ringrun(where, "--host", "localhost,127.0.0.1", "true")
        assert done.returncode == 125 and "localhost and 127.0.0.1 are both this host" in done.stderr, done
        assert ringrun(where, "--host", "localhost,127.0.0.1", "--force_multi", "--print-command", "true").returncode == 0


@test
def empty_values_are_as_if_they_were_not_given():
    with folder() as where:
        done = ringrun(where, "-n", "1", "--include", "", "--exclude", "", "--master_addr", "", "--num_nodes", "-1", "--num_gpus", "-1",
                       "sh", "-c", "echo $MASTER_ADDR")
        assert done.stdout == "127.0.0.1\n", done


@test
def cuda_visible_devices_is_left_alone_if_slots_are_cores():
    with folder() as where:
        assert devices(where, ["-n", "2"], "7,x") == (0, ["0 7,x", "1 7,x"], "")
        assert devices(where, ["-n", "1"], None) == (0, ["0"], "")
        assert devices(where, ["--num_gpus", "2"], "2,0") == (0, ["0 0,1", "1 0,1"], IGNORED)
        if not os.path.isdir("/proc/driver/nvidia/gpus"):
            code, lines, said = devices(where, [], "5")
            assert code == 0 and not said and lines and all(line.endswith(" 5") for line in lines), (code, lines, said)
        write(f"{where}/hosts", "localhost slots=4\n")
        for options, want in (([], [f"{k} 0,1,2,3" for k in range(4)]), (["--include", "localhost:3,1"], ["0 1,3", "1 1,3"]),
                              (["--exclude", "localhost:0,1"], ["0 2,3", "1 2,3"]), (["-n", "2"], ["0 0,1", "1 0,1"])):
            assert devices(where, ["-H", "hosts", *options], "2,0") == (0, want, ""), options


# ---- Commands of launchers -----------------------------------------------------------------------------------------------

SSH = "-o BatchMode=yes -o LogLevel=ERROR"
TIMES = "-o ConnectTimeout=10 -o ServerAliveInterval=5 -o ServerAliveCountMax=2"
INPUT = "# standard input: a line with this host's addresses and the secret"
FILE = ["# .ringrun-ID stands for a file that only this user may read, which has the secret; it is",
        "# removed when all agents have answered"]
COMMANDS = [ # options, what is printed after the lines with ranks, for a:2,b:1
    ("", [INPUT, *(f"ssh {SSH} {TIMES} {host} 'exec RINGRUN --agent -'" for host in "ab")]),
    ("--launcher ssh --ssh_port 2222 --no_ssh_check -n 2", [INPUT, f"ssh {SSH} -p 2222 a 'exec RINGRUN --agent -'"]),
    ("""--launcher_args "-i 'my key' -o \\"ProxyCommand=nc %h %p\\" a\\'b" -n 1""",
     [INPUT, f"""ssh -i 'my key' -o 'ProxyCommand=nc %h %p' 'a'\\''b' {SSH} {TIMES} a 'exec RINGRUN --agent -'"""]),
    ("--launcher pdsh", [*FILE, "pdsh -R ssh -S -f 2 -w a,b 'exec RINGRUN --agent .ringrun-ID --node %n'"]),
    ("--launcher pdsh --ssh_port 2222 --launcher_args '-t 5'",
     [*FILE, "PDSH_SSH_ARGS_APPEND='-p 2222' pdsh -R ssh -S -f 2 -w a,b -t 5 'exec RINGRUN --agent .ringrun-ID --node %n'"]),
    ("--launcher slurm --launcher_args '--partition p --comment \"two words\"'",
     [INPUT, "srun -N 2 -n 2 --ntasks-per-node=1 --cpu-bind=none -K0 -w a,b --partition p --comment 'two words' "
      "RINGRUN --agent -"]),
    ("--launcher openmpi",
     [*FILE, "mpirun -n 2 --map-by ppr:1:node --bind-to none --host a:1,b:1 RINGRUN --agent .ringrun-ID"]),
    ("--launcher OpenMPI --ssh_port 2222 --launcher_args '--mca btl ^openib'",
     [*FILE, "mpirun -n 2 --map-by ppr:1:node --bind-to none --host a:1,b:1 --mca plm_rsh_args '-p 2222' --mca btl '^openib' "
      "RINGRUN --agent .ringrun-ID"]),
    ("--launcher mpich --launcher_args -v",
     [*FILE, "mpiexec -n 2 -ppn 1 -hosts a,b -bind-to none -v RINGRUN --agent .ringrun-ID"]),
    ("--launcher impi", [*FILE, "mpirun -n 2 -ppn 1 -hosts a,b -genv I_MPI_PIN 0 RINGRUN --agent .ringrun-ID"]),
    ("--launcher mvapich -n 1", [*FILE, "mpirun -n 1 -ppn 1 -hosts a -env MV2_ENABLE_AFFINITY 0 RINGRUN --agent .ringrun-ID"]),
]


@test
def every_launcher_has_its_exact_command():
    with folder() as where:
        program = shutil.copy(RINGRUN, where)

        def check(options, lines):
            done = print_command(where, None, ["--host", "a:2,b:1", *shlex.split(options)], program=program,
                                 env={"PATH": "/nonexistent"})
            found = [line.replace(program, "RINGRUN") for line in done.stdout.splitlines() if not LINE.match(line)]
            return "" if done.returncode == 0 and not done.stderr and found == lines else done

        check_rows(COMMANDS, check)


@test
def a_shell_reads_the_commands_back():
    with folder() as where:
        program, fake = f"{where}/it's \"a\" $folder/ringrun", f"{where}/fake"
        os.mkdir(os.path.dirname(program))
        shutil.copy(RINGRUN, program)
        for name in ("ssh", "pdsh", "srun", "mpirun", "mpiexec"):
            write(f"{fake}/{name}", "#!/bin/sh\nprintf '%s\\0' \"$PDSH_SSH_ARGS_APPEND\" \"${0##*/}\" \"$@\"\n", 0o755)
        args = ["-a", "two words", "it's", 'a"b', "$HOME", "*", "\\", ";", "%h"]
        for launcher in ("ssh", "pdsh", "slurm", "openmpi", "mpich", "impi", "mvapich"):
            port = ["--ssh_port", "2222"] if launcher in ("ssh", "pdsh", "openmpi") else []
            options = ["--host", "a", "--launcher", launcher, "--launcher_args", shlex.join(args), *port]
            done = print_command(where, None, options, program=program, env={"PATH": fake})
            assert done.returncode == 0 and not done.stderr, done
            line = done.stdout.splitlines()[-1]
            variable, *words = run("sh", "-c", line, env={"PATH": f"{fake}:{os.environ['PATH']}"}).stdout.split("\0")[:-1]
            assert variable == ("-p 2222" if launcher == "pdsh" else ""), line
            assert words == shlex.split(line)[launcher == "pdsh":], (words, line)
            at = words.index("-a")
            assert words[at:at + len(args)] == args, (words, args)
            agent = ["--agent", "-" if launcher in ("ssh", "slurm") else ".ringrun-ID"]
            if launcher in ("ssh", "pdsh"): # the last word goes through one more shell
                agent += ["--node", "%n"] if launcher == "pdsh" else []
                assert shlex.split(words[-1]) == ["exec", program, *agent], words
                last = run("sh", "-c", words[-1].replace("%n", "0"), stdin=subprocess.DEVNULL, cwd=where)
            else:
                assert words[-3:] == [program, *agent], words
                last = run(*words[-3:], stdin=subprocess.DEVNULL, cwd=where)
            said = "got no line of the first ringrun" if agent[1] == "-" else ".ringrun-ID, which the first ringrun has written"
            assert last.returncode == 125 and said in last.stderr, last


@test
def the_launcher_that_a_host_has_is_used():
    with folder() as where:
        for launcher, names in (("openmpi", ["mpirun.openmpi", "mpirun"]), ("impi", ["mpiexec.hydra", "mpirun"]),
                                ("mpich", ["mpiexec.mpich", "mpiexec.hydra", "mpiexec"]), ("mvapich", ["mpirun"])):
            for i, name in enumerate(names):
                for other in names[i:]:
                    write(f"{where}/{launcher}{i}/{other}", "", 0o755)
                done = print_command(where, None, ["--host", "a", "--launcher", launcher],
                                     env={"PATH": f"/nonexistent:{where}/{launcher}{i}"})
                assert done.stdout.splitlines()[-1].startswith(f"{name} -n 1 "), (name, done)


@test
def launcher_args_that_no_shell_could_read_are_refused():
    with folder() as where:
        for args in ("a \"b", "'", "$(date)", "`date`", "a;b", "a|b", "a&", "a>b", "(a)"):
            done = print_command(where, None, ["--host", "a", "--launcher_args", args])
            assert done.returncode == 125 and f"--launcher_args {args}: " in done.stderr and "ssh " not in done.stdout, done


# ---- The environment of a rank -------------------------------------------------------------------------------------------

FOREIGN = {name: "3" for name in (
    "SLURM_PROCID SLURM_NTASKS SLURM_JOB_ID SLURMD_NODENAME SRUN_DEBUG SBATCH_PARTITION OMPI_COMM_WORLD_RANK "
    "OMPI_COMM_WORLD_SIZE OMPI_MCA_orte_hnp_uri ORTE_X PRTE_X PMIX_RANK PMIX_NAMESPACE OPAL_PREFIX PMI_RANK PMI_SIZE PMI_FD "
    "PMI2_RANK HYDRA_X HYDI_CONTROL_FD MPI_LOCALRANKID MPI_LOCALNRANKS MPIR_CVAR_CH3_INTERFACE_HOSTNAME MV2_COMM_WORLD_RANK "
    "MV2_COMM_WORLD_LOCAL_RANK PALS_LOCAL_RANKID TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT GROUP_RANK GROUP_WORLD_SIZE "
    "ROLE_RANK ROLE_WORLD_SIZE ROLE_NAME KOLO_ROOT KOLO_JOB").split()}
STALE = {name: "77" for name in (
    "KOLO_RANK KOLO_NRANKS KOLO_ID KOLO_LAUNCHER RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE LOCAL_SIZE CROSS_RANK CROSS_SIZE "
    "MASTER_ADDR MASTER_PORT").split()}
OTHERS = {"MV2_USE_CUDA": "1", "KOLO_LOG": "warn", "SLURM": "1", "MY_OWN": "a=b c", "XSLURM_X": "1"}


def check_place(rank, k, n, local, nlocal, node=0, nnodes=1):
    want = {"KOLO_RANK": k, "KOLO_NRANKS": n, "KOLO_LAUNCHER": "kolo", "RANK": k, "WORLD_SIZE": n, "LOCAL_RANK": local,
            "LOCAL_WORLD_SIZE": nlocal, "LOCAL_SIZE": nlocal, "CROSS_RANK": node, "CROSS_SIZE": nnodes}
    found = {name: rank.get(name) for name in want}
    assert found == {name: str(value) for name, value in want.items()}, found


@test
def ranks_lose_what_other_launchers_have_set():
    with folder() as where:
        for options, slots in ((["-n", "3"], None), (["--host", "localhost:3"], "0,1,2")):
            found = ranks(where, *options, env={**FOREIGN, **STALE, **OTHERS})
            assert len(found) == 3, found
            for k, rank in enumerate(found):
                check_place(rank, k, 3, k, 3)
                assert not FOREIGN.keys() & rank.keys(), FOREIGN.keys() & rank.keys()
                assert OTHERS.items() <= rank.items(), rank
                assert re.fullmatch("[0-9a-f]{256}", rank["KOLO_ID"]) and rank["KOLO_ID"] == found[0]["KOLO_ID"], rank
                assert rank["MASTER_ADDR"] == "127.0.0.1" and 0 < int(rank["MASTER_PORT"]) < 65536, rank
                assert rank["MASTER_PORT"] == found[0]["MASTER_PORT"] != "77", rank
                assert rank.get("CUDA_VISIBLE_DEVICES") == slots and rank["cwd"] == where, rank


@test
def x_keeps_or_sets_a_variable():
    with folder() as where:
        (rank, ) = ranks(where, "-n", "1", "-x", "SLURM_JOB_ID", "-x", "PMI_RANK", "-x", "NEW=a=b 'c'", "-x", "EMPTY=",
                         "-x", "MY_OWN=x", "-x", "OMPI_X=1", "-x", "KOLO_RANK=5", env={**FOREIGN, **OTHERS})
        kept = {"SLURM_JOB_ID": "3", "PMI_RANK": "3", "NEW": "a=b 'c'", "EMPTY": "", "MY_OWN": "x", "OMPI_X": "1",
                "KOLO_RANK": "0"}
        assert kept.items() <= rank.items() and not (FOREIGN.keys() - kept.keys()) & rank.keys(), rank


@test
def other_hosts_get_what_help_names_and_what_is_asked_for():
    with folder() as where:
        sent = {"PATH": fake_ssh(where), "LD_LIBRARY_PATH": where, "PYTHONPATH": where, "PYTHONUNBUFFERED": "1",
                "MY_OWN": "a b", "KOLO_LOG": "warn", "NCCL_DEBUG": "x", "UCX_TLS": "tcp", "MV2_USE_CUDA": "1",
                "MLFLOW_RUN": "1", "OMP_PROC_BIND": "close", "OPENBLAS_VERBOSE": "0", "MKL_DYNAMIC": "1",
                "PYTHONHASHSEED": "7"}
        write(f"{where}/.deepspeed_env", "FROM_FILE=x y\n")
        found = ranks(where, "--host", "a:2,b:1", "--force_multi", "-x", "MY_OWN", "-x", "SLURM_JOB_ID", "-x", "NEW=1",
                      env={**FOREIGN, **STALE, **sent, "NOT_ASKED": "1"})
        assert len(found) == 3, found
        for k, rank in enumerate(found):
            check_place(rank, k, 3, k % 2, 2 - k // 2, k // 2, 2)
            assert {**sent, "FROM_FILE": "x y", "SLURM_JOB_ID": "3", "NEW": "1"}.items() <= rank.items(), rank
            assert not {"NOT_ASKED", *FOREIGN.keys() - {"SLURM_JOB_ID"}} & rank.keys() and rank["cwd"] == where, rank
            assert {"MASTER_ADDR", "MASTER_PORT", "KOLO_ID"} <= rank.keys() and rank["MASTER_PORT"] != "77", rank
            assert rank["CUDA_VISIBLE_DEVICES"] == ("0,1" if k < 2 else "0"), rank


@test
def files_of_variables_are_read_in_the_home_folder_and_here():
    with folder() as where:
        home, here = f"{where}/home", f"{where}/here"
        write(f"{home}/.deepspeed_env", "HOME_ONLY=1\nBOTH=home\nASKED=home\nSLURM_JOB_ID=5\n")
        write(f"{here}/.deepspeed_env", "# a remark\n  # A=1\n\n  HERE_ONLY=a=b c\r\nBOTH=here\nEMPTY=")
        write(f"{here}/other", "OTHER=1\n")
        (rank, ) = ranks(here, "-n", "1", "-x", "ASKED=x", env={"HOME": home, **FOREIGN})
        want = {"HOME_ONLY": "1", "HERE_ONLY": "a=b c", "BOTH": "here", "ASKED": "x", "SLURM_JOB_ID": "5", "EMPTY": ""}
        assert want.items() <= rank.items() and "OTHER" not in rank, rank
        (rank, ) = ranks(here, "-n", "1", env={"HOME": home, "DS_ENV_FILE": "other"})
        assert rank["OTHER"] == "1" and "BOTH" not in rank, rank
        for text, line, bad in (("A=1\n\nno equals sign\n", 3, "no equals sign"), ("=1\n", 1, "=1")):
            for folder_of in (home, here):
                before = read(f"{folder_of}/.deepspeed_env")
                write(f"{folder_of}/.deepspeed_env", text)
                done = ringrun(here, "-n", "1", "true", env={"HOME": home})
                name = "./.deepspeed_env" if folder_of == here else f"{home}/.deepspeed_env"
                assert not refused(done, [f"{name}, line {line}: '{bad}'", "want NAME=VALUE"]), done
                write(f"{folder_of}/.deepspeed_env", before)


@test
def master_port_is_the_one_asked_for_or_a_free_one():
    with folder() as where:
        port = free_ports(1)
        (rank, ) = ranks(where, "-n", "1", "--master_port", str(port))
        assert rank["MASTER_PORT"] == str(port), rank
        for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "0.0.0.0")):
            with socket.create_server((address, 0), family=family) as busy:
                port = busy.getsockname()[1]
                done = ringrun(where, "-n", "2", "--master_port", str(port), "true")
                assert not refused(done, [f"--master_port {port}: another program listens", "another port, or 0"]), done
                (rank, ) = ranks(where, "-n", "1", "--master_port", "0")
                assert rank["MASTER_PORT"] not in ("0", str(port)), rank
        try:
            busy = socket.create_server(("", 29500))
        except OSError: # busy without us
            busy = socket.socket()
        with busy:
            (rank, ) = ranks(where, "-n", "1")
            assert rank["MASTER_PORT"] not in ("0", "29500"), rank
            with socket.create_server(("", int(rank["MASTER_PORT"]))): # it is free
                pass


# ---- Python programs -----------------------------------------------------------------------------------------------------


@test
def python_programs_get_an_interpreter_and_their_local_rank():
    with folder() as where:
        say = "#!/bin/sh\nline=$(printf '%s|' \"${0##*/}\" \"$@\")\necho \"$line\"\n"
        write(f"{where}/fake/python3", say, 0o755)
        write(f"{where}/train.py", "", 0o644)
        write(f"{where}/run.py", say, 0o755)
        write(f"{where}/other.txt", say, 0o644)
        for options, program, want in (
            ([], "train.py", "python3|-u|train.py|--local_rank=K|a b|--x|"),
            ([], "./train.py", "python3|-u|./train.py|--local_rank=K|a b|--x|"),
            ([], f"{where}/train.py", f"python3|-u|{where}/train.py|--local_rank=K|a b|--x|"),
            (["--no_local_rank"], "train.py", "python3|-u|train.py|a b|--x|"),
            ([], "./run.py", "run.py|a b|--x|"),
            ([], "run.py", "run.py|a b|--x|"), # the one here, not one on PATH
            (["--no_local_rank"], "./run.py", "run.py|a b|--x|"),
            (["--no_python"], "./run.py", "run.py|a b|--x|"),
            (["--module"], "pack.age", "python3|-u|-m|pack.age|--local_rank=K|a b|--x|"),
            (["--module", "--no_local_rank"], "pack.age", "python3|-u|-m|pack.age|a b|--x|"),
        ):
            done = ringrun(where, "-n", "2", *options, program, "a b", "--x",
                           env={"PATH": f"{where}/fake:{os.environ['PATH']}"})
            lines = sorted(want.replace("=K", f"={k}") for k in range(2))
            assert done.returncode == 0 and sorted(done.stdout.splitlines()) == lines, (options, program, done)
        for options, program, status in ((["--no_python"], "./train.py", 126), ([], "./nowhere.py", 127),
                                         ([], "./other.txt", 126)):
            done = ringrun(where, "-n", "2", *options, program)
            assert done.returncode == status and program in done.stderr, done
        write(f"{where}/train.py", "import os, sys\nassert sys.argv[1:] == ['--local_rank=' + os.environ['LOCAL_RANK'], 'x']\n")
        for options, program in (([], "train.py"), (["--module"], "train")):
            done = ringrun(where, "-n", "2", *options, program, "x", env={"PYTHONDONTWRITEBYTECODE": "1"})
            assert done.returncode == 0 and not done.stderr, done


# ---- How ranks run -------------------------------------------------------------------------------------------------------


@test
def ranks_begin_in_wdir():
    with folder() as where:
        os.mkdir(f"{where}/below")
        below = f"{where}/below"
        for options, want in (([], where), (["--wdir", "below"], below), (["--wdir", below], below),
                              (["--wdir", ".."], os.path.dirname(where))):
            for hosts in (["-n", "2"], ["--host", "a,b", "--force_multi"]):
                found = ranks(where, *hosts, *options, env={"PATH": fake_ssh(where)})
                assert [rank["cwd"] for rank in found] == [want] * 2, (options, hosts, found)
        write(f"{below}/only.py", "import os\nprint(os.getcwd())\n")
        done = ringrun(where, "-n", "1", "--wdir", "below", "--no_local_rank", "only.py")
        assert done.stdout == f"{below}\n", done
        done = ringrun(where, "-n", "2", "--wdir", "nowhere", "true")
        assert not refused(done, ["--wdir nowhere: No such file or directory"]), done


@test
def each_rank_has_a_log_of_its_own():
    with folder() as where:
        script = """echo out $RANK; echo err $RANK >&2
                    for i in $(seq 30); do echo line $i of $RANK; done; [ $RANK = 1 ] && exit 7; sleep 0.2"""
        done = ringrun(where, "-n", "3", "--enable_each_rank_log", "logs", "sh", "-c", script)
        names = sorted(os.listdir(f"{where}/logs"))
        assert len(names) == 3 and all(re.fullmatch(rf"\d{{14}}_rank{k}\.log", name) for k, name in enumerate(names)), names
        for k, name in enumerate(names):
            lines = read(f"{where}/logs/{name}").splitlines()
            assert lines == [f"out {k}", f"err {k}", *(f"line {i} of {k}" for i in range(1, 31))], lines
        assert done.returncode == 7 and not done.stdout and "rank 1 returned 7" in done.stderr, done
        assert done.stderr.endswith("its last lines:\n" + "".join(f"  line {i} of 1\n" for i in range(21, 31))), done
        done = ringrun(where, "-n", "1", "--enable_each_rank_log", f"{where}/logs", "true")
        assert done.returncode == 0 and not done.stderr, done # the folder may be there
        write(f"{where}/file", "")
        done = ringrun(where, "-n", "1", "--enable_each_rank_log", "file", "true")
        assert not refused(done, ["--enable_each_rank_log file: Not a directory"]), done
        done = ringrun(where, "-n", "1", "--enable_each_rank_log", "not/there", "true")
        assert not refused(done, ["--enable_each_rank_log not/there: No such file or directory"]), done


@test
def save_pid_has_the_ids_while_ranks_run():
    for end, status in ("0", 0), ("3", 3), ("TERM", 128 + 15), ("KILL", -9):
        with folder() as where:
            script = f"echo $RANK $$; while [ ! -e go ]; do sleep 0.02; done; exit {end}"
            job = start(where, "-n", "2", "--save_pid", "sh", "-c", script)
            lines = sorted(job.stdout.readline() for _ in range(2))
            file, until = f"/tmp/{job.pid}.ringrun", time.monotonic() + 10
            while not os.path.exists(file) or read(file).count("\n") < 2:
                assert time.monotonic() < until, file
                time.sleep(0.01)
            assert sorted(read(file).splitlines(True)) == lines, lines
            if end in ("TERM", "KILL"):
                job.send_signal(getattr(signal, f"SIG{end}"))
            else:
                write(f"{where}/go", "")
            _, err = job.communicate(timeout=30)
            until = time.monotonic() + 5
            while end == "KILL" and os.path.exists(file) and time.monotonic() < until:
                time.sleep(0.01) # the agent removes it
            assert job.returncode == status and not os.path.exists(file), (job.returncode, err)


@test
def ranks_know_how_many_cores_they_are_bound_to():
    with folder() as where:
        (rank, ) = ranks(where, "-n", "1", "--bind_cores_to_rank")
        cores = rank["cores"]
        assert rank["OMP_NUM_THREADS"] == str(len(cores)), rank
        (rank, ) = ranks(where, "-n", "1")
        assert "OMP_NUM_THREADS" not in rank and rank["cores"] == cores, rank
        for n in range(1, len(cores) + 1):
            found = ranks(where, "-n", str(n), "--bind_cores_to_rank", env={"OMP_NUM_THREADS": "99"})
            assert sorted(sum((rank["cores"] for rank in found), [])) == sorted(cores), found
            assert all(rank["OMP_NUM_THREADS"] == str(len(cores) // n) for rank in found), found
            if n >= 8:
                break
        # Fewer cores than ranks: nothing is bound.
        found = ranks(where, "-n", str(len(cores) + 1), "--bind_cores_to_rank")
        assert all(rank["cores"] == sorted(os.sched_getaffinity(0)) and "OMP_NUM_THREADS" not in rank for rank in found), found
        (rank, ) = ranks(where, "-n", "1", "--bind_core_list", str(cores[-1]))
        assert rank["cores"] == [cores[-1]] and rank["OMP_NUM_THREADS"] == "1", rank
        some = cores[:2]
        for text in (",".join(map(str, some)), ",".join(map(str, reversed(some))), f"{some[0]}-{some[-1]}"):
            (rank, ) = ranks(where, "-n", "1", "--bind_core_list", text)
            assert set(some) <= set(rank["cores"]) and rank["OMP_NUM_THREADS"] == str(len(rank["cores"])), (text, rank)
        if len(some) == 2:
            found = ranks(where, "-n", "2", "--bind_core_list", f"{some[0]},{some[1]}")
            assert sorted(rank["cores"] for rank in found) == [[some[0]], [some[1]]], found
        for text in ("x", "", "0,", ",0", "1-0", "0-", "-1", "0--1", "0x1", "0 1", "0,,1", "99999", "0-99999", "9" * 20):
            done = ringrun(where, "-n", "1", "--bind_core_list", text, "true")
            assert not refused(done, [f"--bind_core_list {text}: ", "want a list like 0,2-5"]), done
        unused = max(os.sched_getaffinity(0)) + 500
        done = ringrun(where, "-n", "1", "--bind_core_list", str(unused), "true")
        assert not refused(done, [f"--bind_core_list {unused}: ", "none of these cores may be used here"]), done


@test
def without_ssh_each_host_starts_its_own_ranks():
    with folder() as where:
        port = free_ports(2)
        common = ["--host", "a:1,b:2", "--no_ssh", "--master_addr", "127.0.0.1", "--master_port", str(port)]
        jobs = [start(where, *common, "--node_rank", str(k), RINGBENCH, "-b", "8", "-e", "8", "-i", "5") for k in (1, 0)]
        other, first = finish(jobs)
        assert first[0] == 0 and "# 3 ranks" in first[1] and "0 wrong elements" in first[1], first
        assert other == (0, "", ""), other
        found = ranks(where, *common, "--node_rank", "1")
        assert len(found) == 2, found
        for local, rank in enumerate(found):
            check_place(rank, 1 + local, 3, local, 2, 1, 2)
            assert rank["MASTER_ADDR"] == "127.0.0.1" and rank["MASTER_PORT"] == str(port) and "KOLO_ID" not in rank, rank
            assert rank["KOLO_ROOT"] == f"127.0.0.1:{port + 1}" and rank["CUDA_VISIBLE_DEVICES"] == "0,1", rank


if __name__ == "__main__":
    main()
