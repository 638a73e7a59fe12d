/* A training run with a log, for tests of it: what its ranks do, and what came of it. */
#ifndef TESTS_ZERO_FILES_LOG_RUN_H
#define TESTS_ZERO_FILES_LOG_RUN_H

#include "kolo/kolo_zero_log.h"
#include "tests/lib/t.h"

enum { MOST_ATTEMPTS = 16, MOST_LINES = 64, LINE = 2048, MEMORY_KINDS = 32 };

/* A training run; in memory that the test and its ranks share. */
struct run {
	int attempts, accumulation;
	unsigned bad; /* bit i: the last rank's gradient is infinite in attempt i, */
	unsigned nan; /* and: its loss is NaN */
	int slow_rank, slow_ms;
	bool reversed; /* rank 1 reports gradients from the first tensor to the last */
	struct kolo_zero_log_config config;
	char dir[64], csv[96], jsonl[96];
	/* What came of it */
	struct kolo_zero_result results[MOST_ATTEMPTS];
	uint64_t samples[MOST_ATTEMPTS]; /* so far; */
	long skipped[MOST_ATTEMPTS];     /* the same */
	double peaks[8][MEMORY_KINDS];   /* of each rank; */
	char kinds[MEMORY_KINDS][64];    /* what they are of, as "moments at host"; */
	int nkinds;
	double seconds;                  /* that it took on rank 0, the longest of several times */
	int nlines, line_of[MOST_LINES]; /* the attempts in which lines came */
	char lines[MOST_LINES][LINE];
	int at;
};

/* Two files in a folder of their own, not part of the config yet; 4 attempts of one micro-step. */
struct run *run_create(void);
void run_destroy(struct run *r);

/* Has lines kept, each steps_per_print attempts. */
void run_prints(struct run *r, long steps_per_print);

/* The name of the second tensor. */
extern const char run_hostile[];

/* What a rank does, all in one, */
void run_train(struct t_rank *t);

/* and in parts: an engine of three tensors, each in a bucket of its own; its log, whose lines are
 * for rank 0; a micro-step, without what is logged of it. */
struct kolo_zero *run_engine(const struct run *r, struct kolo_comm *comm);
struct kolo_zero_log *run_log(const struct run *r, struct kolo_comm *comm,
			      const struct kolo_zero *zero);
void run_micro_step(const struct run *r, struct kolo_zero *zero, int rank, int nranks, int attempt,
		    struct kolo_zero_result *out);

/* What stands after name= in a line; NULL: there is no such. */
const char *run_value(const char *line, const char *name);
double run_number(const char *line, const char *name);

/* Checks the grammar of kolo_zero_log.h. */
void run_check_grammar(const char *line);

#endif
