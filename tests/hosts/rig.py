"""Virtual machines in software emulation with Debian's kernel, whose Soft-RoCE driver (rdma_rxe) is a real RDMA device to
libibverbs. Nothing is installed here: kernel and modules are fetched into build/rig, programs come from this machine, with the
libraries that they need, and all of it is the machine's initial file system."""
import glob
import os
import re
import shutil
import subprocess
import tempfile

from tap import Skip, run

RIG = os.path.abspath("build/rig")
HERE = os.path.dirname(os.path.abspath(__file__))
# Before each come those that it needs. crc32: rdma_rxe looks for it by name.
MODULES = ("crc32_generic", "virtio_pci", "virtio_net", "dummy", "ib_uverbs", "rdma_rxe", "sch_netem")
TOOLS = {"qemu-system-x86_64": "qemu-system-x86", "busybox": "busybox-static", "cpio": "cpio", "modprobe": "kmod", "depmod": "kmod",
         "ib_write_bw": "perftest", "ib_send_lat": "perftest", "ip": "iproute2", "rdma": "iproute2", "tc": "iproute2",
         "setpriv": "util-linux", "apt-get": "apt: the kernel is Debian's"}
MEMORY = 1536  # MiB, of a virtual machine
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def where(tool):
    found = shutil.which(tool, path=PATH)
    if not found:
        raise Skip(f"no {tool} (package {TOOLS[tool]}): make deps")
    return found


def kernel():
    """The folder with the kernel's package, unpacked."""
    depends = run("apt-cache", "depends", "linux-image-amd64").stdout
    found = re.search(r"Depends: (linux-image-\S+)", depends)
    if not found:
        raise Skip("no package linux-image-amd64 here, whose kernel has the Soft-RoCE driver")
    folder = f"{RIG}/{found[1]}"
    if not os.path.exists(folder):
        with tempfile.TemporaryDirectory(dir=RIG) as new:
            fetched = run("apt-get", "download", found[1], cwd=new, timeout=300)
            packages = glob.glob(f"{new}/*.deb")
            if not packages:
                raise Skip(f"{found[1]} can't be fetched: {fetched.stderr.strip()}")
            subprocess.run(["dpkg", "-x", packages[0], f"{new}/all"], check=True)
            version = found[1].removeprefix("linux-image-")
            subprocess.run([where("depmod"), "-b", f"{new}/all", version], check=True)
            os.rename(f"{new}/all", folder)
    return folder


def put(root, file, to=None):
    to = root + (to or os.path.abspath(file))
    os.makedirs(os.path.dirname(to), exist_ok=True)
    if not os.path.exists(to):
        shutil.copy(file, to)


def put_program(root, program, folder="/rig"):
    """With its libraries, each where it is here."""
    put(root, program, f"{folder}/{os.path.basename(program)}")
    for line in run("ldd", program).stdout.splitlines():
        for word in line.split():
            if word.startswith("/"):
                put(root, word)


def put_modules(root, folder):
    version = os.path.basename(folder).removeprefix("linux-image-")
    modules = []
    for name in MODULES:
        listed = subprocess.run([where("modprobe"), "-d", folder, "-S", version, "--show-depends", name], check=True,
                                capture_output=True, text=True).stdout
        for line in listed.splitlines():
            if line.startswith("insmod ") and line.split()[1] not in modules:
                modules.append(line.split()[1])
    for module in modules:
        put(root, module, f"/rig/{os.path.basename(module)}")
    with open(f"{root}/rig/modules", "w") as f:
        f.writelines(f"/rig/{os.path.basename(module)}\n" for module in modules)


def build(programs, scenarios):
    """The kernel, and the file system with these programs and scenarios (name: text in sh). Both are files."""
    for tool in TOOLS:
        where(tool)
    os.makedirs(RIG, exist_ok=True)
    folder = kernel()
    image = f"{RIG}/initramfs"
    with tempfile.TemporaryDirectory(dir=RIG) as root:
        os.chmod(root, 0o755)
        put_program(root, where("busybox"), "/bin")
        put(root, f"{HERE}/rig_init", "/init")
        os.chmod(f"{root}/init", 0o755)
        put_modules(root, folder)
        for program in (*programs, *(where(tool) for tool in ("ib_write_bw", "ib_send_lat", "ip", "rdma", "tc", "setpriv"))):
            put_program(root, program)
        for driver in (*glob.glob("/usr/lib/*/libibverbs/librxe-*.so"), "/etc/libibverbs.d/rxe.driver"):
            put(root, driver)
        for name, text in scenarios.items():
            with open(f"{root}/rig/{name}", "w") as f:
                f.write(text)
        files = run("find", ".", cwd=root).stdout
        with open(image, "wb") as f:
            subprocess.run([where("cpio"), "-o", "-H", "newc", "--quiet"], cwd=root, input=files.encode(), stdout=f, check=True)
    return glob.glob(f"{folder}/boot/vmlinuz-*")[0], image


def boot(built, scenario, host, cpus, *wires):
    """Starts a virtual machine, each of its processors a NUMA node of its own, whose networks (eth0, eth1, ..) are ends of pairs of sockets.
    What it says goes into a file, whose name its process has.

    maxcpus: for a machine that can have but one processor, QEMU leaves out the barriers between it and the threads that
    serve its devices. Then a card can miss that there is something to send, and is silent for ever."""
    cards = [word for k, wire in enumerate(wires) for word in (
        "-netdev", f"socket,id=n{k},fd={wire.fileno()}", "-device",
        f"virtio-net-pci,netdev=n{k},mac=52:54:00:00:{k:02x}:{ord(host):02x}")]
    nodes = [word for k in range(cpus) for word in ("-object", f"memory-backend-ram,id=m{k},size={MEMORY // cpus}M",
                                                    "-numa", f"node,cpus={k},memdev=m{k}")]
    vmlinuz, image = built
    console = f"{RIG}/console-{host}"
    with open(console, "w"):
        pass  # of another boot nothing stays, should this one fail
    process = subprocess.Popen(
        ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max,-erms,-fsrm", "-smp", f"{cpus},maxcpus=2", "-m", str(MEMORY), *nodes, "-nodefaults",
         "-display", "none", "-no-reboot", "-kernel", vmlinuz, "-initrd", image, "-serial", f"file:{console}",
         "-append", f"console=ttyS0 quiet tsc=reliable panic=-1 kolo.host={host} kolo.scenario={scenario}", *cards],
        pass_fds=[wire.fileno() for wire in wires], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    process.console = console
    return process


def steps(machine, seconds):
    """Waits for the machine to switch off. What each of its steps said: name -> (exit status, output)."""
    try:
        errors = machine.communicate(timeout=seconds)[1]
    except subprocess.TimeoutExpired:
        machine.kill()
        errors = machine.communicate()[1] + f"\nstill on after {seconds} s"
    with open(machine.console, errors="replace") as f:
        said = f.read().replace("\r", "")
    assert "@off" in said, (errors, said[-4000:])
    return {name: (int(status), out) for name, out, status in re.findall(r"@begin (\S+)\n(.*?)\n@end \1 (\d+) [\d.]+\n", said, re.S)}
