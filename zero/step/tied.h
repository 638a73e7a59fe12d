/* Tensors that two engines have, like an embedding of the first and the last stage: their gradients
 * are added up. */
#ifndef ZERO_STEP_TIED_H
#define ZERO_STEP_TIED_H

struct kolo_zero;

/* Compares the tied tensors of both engines. Errors: KOLO_EMISMATCH, and those of the
 * collectives. */
int zero_tied_compare(struct kolo_zero *zero);

/* Adds the other engine's gradients to this rank's part of each tied tensor, after the last
 * reduction of an update. Errors: those of the collectives. */
int zero_tied_add(struct kolo_zero *zero);

#endif
