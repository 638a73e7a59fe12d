/* Waiting for a request, and moving messages on in between. */
#ifndef COMM_MAIL_WAIT_H
#define COMM_MAIL_WAIT_H

#include "comm/mail/mail.h"

/* Moves messages on as far as it can without blocking. A failure is kept for the next wait. */
void ko_mail_push(struct kolo_mailbox *m);

#endif
