/* With which stores results are written to dst. Ordinary ones read each line before they overwrite it and keep it in the
 * caches; streaming ones do neither, and are better for what is too large for the caches anyway. Where that begins
 * differs from machine to machine and can't be asked: each rank learns it from its own operations, by
 * collective and class of size. It concerns nobody else. */
#ifndef KO_STORES_H
#define KO_STORES_H

#include "run.h"

/* Chooses run->stores, for an operation that writes `len` bytes which it has not read just before; 0: it has. */
void ko_stores_choose(struct ko_run *run, size_t len);

/* The operation has succeeded. */
void ko_stores_learn(struct ko_run *run);

#endif
