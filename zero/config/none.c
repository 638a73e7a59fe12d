/* kolo_zero_settings_read and _parse in a build without jansson: they refuse. */
#include "zero/config/config.h"

static int refuse(struct kolo_zero_settings **out)
{
	if (out)
		*out = NULL;
	return kolo_error_set(
		KOLO_ENOTSUP,
		"this build of Kolo reads no configs: it lacks the library jansson (package libjansson-dev)");
}

int kolo_zero_settings_read(const char *path, const struct kolo_zero_model *model,
			    struct kolo_zero_settings **out)
{
	(void)path, (void)model;
	return refuse(out);
}

int kolo_zero_settings_parse(const char *text, const struct kolo_zero_model *model,
			     struct kolo_zero_settings **out)
{
	(void)text, (void)model;
	return refuse(out);
}
