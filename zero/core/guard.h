/* Whether a call may go on: an engine that has failed refuses all later ones, with the first
 * failure's text. */
#ifndef ZERO_CORE_GUARD_H
#define ZERO_CORE_GUARD_H

struct kolo_zero;

/* 0, or what the engine failed with earlier. KOLO_EINVAL of NULL, and after a load that failed half
 * way. */
int zero_check(struct kolo_zero *zero);

/* As zero_check, and KOLO_EINVAL if `what` comes in the middle of an update. */
int zero_check_between_updates(struct kolo_zero *zero, const char *what);

/* Sets the text of KOLO_EINVAL, behind this rank's number and that of the update that is being
 * worked on, and returns it. */
int zero_misuse(const struct kolo_zero *zero, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Keeps a failure for later calls, except KOLO_EINVAL and KOLO_EOVERFLOW, and lets the other ranks
 * go. Returns rc. */
int zero_failed(struct kolo_zero *zero, int rc);

/* As zero_failed, and the text begins with the step and, if it is not -1, the tensor. */
int zero_failed_at(struct kolo_zero *zero, int rc, int tensor);

#endif
