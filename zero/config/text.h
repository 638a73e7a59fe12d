/* The resolved config as a text. */
#ifndef ZERO_CONFIG_TEXT_H
#define ZERO_CONFIG_TEXT_H

struct zero_reading;

/* Writes settings->text. Errors: KOLO_ENOMEM. */
int zero_text_make(const struct zero_reading *r);

#endif
