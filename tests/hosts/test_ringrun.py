"""ringrun on several hosts: every launcher, what ranks are told, input and output, all ways to end, the secret, strangers,
and mistakes."""
import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager

import ends
from cluster import MPICH, OPENMPI, cluster, until, where
from ends import LAUNCHERS, RINGBENCH, RINGRUN, files_left, hostfile, left
from tap import B, SLOW, TESTS, Skip, finish, main, run, test

LONG = "T_LONG" in os.environ
SEED = int(os.environ.get("T_SEED", "2026"))
RANK = os.path.abspath(f"{B}/tests/host_rank")
TOOLS = {"pdsh": "pdsh", "slurm": "srun", "openmpi": OPENMPI[0], "mpich": MPICH[0]}


@contextmanager
def hosts(n):
    """A cluster and a folder that all of its hosts have."""
    with cluster(n) as c, tempfile.TemporaryDirectory() as folder:
        yield c, folder


def through(*launchers):
    """A test for each of them: one that is missing is skipped alone."""

    def register(function):
        def make(launcher):
            def one():
                if launcher in TOOLS:
                    where(TOOLS[launcher])
                function(launcher)

            one.__name__ = f"{function.__name__}_through_{launcher}"
            return one

        TESTS.extend(map(make, launchers))

    return register


def ringrun(c, folder, *words, launcher="ssh", **popen):
    """From host0."""
    return c.hosts[0].run(RINGRUN, "--launcher", launcher, *LAUNCHERS[launcher], *words, cwd=folder, **popen)


def check_nothing_is_left(c, folder):
    until(lambda: not left(c, folder), 5, "something is left")


# ---- Starting -----------------------------------------------------------------------------------------------------------


@through(*LAUNCHERS)
def all_ranks_join_and_nothing_is_left(launcher):
    n = 2 if launcher == "slurm" else 4
    with hosts(n) as (c, folder):
        env = c.slurm(n) if launcher == "slurm" else None
        for here in ((), ("--force_multi", )):
            done = ringrun(c, folder, "--hostfile", hostfile(folder, *[2] * n), *here, RINGBENCH, "-e", "64K", "-f", "8192",
                           "-w", "1", "-i", "3", launcher=launcher, env=env)
            assert done.returncode == 0 and f"{2 * n} ranks" in done.stdout and "0 wrong" in done.stdout, done
            check_nothing_is_left(c, folder)


TORCH = """import os, torch, torch.distributed as dist
dist.init_process_group("gloo", init_method="env://")
t = torch.full((1000,), 1.0 + dist.get_rank())
dist.all_reduce(t)
print(os.uname().nodename, os.environ["LOCAL_RANK"], dist.get_world_size(), float(t.sum()))
dist.barrier() # rank 0 has the store that the others still need
dist.destroy_process_group()
"""


@test
def torch_finds_its_ranks():
    pythons = [python for python in (sys.executable, "/usr/bin/python3", os.path.abspath("build/torch/bin/python3"))
               if os.path.exists(python) and run(python, "-c", "import torch.distributed").returncode == 0]
    if not pythons:
        raise Skip("torch is not installed (package python3-torch)")
    with hosts(3) as (c, folder):
        done = ringrun(c, folder, "--hostfile", hostfile(folder, 2, 2, 1), pythons[0], "-c", TORCH, timeout=120)
        said = [f"host{k // 2} {k % 2} 5 15000.0" for k in range(5)]
        assert done.returncode == 0 and sorted(done.stdout.splitlines()) == said, done


# Each rank prints its environment and its agent's, once all have reached rank 0.
MEET = """import json, os, socket, time
at = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if os.environ["RANK"] == "0":
    with socket.create_server(at) as server:
        met = [server.accept() for _ in range(int(os.environ["WORLD_SIZE"]) - 1)]
end = time.monotonic() + 20
while os.environ["RANK"] != "0":
    try:
        met = socket.create_connection(at)
        break
    except ConnectionRefusedError: # rank 0 is not that far
        assert time.monotonic() < end
        time.sleep(0.01)
with open(f"/proc/{os.getppid()}/environ") as f:
    print(json.dumps([os.uname().nodename, dict(os.environ), f.read().split("\\0")]))
"""
# What each launcher tells its processes.
MARKS = {"ssh": "SSH_", "pdsh": "SSH_", "slurm": "SLURM_", "openmpi": "OMPI_", "mpich": "PMI_"}
DROPPED = ("SLURM", "SRUN_", "OMPI_", "ORTE_", "PMI", "HYD", "TORCHELASTIC_")


def place(slots, rank):
    """(host's name, variables) of a rank, if hosts have so many slots."""
    node = next(k for k in range(len(slots)) if rank < sum(slots[:k + 1]))
    local, n = rank - sum(slots[:node]), sum(slots)
    numbers = {"RANK": rank, "KOLO_RANK": rank, "WORLD_SIZE": n, "KOLO_NRANKS": n, "LOCAL_RANK": local,
               "LOCAL_SIZE": slots[node], "LOCAL_WORLD_SIZE": slots[node], "CROSS_RANK": node, "CROSS_SIZE": len(slots),
               "MASTER_ADDR": "10.77.0.1"}
    devices = ",".join(map(str, range(slots[node])))
    return f"host{node}", {**{name: str(value) for name, value in numbers.items()}, "CUDA_VISIBLE_DEVICES": devices}


@through(*LAUNCHERS)
def ranks_know_their_place(launcher):
    slots = (3, 1, 2)
    with hosts(3) as (c, folder):
        env = c.slurm(3) if launcher == "slurm" else None
        program = (sys.executable, "-c", MEET)
        done = ringrun(c, folder, "--hostfile", hostfile(folder, *slots), *program, launcher=launcher, env=env)
        assert done.returncode == 0, done
        said = sorted(map(json.loads, done.stdout.splitlines()), key=lambda one: int(one[1]["RANK"]))
        assert len(said) == sum(slots), done
        for rank, (host, variables, agents) in enumerate(said):
            name, wanted = place(slots, rank)
            assert host == name and {key: variables.get(key) for key in wanted} == wanted, (rank, host, variables)
            assert not [key for key in variables if key.startswith(DROPPED)], variables
            assert host == "host0" or any(entry.startswith(MARKS[launcher]) for entry in agents), agents


@test
def two_hundred_and_fifty_six_ranks_start():
    # Joining takes 3 s on two cores that have nothing else to do, and minutes on busy ones.
    program, said = ((RANK, "join"), "joined") if LONG else (("sh", "-c", "echo rank $RANK of $WORLD_SIZE"), "of 256")
    with hosts(8) as (c, folder):
        done = ringrun(c, folder, "--hostfile", hostfile(folder, *[32] * 8), *program, timeout=600)
        assert done.returncode == 0, done
        assert sorted(done.stdout.splitlines()) == sorted(f"rank {k} {said}" for k in range(256)), done
        check_nothing_is_left(c, folder)


# ---- Input and output ---------------------------------------------------------------------------------------------------


@test
def input_goes_to_rank_0_wherever_it_is():
    text = "".join(f"{k} {'x' * (k % 90)}\n" for k in range(100000)) + "the end"
    with hosts(3) as (c, folder):
        script = "[ $RANK != 0 ] && exec wc -c; exec cat"
        done = ringrun(c, folder, "--host", "host1,host0,host2", "--tag", "sh", "-c", script, input=text)
        lines = done.stdout.splitlines(keepends=True)
        back = "".join(line[4:] for line in lines if line.startswith("[0] "))
        others = sorted(line for line in lines if not line.startswith("[0] "))
        assert done.returncode == 0 and back == text + "\n", (done.returncode, len(back), len(text), done.stderr)
        assert others == ["[1] 0\n", "[2] 0\n"], others


@test
def a_job_does_not_wait_for_input_that_nobody_reads():
    with hosts(2) as (c, folder):
        done = ringrun(c, folder, "--host", "host1,host0", "head", "-c", "3", input="abc" + "d" * 1000000)
        assert done.returncode == 0 and done.stdout == "abc", (done.returncode, done.stdout, done.stderr)
        silent = c.hosts[0].start(RINGRUN, "--host", "host1,host0", "true", cwd=folder, stdin=subprocess.PIPE)
        assert silent.wait(20) == 0, finish([silent])


COUNT = 'seq -f "R$RANK out %.0f" {n} & seq -f "R$RANK err %.0f" {n} >&2; wait'


def check_lines(text, nranks, stream, n):
    said = {rank: [] for rank in range(nranks)}
    for line in text.splitlines():
        rank, name, number = line.split(" ")
        if name == stream:
            said[int(rank[1:])].append(number)
    wanted = [str(k) for k in range(1, n + 1)]
    assert all(numbers == wanted for numbers in said.values()), {rank: len(numbers) for rank, numbers in said.items()}


@test
def lines_arrive_whole_and_in_order():
    n = 1000 if SLOW else 10000
    with hosts(8) as (c, folder):
        job = ("--hostfile", hostfile(folder, *[8] * 8), "sh", "-c", COUNT.format(n=n))
        done = ringrun(c, folder, *job, timeout=120)
        assert done.returncode == 0, (done.returncode, done.stderr[-1000:])
        check_lines(done.stdout, 64, "out", n)
        check_lines(done.stderr, 64, "err", n)
        done = ringrun(c, folder, *job, stderr=subprocess.STDOUT, timeout=120)
        check_lines(done.stdout, 64, "out", n)
        check_lines(done.stdout, 64, "err", n)


# ---- Ends -----------------------------------------------------------------------------------------------------------------


def say_wrong(wrong):
    assert not wrong, f"T_SEED={SEED}{' T_LONG=1' if LONG else ''}:\n" + "\n".join(wrong)


@test
def whatever_ends_nothing_is_left_and_the_cause_is_named():
    n = 200 if LONG else 16
    chosen = ends.cases(SEED, n, cuts=2)
    assert len(chosen) == n
    say_wrong(ends.run_cases(chosen))


def message(kind, data=b""):
    return struct.pack("<IIq", kind, len(data), 0x6b6f6c01) + data


@test
def an_agent_that_is_told_to_end_with_the_proof_ends_at_once():
    """It joins a job that is ending already: all that it will ever hear may come in one piece."""
    hello, end, done = 0, 11, 13
    proof = b"1" * 32
    with socket.create_server(("127.0.0.1", 0)) as door:
        line = f"ringrun-1 {'0' * 32} {proof.decode()} 0 {door.getsockname()[1]} 127.0.0.1 -\n"
        agent = subprocess.Popen((RINGRUN, "--agent", "-"), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True)
        agent.stdin.write(line)
        agent.stdin.flush()
        first, _ = door.accept()
        with first:
            first.settimeout(4)
            first.recv(1000)
            first.sendall(message(hello, proof + b"\0") + message(end))
            assert struct.unpack("<IIq", first.recv(1000))[0] == done
        code, _, errors = finish([agent])[0]
        assert (code, errors) == (0, ""), (code, errors)


@test
def a_first_ringrun_that_is_stopped_does_not_end_the_job():
    """Its host still answers, though nothing more fits into the buffers there."""
    slow_start = ("sh", "-c", "sleep 1.5; exec yes rank $RANK")
    with hosts(2) as (c, folder):
        job = ends.Job(c, folder, ("--hostfile", hostfile(folder, 1, 1)), slow_start)
        try:
            until(lambda: job.ranks(1), 10, "no rank runs")
            job.first.send_signal(signal.SIGSTOP)
            time.sleep(18)
            job.first.send_signal(signal.SIGCONT)
            until(lambda: job.printed > 1 << 20, 10, "no more output")
            job.first.send_signal(signal.SIGINT)
            job.first.wait(10)
            assert b"was killed by signal 2" in job.errors and b"gone" not in job.errors, job.errors
        finally:
            job.end()


@test
def nor_is_anything_left_that_slurm_has_started():
    rng = random.Random(SEED)
    with hosts(3) as (c, folder):
        env = c.slurm(3)
        wrong = []
        whats = ("rank", "agent", "above", "SIGTERM", "SIGINT", "first") * 4 if LONG else ("agent", "above", "SIGINT", "first")
        for number, what in enumerate(whats):
            case = ends.make_case(rng, number, what, "other", rng.choice(ends.WHEN), ["slurm"])
            wrong += filter(None, [ends.run_case(case, c, folder, env)])
        say_wrong(wrong)


# ---- The secret, and strangers --------------------------------------------------------------------------------------------


class Watch(threading.Thread):
    """Reads the arguments and the environment of all processes, again and again."""

    def __init__(self):
        super().__init__(daemon=True)
        self.seen, self.rounds, self.over = set(), 0, False

    def run(self):
        while not self.over:
            self.rounds += 1
            for pid in filter(str.isdigit, os.listdir("/proc")):
                for name in ("cmdline", "environ"):
                    try:
                        with open(f"/proc/{pid}/{name}", "rb") as f:
                            self.seen.add(f.read())
                    except OSError:  # it has just ended
                        pass


# Notes what ringrun gives to ssh.
SHIM = """#!/bin/sh
umask 077
cat >"$0.$$"
exec {ssh} "$@" <"$0.$$"
"""


def secrets_of(line):
    """The two of the line that agents get."""
    words = line.split(" ")
    assert words[0] == "ringrun-1" and len(words[1]) == len(words[2]) == 32, line
    return {words[1], words[2]}


def start_and_find_secrets(c, folder, launcher):
    shims, found = f"{folder}/bin", set()
    path = f"{shims}:{os.environ['PATH']}" if launcher == "ssh" else os.environ["PATH"]
    options = ("--launcher", launcher, *LAUNCHERS[launcher], "--hostfile", hostfile(folder, *[2] * 4))
    job = c.hosts[0].start(RINGRUN, *options, "true", cwd=folder, env={"PATH": path})
    while job.poll() is None:
        for name in files_left(folder):
            try:
                with open(f"{folder}/{name}") as f:
                    assert os.fstat(f.fileno()).st_mode & 0o777 == 0o600, name
                    found |= secrets_of(line) if (line := f.read()).endswith("\n") else set()
            except FileNotFoundError:  # it has just been removed
                pass
        time.sleep(0.001)
    assert finish([job])[0][0] == 0
    for name in os.listdir(shims):
        if name != "ssh":
            with open(f"{shims}/{name}") as f:
                found |= secrets_of(f.read())
    assert len(found) % 2 == 0 and found, found
    return found


@through("ssh", "pdsh", "mpich")
def no_argument_and_no_environment_has_the_secret(launcher):
    watch, secrets = Watch(), set()
    with hosts(4) as (c, folder):
        os.mkdir(f"{folder}/bin")
        with open(f"{folder}/bin/ssh", "w", opener=lambda name, flags: os.open(name, flags, 0o755)) as f:
            f.write(SHIM.format(ssh=where("ssh")))
        watch.start()
        for _ in range(20 if LONG else 5):
            secrets |= start_and_find_secrets(c, folder, launcher)
        watch.over = True
        watch.join()
    seen = [text.decode(errors="replace") for text in watch.seen]
    assert any("--agent" in text for text in seen) and watch.rounds > 20, watch.rounds
    assert not [text for text in seen if any(secret in text for secret in secrets)], seen


# Says what no agent would, from another host; then keeps many silent connections. Prints all that it is told.
KNOCK = """import resource, socket, struct, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
def say(data):
    s = socket.create_connection(("host0", int(sys.argv[1])))
    s.sendall(data)
    return s
def message(kind, number, body, length=None):
    return struct.pack("<IIq", kind, len(body) if length is None else length, number) + body
def hello(secret):
    return message(0, 0x6b6f6c01, secret + b"\\0" + struct.pack("<q", 1) + b"host1\\0" + b"0.1.0\\0")
wrong = [b"GET / HTTP/1.0\\r\\n\\r\\n", bytes(5000), hello(b"0" * 32), hello(b""), hello(b"0" * 31), hello(b"f" * 33),
         hello(bytes(32)), message(0, 0x6b6f6c01, b""), message(0, 0x6b6f6c01, b"0" * 32), message(0, 1, b"0" * 33),
         message(5, 1, b""), message(13, 0, b""), message(0, 0, b"", 1 << 31), message(1 << 30, 0, b"")]
def told(s):
    try:
        return s.recv(100)
    except ConnectionResetError:
        return b""
answers = [told(say(data)) for data in wrong]
half = [say(hello(b"0" * 32)[:k]) for k in range(1, 60, 7)]
idle = [say(b"") for _ in range(int(sys.argv[2]))]
print("knocked", b"".join(answers), flush=True)
print("told", [text for s in half + idle if (text := told(s))])
"""


def listener(host):
    """sshd's first process."""
    for pid in host.own:
        with open(f"/proc/{pid}/cmdline") as f:
            if "sshd" in f.read():
                return pid
    assert False, host.own


@contextmanager
def asleep(host):
    """Its sshd answers nobody until this ends."""
    os.kill(listener(host), signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(listener(host), signal.SIGCONT)


def seconds_of(pid):
    """How long it has used a processor."""
    with open(f"/proc/{pid}/stat") as f:
        return sum(map(int, f.read().rpartition(")")[2].split()[11:13])) / os.sysconf("SC_CLK_TCK")


@test
def a_slow_host_is_named_and_strangers_do_not_get_in():
    with hosts(3) as (c, folder):
        with asleep(c.hosts[1]):
            job = c.hosts[0].start(RINGRUN, "--host", "host0,host1", "hostname", cwd=folder)
            until(c.hosts[0].listening, 5, "no port")
            stranger = c.hosts[2].start(sys.executable, "-c", KNOCK, str(c.hosts[0].listening()[0]), "1100")
            assert stranger.stdout.readline() == "knocked b''\n", finish([stranger])
            line = job.stderr.readline()
            assert line == "ringrun: waiting for 1 of 2 hosts: host1\n", (line, finish([job]))
            used = seconds_of(job.pid)
        assert used < 1, used
        code, out, err = finish([job])[0]
        assert code == 0 and sorted(out.splitlines()) == ["host0", "host1"], (code, out, err)
        assert finish([stranger])[0] == (0, "told []\n", ""), stranger
        check_nothing_is_left(c, folder)


# ---- Mistakes -------------------------------------------------------------------------------------------------------------


def check_refused(c, folder, code, words, *options, launcher="ssh", **popen):
    done = ringrun(c, folder, *options, launcher=launcher, **popen)
    assert done.returncode == code and all(word in done.stderr for word in words), (words, done)
    check_nothing_is_left(c, folder)


@test
def a_host_that_can_not_be_reached_is_named():
    with hosts(3) as (c, folder):
        for name in ("nohost", "10.77.0.99"):
            check_refused(c, folder, 125, [f"{name}: ssh: ", f"ssh to {name} ended with status 255", "`ssh HOST true`"],
                          "--host", f"host0,{name},host2", "true")
        known = c.hosts[0].read("/etc/ssh/ssh_known_hosts")
        c.hosts[0].write("/etc/ssh/ssh_known_hosts", "".join(k for k in known.splitlines(True) if not k.startswith("host1,")))
        check_refused(c, folder, 125, ["host1: Host key verification failed", "ssh to host1 ended with status 255"],
                      "--host", "host0,host1,host2", "true")
        c.hosts[2].write("/etc/ssh/authorized_keys", "")
        check_refused(c, folder, 125, ["host2: root@host2: Permission denied", "ssh to host2 ended with status 255"],
                      "--host", "host0,host2", "true")


@contextmanager
def program(folder):
    """A program in a folder of its own; its name."""
    os.mkdir(f"{folder}/bin")
    with open(f"{folder}/bin/program", "w", opener=lambda name, flags: os.open(name, flags, 0o755)) as f:
        f.write("#!/bin/sh\n")
    yield f.name


@test
def a_host_that_lacks_something_is_named():
    three = ("--host", "host0,host1,host2")
    with hosts(3) as (c, folder), program(folder) as name:
        os.makedirs(f"{folder}/one/two")
        c.hosts[1].hide(f"{folder}/bin")
        check_refused(c, folder, 127, [f"{name}: No such file", "rank 1 on host1 returned 127"], *three, name)
        c.hosts[2].hide(f"{folder}/one")
        check_refused(c, folder, 125, [f"host2: --wdir {folder}/one/two: No such file"], *three, "--wdir", "one/two", "true")
        check_refused(c, f"{folder}/one/two", 125, [f"host2: --wdir {folder}/one/two: No such file"], *three, "true")
        c.hosts[1].hide(os.path.dirname(RINGRUN))
        check_refused(c, folder, 125, ["ssh to host1 ended with status 127", "install this ringrun there"], *three, "true")


@test
def a_host_that_does_not_see_the_file_is_named():
    where("pdsh")
    with hosts(3) as (c, folder):
        c.hosts[1].hide(folder)
        job = ends.Job(c, folder, ("--launcher", "pdsh", "--host", "host0,host1,host2"), ("true", ))
        until(lambda: b"waiting for" in job.errors, 10, "no line")
        job.first.send_signal(signal.SIGINT)
        check_nothing_is_left(c, folder)
        job.end()
        errors = job.errors.decode()
        assert job.first.returncode == 130 and "waiting for 1 of 3 hosts: host1\n" in errors, errors
        assert "which the first ringrun has written, on host1: No such file" in errors and "--launcher ssh" in errors, errors


# An agent of another version.
OTHER = """#!{python}
import socket, struct, sys
_, secret, proof, node, port, addresses, hosts = sys.stdin.readline().split(" ")
body = secret.encode() + b"\\0" + struct.pack("<q", int(node)) + b"host1\\0" + b"9.9.9\\0"
s = socket.create_connection(("host0", int(port)))
s.sendall(struct.pack("<IIq", 0, len(body), 0x6b6f6c01) + body)
sys.exit(len(s.recv(100)))
"""


@test
def a_host_with_another_version_is_named():
    version = run(RINGRUN, "--version").stdout.split()[-1]
    with hosts(3) as (c, folder):
        with open(f"{folder}/other", "w", opener=lambda name, flags: os.open(name, flags, 0o755)) as f:
            f.write(OTHER.format(python=sys.executable))
        c.hosts[1].must("mount", "--bind", f"{folder}/other", RINGRUN)
        check_refused(c, folder, 125, ["host1 has Kolo 9.9.9", f"this host has {version}", "the same version on all hosts"],
                      "--host", "host0,host1,host2", "true")


main()
