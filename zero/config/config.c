/* Settings after they were read: kolo_zero_settings_text, _note, _write and _destroy. This file
 * needs no jansson. */
#include "zero/config/config.h"

#include "zero/base/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void kolo_zero_model_init(struct kolo_zero_model *out)
{
	struct kolo_zero_group group;

	kolo_zero_group_init(&group, KOLO_ZERO_ADAMW);
	*out = (struct kolo_zero_model){
		.nranks = 1,
		.lr = group.lr,
		.beta1 = group.beta1,
		.beta2 = group.beta2,
		.eps = group.eps,
		.weight_decay = group.weight_decay,
		.clip = 1,
		.type = KOLO_F32,
		.ngroups = 1,
	};
}

/* The caller has a pointer to the first member. */
static const struct zero_settings *settings_of(const struct kolo_zero_settings *shown)
{
	return (const struct zero_settings *)shown;
}

const char *kolo_zero_settings_text(const struct kolo_zero_settings *settings)
{
	return settings_of(settings)->text;
}

const char *kolo_zero_settings_note(const struct kolo_zero_settings *settings, int index)
{
	const struct zero_settings *s = settings_of(settings);

	return index >= 0 && index < s->nnotes ? s->notes[index] : NULL;
}

void kolo_zero_settings_destroy(struct kolo_zero_settings *settings)
{
	struct zero_settings *s = (struct zero_settings *)settings;

	if (!s)
		return;
	for (int i = 0; i < s->nnotes; i++)
		free(s->notes[i]);
	free(s->notes);
	free(s->shown.groups);
	free(s->optimizer_path);
	free(s->param_path);
	free(s->csv_folder);
	free(s->csv_job);
	free(s->csv_path);
	free(s->jsonl_path);
	free(s->text);
	free(s);
}

int kolo_zero_settings_write(const struct kolo_zero_settings *settings, const char *path)
{
	char beside[ZERO_PATH_LEN];
	const char *text;
	int rc;

	if (!settings || !path)
		return kolo_error_set(KOLO_EINVAL, "kolo_zero_settings_write: %s is NULL",
				      settings ? "path" : "settings");
	/* The name has the thread's number, so all ranks may write the same file at the same
	 * time. */
	if (snprintf(beside, sizeof(beside), "%s.%ld.tmp", path, (long)gettid()) >=
	    (int)sizeof(beside))
		return kolo_error_set(KOLO_EINVAL, "%.60s...: a path of more than %d bytes", path,
				      ZERO_PATH_LEN - 1);
	text = settings_of(settings)->text;
	rc = zero_file_create(beside, text, strlen(text), strlen(text), true);
	if (rc == 0)
		rc = zero_file_publish(beside, path);
	if (rc < 0)
		unlink(beside);
	return rc;
}
