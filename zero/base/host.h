/* Which host this is. */
#ifndef ZERO_BASE_HOST_H
#define ZERO_BASE_HOST_H

#include <stdint.h>

/* The hash of the system's boot id; else that of the host's name, which other hosts may share. */
uint64_t zero_hash_host(void);

#endif
