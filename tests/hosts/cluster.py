"""Several hosts on one machine, joined by a bridge. Each has its own network, processes, host name and IPC. It has its own
/proc, /run, /dev/shm, /dev/pts, /var/log and home of root, and a server for ssh. Hosts share the other folders, /tmp among
them, as in a cluster. Keys, settings and logs lie in each host's /run: nothing is written to the machine's own folders. Hosts
vanish with the process that made them, even if that is killed."""
import ctypes
import json
import os
import shutil
import subprocess
import time
from contextlib import contextmanager

from tap import Skip, run

INIT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cluster_init")
PACKAGES = {"ip": "iproute2", "ssh": "openssh-client", "ssh-keygen": "openssh-client", "sshd": "openssh-server",
            "unshare": "util-linux", "nsenter": "util-linux", "setpriv": "util-linux", "munged": "munge", "slurmd": "slurmd",
            "slurmctld": "slurmctld", "srun": "slurm-client", "sinfo": "slurm-client", "pdsh": "pdsh",
            "mpirun.openmpi": "openmpi-bin", "mpiexec.mpich": "mpich"}
os.environ["PATH"] = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"  # a user's lacks them: ip, sshd, munged

# What starts processes on several of these hosts, with the options that each needs here; the rest of a command as an example.
# Open MPI refuses root without the first option. The last one keeps its files out of /tmp, which hosts share.
OPENMPI = ("mpirun.openmpi", "--allow-run-as-root", "--mca", "orte_tmpdir_base", "/run")  # --host host0:2,host1:2 -n 4 ...
MPICH = ("mpiexec.mpich", "-launcher", "ssh")  # -hosts host0,host1 -n 2 ...
PDSH = ("pdsh", "-R", "ssh")  # -w host[0-1] ...

SSHD_CONFIG = """Port {port}
HostKey /etc/ssh/ssh_host
AuthorizedKeysFile /etc/ssh/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitUserEnvironment no
UsePAM no
UseDNS no
MaxStartups 100
MaxSessions 100
"""
SSH_CONFIG = """IdentityFile /etc/ssh/id
IdentitiesOnly yes
IdentityAgent none
StrictHostKeyChecking yes
UpdateHostKeys no
UserKnownHostsFile /dev/null
"""
# Slurm would make groups of processes for the whole machine. Hosts have no cgroup file systems, and version 1 does without.
CGROUP_CONF = "CgroupPlugin=cgroup/v1\n"
SLURM_CONF = """ClusterName=rig
SlurmctldHost=host0
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
StateSaveLocation=/run/rig/slurm/state
SlurmdSpoolDir=/run/rig/slurm/spool
SlurmctldPidFile=/run/rig/slurm/slurmctld.pid
SlurmdPidFile=/run/rig/slurm/slurmd.pid
SlurmctldLogFile=/run/rig/slurm/slurmctld.log
SlurmdLogFile=/run/rig/slurm/slurmd.log
SlurmctldPort=6817
SlurmdPort=6818
NodeName=host[0-{last}] CPUs=8
PartitionName=rig Nodes=host[0-{last}] Default=YES
"""


# ---- What is skipped, and what must work ------------------------------------------------------------------------------


def where(tool):
    found = shutil.which(tool)
    if not found:
        raise Skip(f"no {tool} (package {PACKAGES[tool]}): make deps-all")
    return found


def need_namespaces():
    if os.environ.get("SAN") == "thread":
        raise Skip("ranks are processes here: nothing for the thread sanitizer")
    if "clang" in os.environ.get("CC", "") and not os.environ.get("SAN"):
        raise Skip("the network is the same for what another compiler built")
    if os.geteuid() != 0:
        raise Skip("network namespaces need root")
    for tool in ("ip", "unshare", "nsenter", "setpriv"):
        where(tool)


def must(*command):
    done = run(*command)
    if done.returncode:
        raise Skip(f"{' '.join(command)}: {done.stderr.strip()}")


def until(happened, seconds, what):
    """Waits for it. Fails after so many seconds; `what` says what has not happened."""
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, f"{what} after {seconds} s"
        time.sleep(0.02)


# ---- Namespaces, and the switch ---------------------------------------------------------------------------------------


def hold(namespaces, *command):
    """A process in new namespaces, which last as long as it does. It is killed when the thread that calls this ends."""
    return subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "unshare", *namespaces, "sh", *command], start_new_session=True,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_until_up(holder):
    if holder.stdout.readline() != "up\n":
        raise Skip(f"no namespaces: {holder.stderr.read().strip()}")


def hold_network(name):
    """A network and a host name of their own, and nothing else."""
    holder = hold(("-n", "-u"), "-c", 'echo "$0" >/proc/sys/kernel/hostname && echo up && exec sleep infinity', name)
    wait_until_up(holder)
    return holder


def inside(holder, *command):
    return ("nsenter", "-t", str(holder.pid), "-n", "-u", *command)


def release(holders):
    for holder in holders:
        holder.kill()
        holder.communicate()


def hold_switch():
    switch = hold_network("switch")
    must(*inside(switch, "ip", "link", "add", "br0", "type", "bridge"))
    must(*inside(switch, "ip", "link", "set", "br0", "up"))
    return switch


def plug(switch, holder, k):
    """Joins host number k to the switch: its eth0 has the address 10.77.0.(k + 1), the other end is called to{k}."""
    must(*inside(switch, "ip", "link", "add", f"to{k}", "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid)))
    must(*inside(switch, "ip", "link", "set", f"to{k}", "master", "br0", "up"))
    must(*inside(holder, "ip", "address", "add", f"10.77.0.{k + 1}/24", "dev", "eth0"))
    must(*inside(holder, "ip", "link", "set", "eth0", "up"))
    must(*inside(holder, "ip", "link", "set", "lo", "up"))


@contextmanager
def hosts_with_rails(n, rails, rate=None):
    """n hosts that a switch of its own joins on each rail, with no way from one to another: on rail r host number k has the
    interface rail{r} and the address 10.(80 + r).0.(k + 1). Rail 0 has the meeting point. rate: what tbf
    lets each host send on each rail, "200mbit"."""
    need_namespaces()
    holders = []
    try:
        machines = [hold_network(f"host{k}") for k in range(n)]
        holders += machines
        for r in range(rails):
            switch = hold_switch()
            holders.insert(0, switch)
            for k, machine in enumerate(machines):
                must(*inside(switch, "ip", "link", "add", f"to{k}", "type", "veth", "peer", "name", f"rail{r}", "netns",
                             str(machine.pid)))
                must(*inside(switch, "ip", "link", "set", f"to{k}", "master", "br0", "up"))
                must(*inside(machine, "ip", "address", "add", f"10.{80 + r}.0.{k + 1}/24", "dev", f"rail{r}"))
                must(*inside(machine, "ip", "link", "set", f"rail{r}", "up"))
                must(*inside(machine, "ip", "link", "set", "lo", "up"))
                if rate:
                    must(*inside(machine, "tc", "qdisc", "add", "dev", f"rail{r}", "root", "tbf", "rate", rate, "burst",
                                 "128kb", "latency", "50ms"))
        yield machines
    finally:
        release(holders)


def carried(machine, interface):
    """Bytes that have left through the interface."""
    shown = json.loads(run(*inside(machine, "ip", "-s", "-j", "link", "show", interface)).stdout)
    return shown[0]["stats64"]["tx"]["bytes"]


def start_job(machines, each, *command, **variables):
    """A job of `each` ranks on every host with rails, host by host."""
    n = len(machines) * each
    own = {k: v for k, v in os.environ.items() if not k.startswith("KOLO_")}
    return [subprocess.Popen(inside(machines[r // each], *command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             env={**own, "KOLO_ROOT": "10.80.0.1:5000", "KOLO_TIMEOUT": "60", "KOLO_NRANKS": str(n),
                                  "KOLO_RANK": str(r), **variables}) for r in range(n)]


LIBC = ctypes.CDLL(None, use_errno=True)
NEW_PID = 0x20000000  # CLONE_NEWPID


def check_call(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@contextmanager
def born_in(pid=None):
    """What this thread starts is born among the processes of that one, or as the first of a new namespace. It is a child of
    this process, which sees its number: with nsenter or unshare, it would be a grandchild."""
    own = os.open("/proc/thread-self/ns/pid", os.O_RDONLY)
    other = os.open(f"/proc/{pid}/ns/pid", os.O_RDONLY) if pid else -1
    try:
        check_call(LIBC.setns(other, NEW_PID) if pid else LIBC.unshare(NEW_PID))
        yield
    finally:
        check_call(LIBC.setns(own, NEW_PID))
        os.close(own)
        if pid:
            os.close(other)


# ---- Hosts ------------------------------------------------------------------------------------------------------------


def clean():
    """The environment without any job in it."""
    prefixes = ("KOLO_", "OMPI_", "PMI", "SLURM_", "RANK", "WORLD_SIZE", "MASTER_", "LOCAL_", "SSH_")
    return {k: v for k, v in os.environ.items() if not k.startswith(prefixes)}


class Host:
    """`pid` is the number of its first process. All numbers of processes are those that are seen from outside the hosts."""

    def __init__(self, switch, k):
        self.name, self.address, self.k, self.switch = f"host{k}", f"10.77.0.{k + 1}", k, switch
        with born_in():
            self.init = hold(("-n", "-u", "-i", "-m"), INIT, self.name)
        self.pid = self.init.pid
        self.started, self.own, self.ports = [], {self.pid}, set()

    def start(self, *command, env=None, cwd=None, **popen):
        """A Popen whose pid is the command's: signals reach it. `env` is added to the environment. Default of `cwd`: the folder
        of this process. Standard input is empty, output and errors are pipes, unless `popen` says otherwise."""
        enter = ("nsenter", "-t", str(self.pid), "-n", "-u", "-i", "-m", "env", "-C", cwd or os.getcwd())
        usual = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        variables = {**clean(), "HOME": "/run/home", **(env or {})}
        with born_in(self.pid):
            process = subprocess.Popen(enter + command, env=variables, **{**usual, **popen})
        self.started.append(process)
        return process

    def run(self, *command, timeout=60, input=None, **popen):
        """Waits for the command. Kills one that takes longer than `timeout` seconds, and raises subprocess.TimeoutExpired."""
        given = {} if input is None else {"stdin": subprocess.PIPE}
        process = self.start(*command, **{**given, **popen})
        try:
            out, err = process.communicate(input, timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def serve(self, *command, ports=(), **popen):
        """Starts a part of the rig: neither processes() nor listening() has it."""
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
        self.own.add(self.start(*command, **{**silent, **popen}).pid)
        self.ports.update(ports)

    def must(self, *command, **popen):
        done = self.run(*command, **popen)
        assert done.returncode == 0, done

    def file(self, path):
        """The name that this host's file has outside it."""
        return f"/proc/{self.pid}/root{path}"

    def read(self, path):
        with open(self.file(path), errors="replace") as f:
            return f.read()

    def write(self, path, text):
        """A new file is for root only."""
        with open(self.file(path), "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as f:
            f.write(text)

    def processes(self):
        """[(pid, command line)] of all that run on this host, except the rig's own. The server's part of each ssh connection is
        among them; what has ended and was not waited for is not."""
        found, mine = [], os.readlink(f"/proc/{self.pid}/ns/pid")
        for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
            try:
                with open(f"/proc/{pid}/cmdline", errors="replace") as f:
                    line = f.read().replace("\0", " ").strip()
                if line and pid not in self.own and os.readlink(f"/proc/{pid}/ns/pid") == mine:
                    found.append((pid, line))
            except OSError:  # it has just ended
                pass
        return found

    def find(self, word):
        """The processes whose command lines have this word in them."""
        return [pid for pid, line in self.processes() if word in line]

    def environ(self, pid):
        with open(f"/proc/{pid}/environ", errors="replace") as f:
            return dict(entry.split("=", 1) for entry in f.read().split("\0") if "=" in entry)

    def shm(self):
        return sorted(os.listdir(self.file("/dev/shm")))

    def sockets(self):
        """The TCP ports on which processes listen."""
        lines = []
        for name in ("tcp", "tcp6"):
            if os.path.exists(f"/proc/{self.pid}/net/{name}"):
                with open(f"/proc/{self.pid}/net/{name}") as f:
                    lines += [line.split() for line in f.readlines()[1:]]
        return {int(words[1].split(":")[1], 16) for words in lines if words[3] == "0A"}

    def listening(self):
        """The TCP ports on which processes listen, except the rig's own."""
        return sorted(self.sockets() - self.ports)

    def cut(self):
        """The cable is pulled at the switch: nothing comes through, either way. The host still reaches itself."""
        must(*inside(self.switch, "ip", "link", "set", f"to{self.k}", "down"))

    def mend(self):
        must(*inside(self.switch, "ip", "link", "set", f"to{self.k}", "up"))
        self.wait_until_joined()

    def wait_until_joined(self):
        """The kernel may take a second to let packets through an interface that is up. It drops them until then."""
        for holder, name in ((self.init, "eth0"), (self.switch, f"to{self.k}")):
            show = inside(holder, "ip", "link", "show", name)
            until(lambda: "state UP" in run(*show).stdout, 10, f"{name} of {self.name} is not up")

    def hide(self, path):
        """This host alone sees an empty folder there. What is open stays open."""
        self.must("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", path)

    def end(self):
        """The kernel ends all processes of a host whose first one is killed, and waits until their parents know."""
        self.init.kill()
        for process in self.started:
            process.wait()
        release([self.init])


# ---- Clusters ---------------------------------------------------------------------------------------------------------


class Cluster:
    def __init__(self):
        self.hosts, self.switch = [], None

    def begin(self, n, port):
        self.switch = hold_switch()
        for k in range(n):
            self.hosts.append(Host(self.switch, k))
        for k, host in enumerate(self.hosts):
            wait_until_up(host.init)
            plug(self.switch, host.init, k)
        for host in self.hosts:
            host.wait_until_joined()
        self.let_in(port)

    def let_in(self, port):
        """From each host to each, with ssh."""
        names = [(h.name, h.address, f"[{h.name}]:{port}", f"[{h.address}]:{port}", "localhost") for h in self.hosts]
        known = "".join(f"{','.join(n)} {h.read('/etc/ssh/ssh_host.pub')}" for n, h in zip(names, self.hosts))
        users = "".join(h.read("/etc/ssh/id.pub") for h in self.hosts)
        addresses = "127.0.0.1 localhost\n::1 localhost\n" + "".join(f"{h.address} {h.name}\n" for h in self.hosts)
        for host in self.hosts:
            host.write("/etc/hosts", addresses)
            host.write("/etc/ssh/ssh_known_hosts", known)
            host.write("/etc/ssh/authorized_keys", users)
            host.write("/etc/ssh/ssh_config", SSH_CONFIG)
            host.write("/etc/ssh/sshd_config", SSHD_CONFIG.format(port=port))
            host.serve(where("sshd"), "-D", "-E", "/run/rig/sshd.log", ports=[port])
        for host in self.hosts:
            until(lambda: port in host.sockets(), 10, f"{host.name} has no sshd")

    def slurm(self, k=2):
        """Starts Slurm on the first k hosts. The variables that srun needs, for `env` of Host.run."""
        for tool in ("munged", "slurmctld", "slurmd", "srun", "sinfo"):
            where(tool)
        hosts, variables, key = self.hosts[:k], {"SLURM_CONF": "/run/rig/slurm/slurm.conf"}, os.urandom(32).hex()
        for host in hosts:
            host.must("mkdir", "-p", "/run/rig/slurm/state", "/run/rig/slurm/spool")
            host.write("/run/rig/slurm/slurm.conf", SLURM_CONF.format(last=k - 1))
            host.write("/run/rig/slurm/cgroup.conf", CGROUP_CONF)
            host.write("/run/rig/munge.key", key)
            host.serve("munged", "--foreground", "--key-file=/run/rig/munge.key", "--pid-file=/run/rig/munged.pid",
                       "--seed-file=/run/rig/munge.seed", "--socket=/run/munge/munge.socket.2", "--num-threads=2")
        for host in hosts:
            until(lambda: os.path.exists(host.file("/run/munge/munge.socket.2")), 10, f"{host.name} has no munged")
        self.hosts[0].serve("slurmctld", "-D", env=variables, ports=[6817])
        for host in hosts:
            host.serve("slurmd", "-D", env=variables, ports=[6818])
        self.wait_until_idle(k, variables)
        self.hosts[0].own.update(self.hosts[0].find("slurmscriptd"))  # slurmctld's own child
        return variables

    def wait_until_idle(self, k, variables):
        def idle():
            return self.hosts[0].run("sinfo", "-h", "-N", "-o", "%T", env=variables).stdout.split() == ["idle"] * k

        try:
            until(idle, 30, "Slurm is not up")
        except AssertionError as late:
            logs = [host.read(f"/run/rig/slurm/{name}.log")[-1000:] for host in self.hosts[:k] for name in
                    (("slurmctld", "slurmd") if host is self.hosts[0] else ("slurmd", ))]
            raise AssertionError(f"{late}: {logs}")

    def end(self):
        for host in self.hosts:
            host.end()
        if self.switch:
            release([self.switch])


@contextmanager
def cluster(n, port=22):
    """n hosts, called host0, host1, ...; their servers for ssh listen on that port."""
    need_namespaces()
    for tool in ("ssh", "ssh-keygen", "sshd"):
        where(tool)
    c = Cluster()
    try:
        c.begin(n, port)
        yield c
    finally:
        c.end()
