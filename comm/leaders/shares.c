#include "comm/leaders/shares.h"

/* Elements of share k of the group `before` this one, before the hop over `far` groups. Hops over
 * fewer have brought it from the group k % far before that. */
static size_t count_of_share(const struct ko_led *p, int before, int k, int far)
{
	return ko_led_count(p, p->l.group - before + k - k % far);
}

/* Elements that such a group sends in the hop. */
static size_t count_of_hop(const struct ko_led *p, int before, int far)
{
	size_t n = 0;

	for (int k = far; k < p->l.ngroups; k++)
		if (k & far)
			n += count_of_share(p, before, k, far);
	return n;
}

/* Copies what the hop takes further into a message. */
static void pack(const struct ko_led *p, int far, char *message)
{
	for (int k = far; k < p->l.ngroups; k++) {
		size_t n = k & far ? count_of_share(p, 0, k, far) : 0;

		if (n)
			p->run->copy(message, p->at[k], n, &p->run->red.s);
		message += n * p->run->size;
	}
}

/* What has come stays where it is; of an all_to_all it takes the place of what has gone. */
static void unpack(struct ko_led *p, int far, char *message)
{
	for (int k = far; k < p->l.ngroups; k++) {
		size_t n = k & far ? count_of_share(p, far, k, far) : 0;

		if (n && ko_led_coll(p) == KO_ALL_TO_ALL)
			p->run->copy(p->at[k], message, n, &p->run->red.s);
		else if (n)
			p->at[k] = message;
		message += n * p->run->size;
	}
}

/* A hop. *in: where the message that comes may be. */
static int hop(struct ko_led *p, int far, char **in)
{
	size_t sends = count_of_hop(p, 0, far), gets = count_of_hop(p, far, far);
	int rc;

	pack(p, far, p->messages);
	if (sends)
		ko_leaders_add(&p->l, ko_leaders_leader(&p->l, p->l.group + far), true, p->messages,
			       sends);
	if (gets)
		ko_leaders_add(&p->l, ko_leaders_leader(&p->l, p->l.group - far), false, *in, gets);
	rc = ko_leaders_do(&p->l);
	if (rc < 0)
		return rc;
	unpack(p, far, *in);
	if (ko_led_coll(p) != KO_ALL_TO_ALL)
		*in = ko_led_at(p, *in, gets);
	return 0;
}

int ko_led_exchange_shares(struct ko_led *p)
{
	size_t most = (size_t)(p->l.ngroups / 2) * p->shares; /* of a message */
	char *in = ko_led_at(p, p->messages, most);
	int rc = 0;

	for (int far = 1; rc == 0 && far < p->l.ngroups; far *= 2)
		rc = hop(p, far, &in);
	return rc;
}

int ko_led_share_out(struct ko_led *p)
{
	ko_led_add_group(p);
	for (int k = 0; k < p->l.ngroups; k++) {
		int group = ko_shape_wrap(p->l.group + k, p->l.ngroups);

		p->at[k] = ko_led_at(p, p->sum, ko_led_first(p, group));
	}
	return ko_led_exchange_shares(p);
}

void ko_led_count_shares(const struct ko_led *p, struct ko_model *m)
{
	for (int far = 1; far < p->l.ngroups; far *= 2) {
		m->sent += count_of_hop(p, 0, far);
		m->received += count_of_hop(p, far, far);
	}
}
