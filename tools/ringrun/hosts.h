/* The hosts of a job and their slots: the hostfile, --host, filters, and which ranks go where. All
 * of it is text and arithmetic; nothing is asked of a host. */
#ifndef TOOLS_RINGRUN_HOSTS_H
#define TOOLS_RINGRUN_HOSTS_H

/* A host. Its ranks are first .. first + nranks - 1; the k-th of them has slot slots[k]. */
struct host {
	char *name;
	int line; /* of the hostfile; 0: from elsewhere */
	int nslots, *slots;
	int first, nranks;
};

struct hosts {
	int n;
	struct host *at;
	const char *source; /* the hostfile's name, or "--host", for messages */
};

/* Every function that returns int returns 0, or -1 after it has written a message to stderr that
 * begins with "ringrun: ". */

/* Adds a host with slots 0 .. nslots - 1. Copies the name. */
void hosts_add(struct hosts *h, const char *name, int len, int nslots, int line);

/* Reads a hostfile: a line for each host, "NAME slots=N". Blank lines, and lines that begin with #,
 * are left out. What follows slots=N is ignored. */
int hosts_read_file(struct hosts *h, const char *path);

/* Reads mpirun's list: "a:2,b". A host without a number has one slot; one that comes again gets
 * more. */
int hosts_read_list(struct hosts *h, const char *text);

/* Keeps what --include names, in the order of the hostfile: "a@b:0,2" is all of a, and slots 0 and
 * 2 of b. A host that is given as user@name is named by `name`. `option` is for messages. */
int hosts_include(struct hosts *h, const char *option, const char *text);

/* Drops what --exclude names. A host without slots is dropped too. */
int hosts_exclude(struct hosts *h, const char *text);

/* Keeps the first n hosts. */
int hosts_keep_nodes(struct hosts *h, int n);

/* Keeps the first n slots of each host. */
int hosts_keep_slots(struct hosts *h, int n);

/* Gives each slot a rank, host by host; nranks > 0 is the number of ranks (-n), which fill the
 * slots in order. Returns the number of ranks, or -1. */
int hosts_place(struct hosts *h, int nranks);

#endif
