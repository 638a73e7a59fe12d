/* Lamb's first pass: moments, and the trust ratio of each tensor. */
#ifndef ZERO_STEP_LAMB_H
#define ZERO_STEP_LAMB_H

struct kolo_zero;
struct zero_scalars;

/* Updates the moments, and fills update->ratios: ||p|| / ||update|| of each tensor over all ranks,
 * 1 if one of them is 0. Collective. Errors: KOLO_ENOMEM, and those of collectives and of files. */
int zero_lamb_ratios(struct kolo_zero *zero, struct zero_scalars *update);

#endif
