/* Lists of texts, which end with NULL as argv does. */
#ifndef TOOLS_RINGRUN_BASE_TEXTS_H
#define TOOLS_RINGRUN_BASE_TEXTS_H

/* Appends a text to the list, which is NULL if it is empty. Leaves the process if there is no
 * memory. */
__attribute__((format(printf, 2, 3))) void texts_add(char ***list, const char *fmt, ...);

/* Frees the list and its texts. NULL is allowed. */
void texts_free(char **list);

#endif
