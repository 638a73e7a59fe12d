/* What can be wrong with a host, and the cure of each. */
#ifndef TOOLS_RINGRUN_CHECK_RULES_H
#define TOOLS_RINGRUN_CHECK_RULES_H

#include "tools/ringrun/base/facts.h"
#include "tools/ringrun/plan.h"

/* What is known about a host. */
struct row {
	const struct host *host;
	bool answered; /* facts are valid */
	char *why;     /* why it does not answer; NULL: it does */
	struct facts facts;
	int64_t asked_us;
	double clock_us;          /* its clock minus ours */
	char **places, **reached; /* what it was to reach, and how that went */
};

/* Prints all findings about host k. Returns how many are wrong; the others are remarks. */
int check_rules(const struct plan *plan, const struct row *rows, int k);

/* Prints one: what is wrong or remarkable, then what to do. */
__attribute__((format(printf, 4, 5))) void print_finding(const char *host, bool wrong,
							 const char *cure, const char *fmt, ...);

#endif
