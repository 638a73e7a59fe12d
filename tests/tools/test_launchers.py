"""One program, every launcher: the environment alone says who a rank is and where the ranks meet. And what happens
when it says nonsense: a clear error, in time, never a wait without end."""
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager

from tap import B, Skip, finish, main, run, test

PROGRAM = os.path.abspath(f"{B}/tools/examples/all_reduce")
RINGBENCH = os.path.abspath(f"{B}/ringbench")
RINGRUN = os.path.abspath(f"{B}/ringrun")
BENCH = (RINGBENCH, "-b", "64", "-e", "64", "-i", "2")


def clean(**variables):
    """The environment without any job in it, and with these."""
    prefixes = ("KOLO_", "OMPI_", "PMI", "SLURM_", "RANK", "WORLD_SIZE", "MASTER_", "LOCAL_")
    env = {k: v for k, v in os.environ.items() if not k.startswith(prefixes)}
    return {**env, "KOLO_TIMEOUT": "20", **variables}


def free_port(count=1):
    """A port with `count` free ones from it on."""
    while True:
        sockets = []
        try:
            with socket.socket() as s:
                s.bind(("127.0.0.1", 0))
                port = s.getsockname()[1]
            for k in range(count):
                sockets.append(socket.socket())
                sockets[-1].bind(("127.0.0.1", port + k))
            return port
        except OSError:
            pass
        finally:
            for s in sockets:
                s.close()


def start(env, *command):
    return subprocess.Popen(command or (PROGRAM,), env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def together(environments, *command):
    return finish([start(env, *command) for env in environments])


def check_sums(results, n):
    expected = n * (n + 1) // 2
    assert sorted(out for _, out, _ in results) == [f"rank {r} of {n}: the sum is {expected}\n" for r in range(n)], results


def check_launcher(*launcher, env=None):
    """The README's program and ringbench, unchanged, with 1 to 3 ranks."""
    for n in (1, 2, 3):
        done = run(*launcher, str(n), PROGRAM, env=env or clean())
        expected = [f"rank {r} of {n}: the sum is {n * (n + 1) // 2}" for r in range(n)]
        assert done.returncode == 0 and sorted(done.stdout.split("\n")[:-1]) == expected, done
    done = run(*launcher, "2", *BENCH, env=env or clean())
    assert done.returncode == 0 and "# 2 ranks" in done.stdout and "0 wrong elements" in done.stdout, done


def need(program):
    if not shutil.which(program):
        raise Skip(f"{program} is not installed")


# ---- Launchers ------------------------------------------------------------------------------------------------

@test
def ringrun_starts_it():
    check_launcher(RINGRUN, "-n")
    # A job around it, or a place of an earlier one, does not matter.
    check_launcher(RINGRUN, "-n", env=clean(SLURM_PROCID="3", SLURM_STEP_NUM_TASKS="5", SLURM_JOB_ID="1", SLURM_STEP_ID="0",
                                            KOLO_ROOT="192.0.2.1:1", KOLO_JOB="old", KOLO_LAUNCHER="slurm"))


@test
def open_mpis_mpirun_starts_it():
    need("mpirun.openmpi")
    check_launcher("mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n")


@test
def mpichs_mpiexec_starts_it():
    need("mpiexec.mpich")
    check_launcher("mpiexec.mpich", "-n")
    done = run("mpiexec.mpich", "-n", "2", "sh", "-c", PROGRAM, env=clean())  # a shell between
    assert "rank 1 of 2: the sum is 3" in done.stdout, done


@contextmanager
def one_node_slurm():
    for program in ("slurmctld", "slurmd", "srun"):
        need(program)
    if os.geteuid() != 0:
        raise Skip("slurmd must be started by root")
    with tempfile.TemporaryDirectory() as d:
        host, conf = socket.gethostname().split(".")[0], f"{d}/slurm.conf"
        ctld_port, d_port = free_port(), free_port()
        with open(conf, "w") as f:
            f.write(f"ClusterName=test\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={ctld_port}\nSlurmdPort={d_port}\n"
                    "AuthType=auth/none\nCredType=cred/none\nSlurmUser=root\nMpiDefault=none\n"
                    "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nReturnToService=2\n"
                    f"StateSaveLocation={d}/state\nSlurmdSpoolDir={d}/spool\nSlurmctldPidFile={d}/ctld.pid\n"
                    f"SlurmdPidFile={d}/d.pid\nSlurmctldLogFile={d}/ctld.log\nSlurmdLogFile={d}/d.log\n"
                    f"NodeName={host} NodeAddr=127.0.0.1 CPUs={os.cpu_count()}\nPartitionName=p Nodes={host} Default=YES\n")
        os.mkdir(f"{d}/state")
        os.mkdir(f"{d}/spool")
        env = clean(SLURM_CONF=conf)
        daemons = [subprocess.Popen((name, "-D", "-f", conf), env=env, stdout=subprocess.DEVNULL,
                                    stderr=subprocess.DEVNULL) for name in ("slurmctld", "slurmd")]
        try:
            end = time.monotonic() + 60
            while "idle" not in run("sinfo", "-h", "-o", "%T", env=env).stdout:
                if time.monotonic() > end:
                    with open(f"{d}/ctld.log") as log:
                        raise Skip(f"this machine's Slurm does not come up: {log.read()[-300:]!r}")
                time.sleep(0.2)
            yield env
        finally:
            for p in daemons:
                p.terminate()
            for p in daemons:
                try:
                    p.wait(timeout=20)
                except subprocess.TimeoutExpired:
                    p.kill()
                    p.wait()


@test
def slurms_srun_starts_it():
    with one_node_slurm() as env:
        check_launcher("srun", "--overcommit", "-n", env=env)
        check_launcher("srun", "--mpi=pmi2", "--overcommit", "-n", env=env)
        # A batch script is no rank: ringbench starts its own ranks there.
        done = run("srun", "-n", "1", "env", "-u", "SLURM_STEP_ID", *BENCH, "-n", "2", env=env)
        assert done.returncode == 0 and "# 2 ranks" in done.stdout, done


@test
def torchruns_variables_start_it():
    port = free_port(3)
    for host in ("127.0.0.1", "localhost", socket.gethostname()):
        env = [clean(RANK=str(r), WORLD_SIZE="3", LOCAL_RANK=str(r), LOCAL_WORLD_SIZE="3", MASTER_ADDR=host,
                     MASTER_PORT=str(port)) for r in range(3)]
        check_sums(together(env), 3)


@test
def torchruns_agent_may_own_the_port():
    """The agent's store listens on MASTER_PORT; a second service that talks first has the next one."""
    port = free_port(4)
    with socket.socket() as store, socket.socket() as talker:
        store.bind(("127.0.0.1", port))
        store.listen()
        talker.bind(("127.0.0.1", port + 1))
        talker.listen()
        env = [clean(RANK=str(r), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)) for r in range(2)]
        ranks = [start(e) for e in env]
        talker.settimeout(20)
        with talker.accept()[0] as c:
            c.sendall(b"SSH-2.0-a service that greets whoever comes\r\n")
            check_sums(finish(ranks), 2)
        store.settimeout(20)
        with store.accept()[0] as c:
            assert c.recv(1) == b"", "something was said to a stranger"


@test
def two_jobs_with_neighbouring_ports_are_told_apart():
    port = free_port(4)
    ranks = [start(clean(RANK=str(r), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port + job)))
             for r in (1, 0) for job in (1, 0)]
    results = finish(ranks)
    check_sums(results[0::2], 2)
    check_sums(results[1::2], 2)


# ---- By hand --------------------------------------------------------------------------------------------------

@test
def ranks_of_one_session_meet():
    check_sums(together([clean(KOLO_RANK=str(r), KOLO_NRANKS="3") for r in (2, 1, 0)]), 3)


@test
def ranks_of_two_sessions_meet_with_a_job_name():
    env = [clean(KOLO_RANK=str(r), KOLO_NRANKS="2", KOLO_JOB="a name of our own") for r in range(2)]
    ranks = [subprocess.Popen((PROGRAM,), env=e, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              start_new_session=True) for e in env]
    check_sums(finish(ranks), 2)


@test
def ranks_meet_at_an_address():
    hosts = ["127.0.0.1", "localhost", "[::1]" if socket.has_ipv6 else "127.0.0.1"]
    for host in hosts:
        root = f"{host}:{free_port()}"
        check_sums(together([clean(KOLO_RANK=str(r), KOLO_NRANKS="2", KOLO_ROOT=root) for r in range(2)]), 2)
    # Rank and size from a launcher, the place from us; rank 0 comes last.
    root = f"127.0.0.1:{free_port()}"
    late = start(clean(PMI_RANK="1", PMI_SIZE="2", KOLO_ROOT=root, KOLO_IFACE="lo"))
    time.sleep(0.5)
    check_sums(finish([start(clean(PMI_RANK="0", PMI_SIZE="2", KOLO_ROOT=root, KOLO_IFACE="lo")), late]), 2)


@test
def a_rank_that_waits_does_not_take_the_port():
    """A connect to a port in the range of outgoing ones may meet itself."""
    if os.geteuid() != 0 or run("unshare", "-n", "true").returncode:
        raise Skip("needs root and network namespaces")
    script = """
    ip link set lo up || exit 77
    echo 40000 40063 > /proc/sys/net/ipv4/ip_local_port_range
    KOLO_RANK=1 "$0" & sleep 4; KOLO_RANK=0 "$0"; wait
    """
    done = run("unshare", "-n", "sh", "-c", script, PROGRAM, env=clean(KOLO_NRANKS="2", KOLO_ROOT="127.0.0.1:40020"))
    if done.returncode == 77:
        raise Skip("ip is not installed")
    assert done.stdout.count("the sum is 3") == 2, done


@test
def an_interface_can_be_chosen():
    if os.geteuid() != 0 or not shutil.which("ip") or run(
            "unshare", "-n", "ip", "link", "add", "k0", "type", "veth", "peer", "name", "k2").returncode:
        raise Skip("needs root, ip and virtual network interfaces")
    script = """
    ip link set lo up; ip link add k0 type veth peer name k2; ip addr add 10.77.0.1/24 dev k0; ip addr add fd77::1/64 dev k0 nodad
    ip link set k0 up; ip link set k2 up
    for root in 10.77.0.1:5001 '[fd77::1]:5002'; do
        KOLO_ROOT=$root; export KOLO_ROOT
        for iface in k0 "$(echo $root | sed 's/:500.$//; s/[][]//g')"; do
            KOLO_IFACE=$iface KOLO_RANK=0 KOLO_NRANKS=2 "$0" & KOLO_IFACE=$iface KOLO_RANK=1 KOLO_NRANKS=2 "$0" || exit 1
            wait
        done
    done
    KOLO_IFACE=lo KOLO_RANK=0 KOLO_NRANKS=2 "$0"; KOLO_IFACE=k1 KOLO_RANK=0 KOLO_NRANKS=2 "$0"
    unset KOLO_ROOT; KOLO_IFACE=k0 "$1" -n 2 "$0"
    """
    done = run("unshare", "-n", "sh", "-c", script, PROGRAM, RINGRUN, env=clean())
    assert done.stdout.count("the sum is 3") == 10, done
    assert "KOLO_IFACE names" in done.stderr and "KOLO_IFACE=k1: no interface" in done.stderr and "there are: lo" in done.stderr, done


# ---- Wrong environments ---------------------------------------------------------------------------------------

def by_hand(rank, nranks, **more):
    return {"KOLO_RANK": str(rank), "KOLO_NRANKS": str(nranks), **more}


def torch(rank, size, port, **more):
    return {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), **more}


# What each rank has, and words that every rank's error must have. None of these may wait for its timeout.
AT_ONCE = {
    "nothing at all": ([{}], ["no job", "ringrun", "mpirun"]),
    "a rank without a size": ([{"KOLO_RANK": "1"}], ["half a job", "KOLO_RANK=1 without KOLO_NRANKS"]),
    "a size without a rank": ([{"KOLO_NRANKS": "4"}], ["KOLO_NRANKS=4 without KOLO_RANK"]),
    "torchrun's rank without an address": ([{"RANK": "0", "WORLD_SIZE": "2"}], ["without MASTER_ADDR, MASTER_PORT"]),
    "half of two launchers": ([{"RANK": "0", "PMI_SIZE": "2"}], ["torchrun: RANK=0", "pmi: PMI_SIZE=2 without PMI_RANK"]),
    "Open MPI's rank without its job": ([{"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}], ["PMIX_NAMESPACE"]),
    "PMI without its socket": ([{"PMI_RANK": "0", "PMI_SIZE": "2"}], ["PMI_FD=(unset)", "KOLO_JOB"]),
    "PMI with another file": ([{"PMI_RANK": "0", "PMI_SIZE": "2", "PMI_FD": "1"}], ["PMI_FD=1 is no open local socket"]),
    "rank = size": ([by_hand(2, 2)], ["KOLO_RANK=2", "[0, 1]"]),
    "rank > size": ([torch(9, 2, 1234)], ["RANK=9", "WORLD_SIZE=2"]),
    "a negative rank": ([by_hand(-1, 2)], ["KOLO_RANK=-1"]),
    "words for numbers": ([by_hand("one", 2)], ["KOLO_RANK=one"]),
    "a size of zero": ([by_hand(0, 0)], ["KOLO_NRANKS=0"]),
    "two launchers that disagree": ([torch(0, 2, 1234, PMI_RANK="1", PMI_SIZE="2")], ["two jobs", "KOLO_LAUNCHER=pmi"]),
    "an unknown launcher": ([by_hand(0, 2, KOLO_LAUNCHER="pbs")], ["KOLO_LAUNCHER=pbs", "slurm"]),
    "a launcher that is not there": ([by_hand(0, 2, KOLO_LAUNCHER="slurm")], ["without", "SLURM_PROCID"]),
    "two meeting points": ([by_hand(0, 2, KOLO_ROOT="127.0.0.1:1", KOLO_ID="00")], ["KOLO_ID and KOLO_ROOT"]),
    "a job's name without end": ([by_hand(0, 2, KOLO_JOB="x" * 201)], ["KOLO_JOB has 201 characters"]),
    "an id that is none": ([by_hand(0, 2, KOLO_ID="abc")], ["KOLO_ID has 3 characters"]),
    "an id of zeros": ([by_hand(0, 2, KOLO_ID="0" * 256)], ["no id made by kolo_id_create"]),
    "a root without a port": ([by_hand(0, 2, KOLO_ROOT="localhost")], ["KOLO_ROOT=localhost", "HOST:PORT"]),
    "a root with an impossible port": ([by_hand(0, 2, KOLO_ROOT="localhost:70000")], ["KOLO_ROOT=localhost:70000"]),
    "a root without brackets": ([by_hand(0, 2, KOLO_ROOT="::1:70")], ["brackets"]),
    # However slowly a name server answers.
    "a root that has no address": ([by_hand(0, 2, KOLO_ROOT="no-such-host.invalid:70", RES_OPTIONS="timeout:1 attempts:1")],
                                   ["no-such-host.invalid"]),
    "a root that is not this host": ([by_hand(0, 2, KOLO_ROOT="192.0.2.1:7000")], ["192.0.2.1", "rank 0 runs on"]),
    "MASTER_PORT in words": ([torch(0, 2, "http")], ["MASTER_PORT=http"]),
    "an unknown interface": ([by_hand(0, 2, KOLO_IFACE="eth77", KOLO_ROOT="127.0.0.1:7000")], ["eth77", "there are", "lo"]),
    "several hosts": ([{"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "8", "PMIX_NAMESPACE": "n",
                        "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}], ["only 4 of this job's 8 ranks"]),
    "two ranks of one number": ([by_hand(0, 3, KOLO_JOB="x")] + 2 * [by_hand(1, 3, KOLO_JOB="x")],
                                ["two processes say they are rank 1"]),
    "two sizes": ([by_hand(0, 2, KOLO_JOB="y"), by_hand(1, 3, KOLO_JOB="y")], ["says the job has"]),
    "a timeout in words": ([by_hand(0, 1, KOLO_TIMEOUT="soon")], ["KOLO_TIMEOUT=soon"]),
}

# These can't know sooner: ranks may be late.
AFTER_THE_TIMEOUT = {
    "nobody serves the root": ([by_hand(1, 2, KOLO_ROOT="127.0.0.1:{port}")], ["rank 1", "rank 0 did not answer", "Connection refused"]),
    "the root can't be reached": ([by_hand(1, 2, KOLO_ROOT="192.0.2.1:7000")], ["rank 1", "192.0.2.1"]),
    "another program at the root": ([by_hand(1, 2, KOLO_ROOT="127.0.0.1:{talker}")], ["another program"]),
    "a silent program at the root": ([by_hand(1, 2, KOLO_ROOT="127.0.0.1:{silent}")], ["said nothing"]),
    "a rank is missing": ([by_hand(0, 3, KOLO_JOB="z"), by_hand(2, 3, KOLO_JOB="z")], ["missing: 1"]),
    "jobs with different names": ([by_hand(1, 2, KOLO_JOB="v"), by_hand(1, 2, KOLO_JOB="w")], ["rank 0 did not answer"]),
}


def check_refused(name, environments, words, ports, seconds):
    begin = time.monotonic()
    ranks = [start({**clean(**ports.get("env", {})), **{k: v.format(**ports) for k, v in e.items()}}) for e in environments]
    results = finish(ranks, seconds)
    took = time.monotonic() - begin
    for code, out, err in results:
        assert code == 1 and not out and err.count("\n") == 1, (name, results)
        assert all(word in err for word in words), (name, words, err)
    return took


@test
def wrong_environments_are_refused_at_once():
    for name, (environments, words) in AT_ONCE.items():
        took = check_refused(name, environments, words, {}, 15)
        print(f"# {took:5.2f} s  {name}")


@test
def what_can_not_be_known_ends_with_the_timeout():
    with socket.socket() as talker, socket.socket() as silent:
        for s in (talker, silent):
            s.bind(("127.0.0.1", 0))
            s.listen()
        pid = os.fork()
        if pid == 0:
            while True:
                talker.accept()[0].send(b"220 some other service, ready to serve\r\n")
        try:
            ports = {"port": free_port(), "talker": talker.getsockname()[1], "silent": silent.getsockname()[1],
                     "env": {"KOLO_TIMEOUT": "1"}}
            for name, (environments, words) in AFTER_THE_TIMEOUT.items():
                took = check_refused(name, environments, words, ports, 15)
                assert took > 0.9, (name, took)
                print(f"# {took:5.2f} s  {name}")
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


@test
def a_taken_port_is_named():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        port = s.getsockname()[1]
        took = check_refused("taken", [by_hand(0, 2, KOLO_ROOT=f"127.0.0.1:{port}")], [f"port {port} is taken"], {}, 15)
        assert took < 10, took


@test
def a_second_rank_0_is_refused():
    first = start(clean(**by_hand(0, 2, KOLO_JOB="twice")))
    time.sleep(0.5)
    check_refused("second", [by_hand(0, 2, KOLO_JOB="twice")], ["KOLO_JOB=twice", "second rank 0"], {}, 15)
    check_sums(finish([first, start(clean(**by_hand(1, 2, KOLO_JOB="twice")))]), 2)


def fnv(text, salt):
    h = 0xcbf29ce484222325 ^ salt
    for byte in text.encode():
        h = (h ^ byte) * 0x100000001b3 & (1 << 64) - 1
    return h ^ h >> 29


@test
def another_users_socket_is_not_trusted():
    if os.geteuid() != 0:
        raise Skip("needs root to become another user")
    text = "0/KOLO_JOB=stolen"
    name = f"\0kolo-{fnv(text, 300):016x}{fnv(text, 301):016x}"
    ready, go = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setuid(65534)
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(name)
            s.listen()
            os.write(go, b"x")
            time.sleep(60)
        os._exit(0)
    try:
        assert os.read(ready, 1) == b"x"
        check_refused("stolen", [by_hand(1, 2, KOLO_JOB="stolen")], ["user 65534", f"process {pid}"], {}, 15)
        check_refused("stolen", [by_hand(0, 2, KOLO_JOB="stolen")], ["already waits"], {}, 15)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(ready)
        os.close(go)


if __name__ == "__main__":
    main()
