/* Kolo: the log of a training run: lines, a table (CSV) and JSON lines, on kolo_zero.h and kolo.h alone.
 *
 *     kolo_zero_log_create(comm, zero, &config, &log);
 *         kolo_zero_step(zero, &result);        in each micro-step
 *         kolo_zero_log_step(log, &result);
 *     kolo_zero_log_destroy(log);
 *
 * An attempt is an update that was done or skipped. These numbers are in lines and files, under the same names:
 *
 * - step: updates so far
 * - samples: of all ranks, in these updates
 * - train_loss: the mean over all samples of this attempt
 * - lr: the learning rate that this attempt had, of group 0
 * - loss_scale: that its gradients were made with
 * - norm: of its mean gradient, before clipping
 * - skipped: attempts so far that were skipped for an overflow
 * - samples_per_second: of all ranks, of skipped attempts too, since the last line, or the last row of the files
 *
 * A line is pairs name=value with one blank between them. A value is a number as strtod reads it, of six digits but where it is
 * whole, with a point whatever the locale, or inf, -inf or nan; or text in quotes, escaped as in JSON. There are these lines; the first
 * three come behind every steps_per_print-th attempt since training began, those before a restart included, the last one
 * at once:
 *
 * - step=99 samples=50688 train_loss=2.18435 lr=0.0003 loss_scale=65536 norm=0.71 skipped=1 samples_per_second=8123.4
 * - step=99 time="forward" ms=12.31 max_ms=15.2 max_rank=3 is the mean over the attempts since the last line, on rank 0 and on
 *   the slowest rank; so for forward, backward, reduce, step, gather and update of struct kolo_zero_times. Who makes the others
 *   wait has the most in forward or backward, and they have it in reduce; what a rank does between two micro-steps, like reading data, is in none of these
 * - step=99 memory="moments" bytes=1048576 peak=1048576 max_peak=1049600 max_rank=2 is what rank 0 has and had at most, and the rank
 *   that had most; so for each kind of kolo_zero_memory_get. One that is in several places has a line for each: "device moments"
 *   and "host moments"
 * - step=98 skipped=1 loss_scale=65536 overflow="gradient of tensor 'a' at index 7 is inf on rank 2, micro-step 0" is an
 *   attempt that was skipped
 *
 * Files have a row for each attempt, of these numbers and rank 0's times of this attempt: elapsed_time_ms_forward,
 * elapsed_time_ms_backward, elapsed_time_ms_backward_allreduce (reduce), elapsed_time_ms_step, elapsed_time_ms_gather and
 * elapsed_time_ms_update. Times and samples_per_second have six digits, the others as many as it takes to read the same double. The
 * first row of the CSV is the names. An object of JSON lines begins with "time", in seconds since 1970 began (UTC), and ends
 * with "overflow", the text where this attempt was skipped, else null. What is not finite is null there, and bytes of a
 * tensor's name that are no UTF-8 are U+FFFD.
 *
 * Files are appended to, so that a run that was started again goes on in them, by rank 0, a whole line in one write: a process
 * that dies leaves no part of a line. What a full disk, or a crash of the machine, left of one is cut off. TensorBoard's event
 * files are not written: Debian has no maintained library for them in C.
 *
 * Conventions as in kolo.h. A log is used by the engine's thread. */
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

/* What is logged. kolo_zero_log_config_init fills in the defaults. The first three are the same on all ranks, which is
 * checked; the others count on rank 0 only. */
struct kolo_zero_log_config {
	long steps_per_print; /* a line each so many attempts; 0: but skipped ones have lines. 0 */
	int wall_clock;       /* 1: with times; 0 */
	int memory;           /* 1: with memory; 0 */
	/* Gets each line, without a newline, during kolo_zero_log_step, whose log it must not use. NULL: no lines. NULL */
	void (*print)(const char *line, void *arg);
	void *print_arg;
	const char *csv;      /* path of a file; copied; NULL: none. NULL */
	const char *jsonl;    /* the same */
	uint64_t reserved[8]; /* zero */
};

/* The defaults of a log: nothing is logged. Never fails. */
void kolo_zero_log_config_init(struct kolo_zero_log_config *out);

/* Makes a log of an engine on the ranks of comm, and opens its files. Collective; blocks. Rank 0 makes files that are missing,
 * but no folders. comm and zero must stay until kolo_zero_log_destroy, where the caller gives *out.
 *
 * Errors: KOLO_EINVAL (names the field; or a file that exists and does not begin as this log's do, which is left as it was), KOLO_ENOMEM,
 * KOLO_ESYS (names the file, and why), KOLO_EMISMATCH (ranks passed different configs), those of the collectives. All ranks have
 * the error of the first one that failed, unless comm or out is NULL; then *out is NULL. */
int kolo_zero_log_create(struct kolo_comm *comm, const struct kolo_zero *zero,
			 const struct kolo_zero_log_config *config, struct kolo_zero_log **out);

/* Logs what a step did; behind each kolo_zero_step, also one that returned KOLO_EOVERFLOW. Local and does nothing in micro-steps
 * that neither updated nor skipped, and without files, but for a sum, in those that no line is due in. Where one is due, and
 * wall_clock or memory is set, it is collective on comm, and rank 0 waits until all ranks have come; else it waits for nothing but
 * the files' disk.
 *
 * Errors: KOLO_EINVAL; KOLO_ESYS, on rank 0 alone (names the file, and why): this row is missing in that file, and all else
 * was done; training and log are as good as before, so that rows come again when the disk has room; those of the
 * collectives, which say that comm has failed: what is of rank 0 alone was logged. Where several fail the last one is told. */
int kolo_zero_log_step(struct kolo_zero_log *log, const struct kolo_zero_result *result);

/* Closes the files of a log. Local. NULL is allowed. */
void kolo_zero_log_destroy(struct kolo_zero_log *log);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
