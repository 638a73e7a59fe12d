/* What several tools do: read numbers, print the version, refuse an option, become ringrun. */
#include "tools/common/tool.h"

#include "kolo/kolo.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

const char *tool_version_text(char out[VERSION_TEXT])
{
	int v = kolo_version();

	snprintf(out, VERSION_TEXT, "%d.%d.%d", v / 10000 % 1000, v / 100 % 100, v % 100);
	return out;
}

double tool_now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

void tool_print_version(const char *tool)
{
	char version[VERSION_TEXT];

	printf("%s (Kolo) %s\n", tool, tool_version_text(version));
	exit(EXIT_GOOD);
}

void tool_refuse_option(const char *tool, const char *option, const char *value, const char *why)
{
	fprintf(stderr, "%s: --%s %s: %s\n", tool, option, value, why);
	exit(EXIT_USAGE);
}

long tool_parse_number(const char *tool, const char *option, const char *value, long min, long max)
{
	char *end;
	long x = strtol(value, &end, 10);

	if (end == value || *end || x < min || x > max) {
		fprintf(stderr, "%s: %s %s: must be a number from %ld to %ld\n", tool, option,
			value, min, max);
		exit(EXIT_USAGE);
	}
	return x;
}

const char *tool_read_bytes(const char *text, size_t *out)
{
	static const char units[] = "KMGTkmgt";
	char *end, *unit;
	unsigned long long x = strtoull(text, &end, 10);
	int shift = 0;

	if (*end && (unit = strchr(units, *end))) {
		shift = 10 * (int)((unit - units) % 4 + 1);
		end++;
	}
	if (*text < '0' || *text > '9' || x == 0 || x > (SIZE_MAX >> 4 >> shift))
		return NULL;
	*out = (size_t)x << shift;
	return end;
}

static double parse_real(const char *tool, const char *option, const char *value)
{
	char *end;
	double x = strtod(value, &end);

	if (end == value || *end || !isfinite(x)) {
		fprintf(stderr, "%s: %s %s: must be a number\n", tool, option, value);
		exit(EXIT_USAGE);
	}
	return x;
}

void tool_parse_field(const char *tool, const struct tool_option *f, const char *value, void *out)
{
	void *place = (char *)out + f->offset;
	char option[24];

	snprintf(option, sizeof(option), "--%s", f->option);
	switch (f->slot) {
	case IN_INT:
		*(int *)place = (int)tool_parse_number(tool, option, value, f->min, f->max);
		break;
	case IN_LONG:
		*(long *)place = tool_parse_number(tool, option, value, f->min, f->max);
		break;
	case IN_SIZE:
		*(size_t *)place = (size_t)tool_parse_number(tool, option, value, f->min, f->max);
		break;
	case IN_DOUBLE: *(double *)place = parse_real(tool, option, value); break;
	case IN_TEXT: *(const char **)place = value; break;
	}
}

/* ringrun lies beside this program, or else somewhere on PATH. */
static void find_ringrun(char *out, size_t room)
{
	ssize_t len = readlink("/proc/self/exe", out, room - sizeof("ringrun"));
	char *slash;

	out[len > 0 ? len : 0] = 0;
	slash = strrchr(out, '/');
	strcpy(slash ? slash + 1 : out, "ringrun");
	if (access(out, X_OK) < 0)
		strcpy(out, "ringrun");
}

int tool_become_ringrun(const char *tool, int argc, char **argv, int nranks, char *bind)
{
	char ringrun[4096], number[16], *own, **args = calloc((size_t)argc + 6, sizeof(*args));
	int n = 0, cores = kolo_cores(NULL, 0);

	if (!args) {
		fprintf(stderr, "%s: starting ringrun: out of memory\n", tool);
		return EXIT_FAILED;
	}
	find_ringrun(ringrun, sizeof(ringrun));
	snprintf(number, sizeof(number), "%d", nranks ? nranks : cores > 2 ? cores : 2);
	args[n++] = ringrun;
	args[n++] = "-n";
	args[n++] = number;
	args[n++] = "--bind";
	args[n++] = bind;
	args[n++] = own = realpath("/proc/self/exe", NULL);
	for (int i = 1; i < argc; i++)
		args[n++] = argv[i];
	if (own)
		execvp(ringrun, args);
	fprintf(stderr, "%s: starting %s: %s\n", tool, ringrun, strerror(errno));
	return EXIT_FAILED;
}
