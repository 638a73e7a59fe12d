/* Kolo ZeRO log: the log of a training run as lines, a table (CSV) and JSON lines, on kolo_zero.h
 * and kolo.h alone.
 *
 *     kolo_zero_log_create(comm, zero, &config, &log);
 *         kolo_zero_step(zero, &result);        in each micro-step
 *         kolo_zero_log_step(log, &result);
 *     kolo_zero_log_destroy(log);
 *
 * An attempt is an update that was done or skipped. Lines and files have these numbers, under
 * these names:
 *
 *     step                updates so far
 *     samples             of all ranks, in these updates
 *     train_loss          the mean over all samples of this attempt
 *     lr                  the learning rate of this attempt in group 0
 *     loss_scale          the scale of its gradients
 *     norm                of its mean gradient, before clipping
 *     skipped             attempts so far that an overflow skipped
 *     samples_per_second  of all ranks, also in skipped attempts, since the
 *                         last line, or the last row of the files
 *
 * Lines: a line consists of pairs name=value, with one blank between two pairs. A value is a
 * number or a text. A number is as strtod reads it, with a point in every locale: whole, or of
 * six digits, or inf, -inf or nan. A text is in quotes and escaped as in JSON. There are four
 * kinds of lines:
 *
 *     step=99 samples=50688 train_loss=2.18435 lr=0.0003 loss_scale=65536
 *         norm=0.71 skipped=1 samples_per_second=8123.4
 *     step=99 time="forward" ms=12.31 max_ms=15.2 max_rank=3
 *     step=99 memory="moments" bytes=1048576 peak=1048576
 *         max_peak=1049600 max_rank=2
 *     step=98 skipped=1 loss_scale=65536 overflow="gradient of tensor 'a'
 *         at index 7 is inf on rank 2, micro-step 0"
 *
 * - The first three kinds come after every steps_per_print-th attempt since training began.
 *   Attempts before a restart count too. The fourth kind comes at once, when an attempt was
 *   skipped. (Here a line is shown in parts; in the log it is one line.)
 * - time: the mean over the attempts since the last line, in milliseconds, on rank 0 (ms) and on
 *   the slowest rank (max_ms). There is a line each for forward, backward, reduce, step, gather
 *   and update of struct kolo_zero_times. A rank that others wait for has the most in forward or
 *   backward, and the others have it in reduce. Time between two micro-steps, like reading data,
 *   is in none of these.
 * - memory: what rank 0 has now (bytes) and had at most (peak), and the rank that had the most.
 *   There is a line for each kind of kolo_zero_memory_get. A kind that is in several places has a
 *   line for each, like "device moments" and "host moments".
 *
 * Files: each attempt has a row with the numbers above and rank 0's times of this attempt, in
 * milliseconds: elapsed_time_ms_forward, elapsed_time_ms_backward,
 * elapsed_time_ms_backward_allreduce (reduce), elapsed_time_ms_step, elapsed_time_ms_gather and
 * elapsed_time_ms_update. Times and samples_per_second have six digits. The other numbers have as
 * many digits as it takes to read the same double.
 *
 * - CSV: the first row has the names.
 * - JSON lines: an object begins with "time", in seconds since 1970 began (UTC). It ends with
 *   "overflow": the text if this attempt was skipped, else null. A number that is not finite is
 *   null. Bytes of a tensor's name that are not UTF-8 become U+FFFD.
 *
 * Rank 0 appends to the files, so a run that is started again continues in them. It writes a
 * whole line at once: a process that dies leaves no part of a line. Parts that a full disk or a
 * crash of the machine left are cut off. TensorBoard's event files are not written: Debian has no
 * maintained C library for them.
 *
 * The conventions of kolo.h hold here too. The engine's thread uses the log. */
#ifndef KOLO_KOLO_ZERO_LOG_H
#define KOLO_KOLO_ZERO_LOG_H

#include "kolo_zero.h"

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

struct kolo_zero_log;

/* What is logged. kolo_zero_log_config_init fills in the defaults. The first three fields must be
 * the same on all ranks, which is checked. The others count on rank 0 only. */
struct kolo_zero_log_config {
	/* Attempts between two lines. 0: only skipped attempts have lines. Default: 0. */
	long steps_per_print;
	int wall_clock; /* 1: with lines of times. Default: 0. */
	int memory;     /* 1: with lines of memory. Default: 0. */
	/* Receives each line, without a newline, during kolo_zero_log_step. It must not use that
	 * log. NULL: no lines. Default: NULL. */
	void (*print)(const char *line, void *arg);
	void *print_arg;
	const char *csv;      /* path of the CSV file. NULL: none. Default: NULL. */
	const char *jsonl;    /* path of the file of JSON lines. NULL: none. Default: NULL. */
	uint64_t reserved[8]; /* zero */
};

/* Fills in the defaults of a log: nothing is logged. Never fails. */
void kolo_zero_log_config_init(struct kolo_zero_log_config *out);

/* Makes a log of an engine on the ranks of comm, and opens its files. Collective; blocks. Rank 0
 * makes files that do not exist, but no folders. The strings of `config` are read during the
 * call. comm and zero must stay until kolo_zero_log_destroy, to which the caller gives *out.
 *
 * All ranks get the error of the first rank that failed, unless comm or out is NULL. Then *out is
 * NULL.
 *
 * Errors: those of the collectives, and:
 * - KOLO_EINVAL: names the field. Or a file exists and does not begin as this log's files do; it
 *   is not changed.
 * - KOLO_ENOMEM: out of memory.
 * - KOLO_ESYS: names the file and the reason.
 * - KOLO_EMISMATCH: ranks passed different configs. */
int kolo_zero_log_create(struct kolo_comm *comm, const struct kolo_zero *zero,
			 const struct kolo_zero_log_config *config, struct kolo_zero_log **out);

/* Logs what a step did. Call it after each kolo_zero_step, also after one that returned
 * KOLO_EOVERFLOW.
 *
 * A micro-step that neither updated nor skipped is ignored. If no line is due the call is cheap
 * and local: it waits at most for the disk of the files. If a line is due, and wall_clock or
 * memory is set, the call is collective on comm. Then rank 0 waits until all ranks have come.
 *
 * If several things fail, the last failure is returned.
 *
 * Errors: those of the collectives, and:
 * - KOLO_EINVAL: an argument is NULL.
 * - KOLO_ESYS: on rank 0 alone; names the file and the reason. This row is missing in that file;
 *   all else was done. Training and log still work: rows come again when the disk has room.
 * - KOLO_EPEER and the other errors of collectives: comm has failed. What comes from rank 0 alone
 *   was logged. */
int kolo_zero_log_step(struct kolo_zero_log *log, const struct kolo_zero_result *result);

/* Closes the files of a log and frees it. Local. NULL is allowed. */
void kolo_zero_log_destroy(struct kolo_zero_log *log);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
