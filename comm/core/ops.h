/* Ops made at run time, for one communicator. */
#ifndef COMM_CORE_OPS_H
#define COMM_CORE_OPS_H

#include "comm/core/comm.h"

/* Values of kolo_op from KO_OP_FIRST on are ops made at run time: KO_OP_FIRST + index in
 * comm->ops. */
enum { KO_OP_FIRST = 0x1000 };

/* Is it an op made at run time for `type`? */
bool ko_op_is_made(const struct kolo_comm *c, enum kolo_op op, enum kolo_type type);

/* Does the op, which is one of those, call a function of the program? */
bool ko_op_calls(const struct kolo_comm *c, enum kolo_op op);

/* What an op does to elements of `type`: a copy. If it calls a function of the program (KO_MADE),
 * its s.made points into comm->ops. */
struct ko_reducer ko_op_reducer(const struct kolo_comm *c, enum kolo_op op, enum kolo_type type);

#endif
