#include "tools/ringrun/check_rules.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
	MEMLOCK_KIB = 65536, /* for each rank: queues and slots of its links through RDMA */
	SHM_MIB = 64,        /* for each rank: what Docker gives to all is too little for several */
	NOFILE = 1024,
	CLOCK_US = 1000000,
};

void print_finding(const char *host, bool wrong, const char *cure, const char *fmt, ...)
{
	va_list args;

	printf("%s: %s: ", host, wrong ? "wrong" : "note");
	va_start(args, fmt);
	vprintf(fmt, args);
	va_end(args);
	printf("\n    cure: %s\n", cure);
}

/* Each rule looks at one host, and returns how many things are wrong. */

static int rule_program(const struct plan *plan, const struct row *rows, int k)
{
	const struct facts *f = &rows[k].facts;
	const char *name = rows[k].host->name;

	if (!f->wdir)
		print_finding(name, true, "use a folder that all hosts have (--wdir)",
			      "has no folder %s", plan->wdir);
	if (f->wdir && !f->program)
		print_finding(
			name, true,
			"install it there, use a folder that all hosts have, or set PATH with -x",
			"%s is not there, or can't be run", plan->command[0]);
	return !f->wdir + (f->wdir && !f->program);
}

static int rule_slots(const struct plan *plan, const struct row *rows, int k)
{
	const struct facts *f = &rows[k].facts;
	const struct host *host = rows[k].host;
	int last = host->nslots ? host->slots[host->nslots - 1] : -1;

	if (plan->devices && f->gpus && last >= f->gpus) {
		print_finding(host->name, true,
			      "correct slots= in the hostfile, or choose with --include",
			      "slot %d is asked for, and there are %d GPUs (0 to %d)", last,
			      f->gpus, f->gpus - 1);
		return 1;
	}
	if (!f->gpus && host->nranks > f->cores)
		print_finding(host->name, false, "lower slots= in the hostfile, if speed counts",
			      "%d ranks share %d cores", host->nranks, f->cores);
	return 0;
}

static int rule_gpus(const struct plan *plan, const struct row *rows, int k)
{
	const struct facts *f = &rows[k].facts;

	(void)plan;
	if (!f->gpus_denied)
		return 0;
	print_finding(
		rows[k].host->name, true,
		"let this user open /dev/nvidia* (groups video or render; in containers --gpus all)",
		"%d of its %d GPUs may not be opened", f->gpus_denied, f->gpus);
	return 1;
}

static int rule_rdma(const struct plan *plan, const struct row *rows, int k)
{
	const struct facts *f = &rows[k].facts;
	const char *name = rows[k].host->name;
	int wrong = 0, active = 0;

	(void)plan;
	for (int i = 0; f->rdma[i]; i++) {
		if (strstr(f->rdma[i], " denied")) {
			print_finding(
				name, true,
				"let this user open /dev/infiniband/uverbs* (group rdma; in containers "
				"--device=/dev/infiniband)",
				"RDMA device %s may not be opened", f->rdma[i]);
			wrong++;
		}
		active += strstr(f->rdma[i], " ACTIVE ") != NULL;
	}
	if (f->rdma[0] && !active)
		print_finding(name, false, "look at the cable and the subnet manager (ibstat)",
			      "no port of its RDMA devices is active: Kolo uses TCP");
	if (active && f->memlock_kib != UNKNOWN &&
	    f->memlock_kib < MEMLOCK_KIB * rows[k].host->nranks) {
		print_finding(
			name, true,
			"'* - memlock unlimited' in /etc/security/limits.conf, and LimitMEMLOCK=infinity "
			"for the services sshd and slurmd",
			"%d KiB of memory may be locked, and RDMA of a rank needs %d KiB",
			f->memlock_kib, MEMLOCK_KIB);
		wrong++;
	}
	for (int other = 0; other < k; other++)
		if (rows[other].answered && !rows[other].facts.rdma[0] != !f->rdma[0]) {
			print_finding(name, false, "look for the driver there (rdma link)",
				      "%s RDMA devices, unlike %s: links between them use TCP",
				      f->rdma[0] ? "has" : "has no", rows[other].host->name);
			break;
		}
	return wrong;
}

static int rule_limits(const struct plan *plan, const struct row *rows, int k)
{
	const struct facts *f = &rows[k].facts;
	const struct host *host = rows[k].host;
	int needed = host->first == 0 ? NOFILE / 2 + 2 * plan->nranks : NOFILE / 2;
	int wrong = 0;

	if (f->nofile < needed) {
		print_finding(
			host->name, true,
			"'* - nofile 1048576' in /etc/security/limits.conf, and LimitNOFILE for the "
			"services sshd and slurmd",
			"a process may have %d descriptors, and %s needs %d", f->nofile,
			host->first == 0 ? "rank 0" : "a rank", needed);
		wrong++;
	}
	if (f->shm_mib == UNKNOWN || f->shm_mib < SHM_MIB * host->nranks)
		print_finding(
			host->name, false,
			"mount -o remount,size=50% /dev/shm; in containers --shm-size or --ipc=host",
			"/dev/shm has %d MiB free: Kolo does not need it, but NCCL, MPI and PyTorch's "
			"data loaders do",
			f->shm_mib == UNKNOWN ? 0 : f->shm_mib);
	if (f->ptrace_scope > 1)
		print_finding(
			host->name, false,
			"sysctl kernel.yama.ptrace_scope=0 (or 1); in containers --cap-add=SYS_PTRACE",
			"ptrace_scope is %d: ranks can't read each other's memory, so large messages "
			"between ranks of the host are copied twice",
			f->ptrace_scope);
	return wrong;
}

static int rule_clock(const struct plan *plan, const struct row *rows, int k)
{
	(void)plan;
	if (rows[k].clock_us > -CLOCK_US && rows[k].clock_us < CLOCK_US)
		return 0;
	print_finding(
		rows[k].host->name, true,
		"start a time service (chrony, systemd-timesyncd): times of logs, checkpoints and builds "
		"are wrong",
		"its clock is %.1f s %s", (rows[k].clock_us < 0 ? -1 : 1) * rows[k].clock_us / 1e6,
		rows[k].clock_us < 0 ? "behind" : "ahead");
	return 1;
}

static int rule_user(const struct plan *plan, const struct row *rows, int k)
{
	(void)plan;
	for (int other = 0; other < k; other++)
		if (rows[other].answered && rows[other].facts.uid != rows[k].facts.uid) {
			print_finding(
				rows[k].host->name, true,
				"give the user the same number on all hosts",
				"the user's number is %d, and %d on %s: ranks would not trust each other",
				rows[k].facts.uid, rows[other].facts.uid, rows[other].host->name);
			return 1;
		}
	return 0;
}

/* The name of a host often stands for 127.0.1.1 in its own /etc/hosts. */
static int rule_name(const struct plan *plan, const struct row *rows, int k)
{
	const struct facts *f = &rows[k].facts;

	if (plan->hosts.n == 1 || (f->name_address && strncmp(f->name_address, "127.", 4) != 0))
		return 0;
	print_finding(
		rows[k].host->name, false,
		"set its address in /etc/hosts there, or -x GLOO_SOCKET_IFNAME=INTERFACE",
		"its own name, %s, stands for %s there: Kolo does not ask, but gloo and others offer this to "
		"the other hosts",
		f->hostname, f->name_address ? f->name_address : "nothing");
	return 0;
}

static int rule_addresses(const struct plan *plan, const struct row *rows, int k)
{
	const struct facts *f = &rows[k].facts;

	(void)plan;
	for (int i = 0; f->interfaces[i]; i++) {
		const char *address = strchr(f->interfaces[i], ' ') + 1;
		size_t len = strcspn(address, " ") + 1;

		for (int other = 0; other < k; other++)
			for (int j = 0; rows[other].answered && rows[other].facts.interfaces[j];
			     j++) {
				const char *that = strchr(rows[other].facts.interfaces[j], ' ') + 1;

				if (strncmp(address, that, len) != 0)
					continue;
				print_finding(
					rows[k].host->name, false,
					"-x KOLO_IFACE=INTERFACE, with one that differs between hosts",
					"%.*s (%.*s) is an address of %s too (a bridge of containers?)",
					(int)len - 1, address, (int)strcspn(f->interfaces[i], " "),
					f->interfaces[i], rows[other].host->name);
				return 0;
			}
	}
	return 0;
}

static int rule_port(const struct plan *plan, const struct row *rows, int k)
{
	int port = plan->options->master_port;

	if (k > 0 || rows[k].facts.master_port || port <= 0)
		return 0;
	print_finding(rows[k].host->name, true, "--master_port 0, or another number",
		      "another program listens at port %d (--master_port)", port);
	return 1;
}

static int rule_variables(const struct plan *plan, const struct row *rows, int k)
{
	const struct facts *f = &rows[k].facts;

	if (plan->here[k])
		return 0;
	for (int i = 0; f->variables[i]; i++)
		print_finding(rows[k].host->name, false,
			      "remove it from the start-up files there, or override it with -x",
			      "a login sets %s there", f->variables[i]);
	return 0;
}

int check_rules(const struct plan *plan, const struct row *rows, int k)
{
	static int (*const rules[])(const struct plan *plan, const struct row *rows, int k) = {
		rule_program, rule_slots, rule_gpus, rule_rdma,      rule_limits,    rule_clock,
		rule_user,    rule_name,  rule_port, rule_addresses, rule_variables,
	};
	int wrong = 0;

	if (rows[k].why) {
		print_finding(
			rows[k].host->name, true,
			"ssh to it by hand (its name, its key, your key without a question), and install "
			"the same Kolo at the same place on all hosts",
			"%s", rows[k].why);
		return 1;
	}
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
		wrong += rules[i](plan, rows, k);
	return wrong;
}
