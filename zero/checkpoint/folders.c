/* The directory of checkpoints: kolo_zero_newest, and zero_folder_publish, which makes a checkpoint
 * complete. */
#include "zero/checkpoint/folders.h"

#include "zero/base/basics.h"
#include "zero/base/files.h"

#include "kolo/kolo_zero_checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX  "step-"
#define PARTIAL ".step-"
#define LATER   "later-step-"

void zero_checkpoint_name(char *out, size_t len, long step)
{
	snprintf(out, len, PREFIX "%09ld", step);
}

void zero_partial_name(char *out, size_t len, long step, uint64_t number)
{
	snprintf(out, len, PARTIAL "%09ld.%016llx", step, (unsigned long long)number);
}

/* ---- What is there --------------------------------------------------------------------------- */

/* The step in the name of a checkpoint; -1: another name. */
static long step_of(const char *name)
{
	const char *digits = name + strlen(PREFIX);
	char again[64];
	long step;

	if (strncmp(name, PREFIX, strlen(PREFIX)) != 0 ||
	    strspn(digits, "0123456789") != strlen(digits))
		return -1;
	step = strtol(digits, NULL, 10);
	zero_checkpoint_name(again, sizeof(again), step);
	return strcmp(name, again) == 0 ? step : -1;
}

/* The steps of a directory's checkpoints; -1: there are none. Those put aside are counted apart. */
struct steps {
	long newest, oldest;
	int count, aside;
	char oldest_aside[64]; /* the name of the one that goes first: it was written first */
	struct timespec written;
};

/* Whether it is a name that put_aside gives. */
static bool is_aside(const char *name)
{
	char again[64];
	long step;
	int number = 0, n = sscanf(name, LATER "%ld.%d", &step, &number);

	if (n < 1)
		return false;
	if (n == 1)
		snprintf(again, sizeof(again), LATER "%09ld", step);
	else
		snprintf(again, sizeof(again), LATER "%09ld.%d", step, number);
	return step >= 0 && number >= 0 && strcmp(name, again) == 0;
}

static void look_at_aside(int dir, const char *name, struct steps *out)
{
	struct stat s;
	bool earlier;

	if (!is_aside(name) || fstatat(dir, name, &s, AT_SYMLINK_NOFOLLOW) < 0 ||
	    !S_ISDIR(s.st_mode))
		return;
	earlier = s.st_mtim.tv_sec < out->written.tv_sec ||
		  (s.st_mtim.tv_sec == out->written.tv_sec &&
		   s.st_mtim.tv_nsec < out->written.tv_nsec);
	if (out->aside == 0 || earlier) {
		memcpy(out->oldest_aside, name, strlen(name) + 1); /* is_aside: it fits */
		out->written = s.st_mtim;
	}
	out->aside++;
}

static int scan(const char *dir, struct steps *out)
{
	DIR *d = opendir(dir);
	struct dirent *entry;

	*out = (struct steps){ .newest = -1, .oldest = -1 };
	if (!d)
		return zero_system_error("opening", dir);
	while ((entry = readdir(d))) {
		long step = step_of(entry->d_name);

		look_at_aside(dirfd(d), entry->d_name, out);
		if (step < 0)
			continue;
		out->count++;
		out->newest = step > out->newest ? step : out->newest;
		out->oldest = out->oldest < 0 || step < out->oldest ? step : out->oldest;
	}
	closedir(d);
	return 0;
}

int kolo_zero_newest(const char *dir, long *out)
{
	struct steps steps;
	int rc;

	if (!dir || !out)
		return kolo_error_set(KOLO_EINVAL, "the newest checkpoint of NULL, or into NULL");
	*out = -1;
	if (access(dir, F_OK) < 0 && errno == ENOENT)
		return 0;
	rc = scan(dir, &steps);
	*out = steps.newest;
	return rc;
}

/* ---- What goes ------------------------------------------------------------------------------- */

static int remove_entry(const char *path, const struct stat *s, int type, struct FTW *at)
{
	(void)s, (void)type, (void)at;
	return remove(path) < 0 && errno != ENOENT ? zero_system_error("removing", path) : 0;
}

int zero_folder_remove(const char *path)
{
	enum { DESCRIPTORS = 8 };
	int rc = nftw(path, remove_entry, DESCRIPTORS, FTW_DEPTH | FTW_PHYS);

	/* -1 comes from nftw itself, any other status from remove_entry. */
	return rc == -1 && errno != ENOENT ? zero_system_error("removing", path)
	       : rc == -1                  ? 0
					   : rc;
}

int zero_folder_clean(const char *dir)
{
	char path[ZERO_PATH_LEN];
	DIR *d = opendir(dir);
	struct dirent *entry;
	int rc = 0;

	if (!d)
		return zero_system_error("opening", dir);
	while (rc == 0 && (entry = readdir(d))) {
		if (strncmp(entry->d_name, PARTIAL, strlen(PARTIAL)) != 0)
			continue;
		rc = zero_path_join(path, dir, entry->d_name);
		if (rc == 0)
			rc = zero_folder_remove(path);
	}
	closedir(d);
	return rc;
}

static int step_path(char *out, const char *dir, long step)
{
	char name[64];

	zero_checkpoint_name(name, sizeof(name), step);
	return zero_path_join(out, dir, name);
}

/* Removes a checkpoint. Its name says that it is incomplete before anything is removed. */
static int remove_checkpoint(const char *dir, const char *name, long step)
{
	char complete[ZERO_PATH_LEN], partial[ZERO_PATH_LEN], partial_name[64];
	int rc = zero_path_join(complete, dir, name);

	zero_partial_name(partial_name, sizeof(partial_name), step, 0);
	if (rc == 0)
		rc = zero_path_join(partial, dir, partial_name);
	if (rc < 0)
		return rc;
	return rename(complete, partial) < 0 ? zero_system_error("renaming", complete)
					     : zero_folder_remove(partial);
}

int zero_folder_prune(const char *dir, int keep)
{
	struct steps steps;
	char name[64];
	int rc;

	while ((rc = scan(dir, &steps)) == 0 && keep > 0) {
		if (steps.count > keep) {
			zero_checkpoint_name(name, sizeof(name), steps.oldest);
			rc = remove_checkpoint(dir, name, steps.oldest);
		} else if (steps.aside > keep) {
			rc = remove_checkpoint(dir, steps.oldest_aside, 0);
		} else {
			break;
		}
		if (rc < 0)
			break;
	}
	return rc;
}

/* ---- What comes ------------------------------------------------------------------------------ */

/* Renames it to the first name of its kind that does not exist. */
static int put_aside(const char *dir, long step)
{
	char from[ZERO_PATH_LEN], to[ZERO_PATH_LEN], name[64];
	int rc = step_path(from, dir, step);

	for (int i = 0; rc == 0; i++) {
		snprintf(name, sizeof(name), i ? LATER "%09ld.%d" : LATER "%09ld", step, i);
		if ((rc = zero_path_join(to, dir, name)) < 0 || access(to, F_OK) == 0)
			continue;
		return rename(from, to) < 0 ? zero_system_error("renaming", from) : 0;
	}
	return rc;
}

static int put_later_ones_aside(const char *dir, long step)
{
	struct steps steps;
	int rc;

	while ((rc = scan(dir, &steps)) == 0 && steps.newest > step)
		if ((rc = put_aside(dir, steps.newest)) < 0)
			break;
	return rc;
}

int zero_folder_publish(const char *dir, const char *partial, long step)
{
	char complete[ZERO_PATH_LEN];
	struct stat s;
	int rc = step_path(complete, dir, step);

	if (rc == 0)
		rc = put_later_ones_aside(dir, step);
	if (rc < 0)
		return rc;
	if (lstat(complete, &s) < 0 && errno == ENOENT) {
		if (rename(partial, complete) < 0)
			return zero_system_error("renaming", partial);
	} else if (renameat2(AT_FDCWD, partial, AT_FDCWD, complete, RENAME_EXCHANGE) < 0) {
		return kolo_error_set(
			KOLO_ESYS,
			"%s: replacing it: %s; where the file system can't exchange two directories remove it first",
			zero_path_end(complete), strerror(errno));
	}
	if ((rc = zero_dir_sync(dir)) < 0)
		return rc;
	return zero_folder_remove(partial); /* the one that was there before */
}
