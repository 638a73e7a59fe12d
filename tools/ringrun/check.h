/* ringrun --check: asks an agent on each host what a job would find there, lets the hosts try to
 * reach each other, and prints what is wrong, with its cure. */
#ifndef TOOLS_RINGRUN_CHECK_H
#define TOOLS_RINGRUN_CHECK_H

#include "tools/ringrun/peers.h"

struct check;

/* Of n hosts. */
struct check *check_open(const struct plan *plan);

/* Asks host k. */
void check_ask(struct check *c, int k, struct wire *w);

/* When all hosts have answered the first question or were given up, each of these sends the second.
 */

/* Host k does not answer. Does nothing if it has answered all. */
void check_give_up(struct check *c, int k, const char *why, struct peers *peers);

/* Takes an answer. */
void check_hear(struct check *c, int k, const struct message *m, struct peers *peers);

/* Is no answer missing? */
bool check_is_over(const struct check *c);

/* Prints all. Returns the exit status: 0, or 1 if something is wrong. */
int check_report(const struct check *c);

#endif
