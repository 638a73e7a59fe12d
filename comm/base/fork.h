/* Children of fork. A child has copies of its parent's memory and descriptors, but not its threads.
 * What belongs to one process keeps the ko_generation of when it was made: if that is another one
 * now, a parent made it. */
#ifndef COMM_BASE_FORK_H
#define COMM_BASE_FORK_H

extern unsigned ko_generation; /* forks since the library was loaded, in this line of processes */

#endif
