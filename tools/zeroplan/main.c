/* zeroplan from start to end: reads the options and the config, plans the settings, and shows
 * them. */
#include "tools/zeroplan/zeroplan.h"

#include "tools/common/gnuplot.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- The run --------------------------------------------------------------------------------- */

static int read_settings(const struct options *o, struct run *r)
{
	struct kolo_zero_model model;
	const char *note;
	int rc;

	kolo_zero_model_init(&model);
	model.nranks = o->nranks;
	model.tensor_size = o->tensor;
	model.pipe_size = o->pipe;
	model.hidden = (size_t)o->dim;
	model.micro_batch = (size_t)o->batch;
	model.accumulation = o->accumulation;
	model.total_steps = 1 << 20; /* what is held and sent does not depend on schedules */
	model.type = o->type == (enum kolo_type)UNSET ? KOLO_F32 : o->type;
	model.device = o->device_memory > 0;
	if ((rc = kolo_zero_settings_read(o->config, &model, &r->settings)) < 0) {
		bool unknown = !o->dim && strstr(kolo_last_error(), "hidden of the model");

		rc = plan_report_failure(rc);
		if (unknown)
			fprintf(stderr, "zeroplan: give hidden as --dim\n");
		return rc;
	}
	for (int i = 0; (note = kolo_zero_settings_note(r->settings, i)); i++)
		fprintf(stderr, "zeroplan: %s: %s\n", o->config, note);
	r->config = r->settings->config;
	r->type = r->settings->type;
	if (r->settings->tensor_size != o->tensor || r->settings->pipe_size != o->pipe) {
		fprintf(stderr, "zeroplan: %s says tensor %d x pipe %d: give --tp %d --pp %d\n",
			o->config, r->settings->tensor_size, r->settings->pipe_size,
			r->settings->tensor_size, r->settings->pipe_size);
		return EXIT_USAGE;
	}
	if (o->type == (enum kolo_type)UNSET || o->type == r->type)
		return EXIT_GOOD;
	fprintf(stderr, "zeroplan: --precision is %s, but %s says %s: leave --precision out\n",
		kolo_type_name(o->type), o->config, kolo_type_name(r->type));
	return EXIT_USAGE;
}

/* What the command line says counts before the config. */
static int take_options(const struct options *o, struct run *r)
{
	struct kolo_zero_config *c = &r->config;

	if (o->optimizer != UNSET)
		c->optimizer = (enum kolo_zero_optimizer)o->optimizer;
	if (!r->settings) {
		kolo_zero_group_init(&r->group, c->optimizer);
		c->groups = &r->group;
		c->ngroups = 1;
	}
	if (o->stage != UNSET && o->stage != ALL_STAGES)
		c->stage = o->stage;
	if (o->accumulation)
		c->accumulation = o->accumulation;
	if (o->at_optimizer != UNSET)
		c->offload_optimizer.place = (enum kolo_zero_place)o->at_optimizer;
	if (o->at_param != UNSET)
		c->offload_param.place = (enum kolo_zero_place)o->at_param;
	if (!isnan(o->offload_ratio))
		c->offload_optimizer.ratio = o->offload_ratio;
	if (o->nvme_path || !c->offload_optimizer.path)
		c->offload_optimizer.path = o->nvme_path ? o->nvme_path : "/tmp";
	if (o->nvme_path || !c->offload_param.path)
		c->offload_param.path = o->nvme_path ? o->nvme_path : "/tmp";
	c->host_budget = o->host_memory;
	if (isnan(o->offload_ratio) || c->offload_optimizer.place != KOLO_ZERO_ON_DEVICE)
		return EXIT_GOOD;
	fprintf(stderr, "zeroplan: --offload-ratio %g: needs --offload-optimizer cpu or nvme\n",
		o->offload_ratio);
	return EXIT_USAGE;
}

/* As zerotrain has it: with a pipeline the config's micro-steps are its micro-batches. */
static int take_pipeline(struct options *o, struct run *r)
{
	bool piped = o->micros || o->scheduled || o->pipe > 1;

	if (r->settings)
		o->batch = r->config.micro_batch < INT_MAX ? (int)r->config.micro_batch : INT_MAX;
	if (!piped)
		return EXIT_GOOD;
	if (o->micros && r->config.accumulation > 1 && r->config.accumulation != o->micros) {
		fprintf(stderr,
			"zeroplan: --micro %d, and %d micro-steps for each update: the micro-batches of a pipeline are these: give one of them\n",
			o->micros, r->config.accumulation);
		return EXIT_USAGE;
	}
	o->micros = o->micros ? o->micros : r->config.accumulation;
	r->config.accumulation = 1;
	r->config.micros = o->micros;
	return EXIT_GOOD;
}

static int open_run(struct options *o, struct run *r)
{
	int rc;

	*r = (struct run){ .options = o, .bandwidths = o->bandwidths };
	kolo_zero_config_init(&r->config);
	r->type = o->type == (enum kolo_type)UNSET ? KOLO_F32 : o->type;
	if (o->config && (rc = read_settings(o, r)))
		return rc;
	if ((rc = take_options(o, r)) || (rc = take_pipeline(o, r)) ||
	    (rc = plan_grid(o, r->config.accumulation, &r->grid)))
		return rc;
	/* It starts processes, which the device's threads would not survive. */
	if (o->measure && (rc = plan_measure(o, &r->config, r->type, &r->bandwidths)))
		return rc;
	if (o->device_memory && (rc = kolo_zero_arena_open(o->device_memory, 0, &r->device)) < 0)
		return plan_report_failure(rc);
	return make_tensors(o, &r->grid, r->type, &r->tensors);
}

static void close_run(struct run *r)
{
	free_tensors(&r->tensors);
	free_grid(&r->grid);
	kolo_zero_device_close(r->device);
	kolo_zero_settings_destroy(r->settings);
}

/* ---- What is shown --------------------------------------------------------------------------- */

static int plan_all(const struct run *r, const struct setting *settings, int n, struct outcome *out)
{
	int rc = EXIT_GOOD;

	for (int i = 0; rc == EXIT_GOOD && i < n; i++)
		rc = plan_setting(r, &settings[i], &out[i]);
	return rc;
}

static bool any_fits(const struct outcome *outcomes, int n)
{
	for (int i = 0; i < n; i++)
		if (outcomes[i].fits)
			return true;
	return false;
}

/* Is any of what is asked a setting that the engine has? */
static bool any_planned(const struct report *report)
{
	for (int i = 0; i < report->nasked; i++)
		if (report->asked[i].status == 0)
			return true;
	return false;
}

static int show(const struct report *report)
{
	const struct options *o = report->run->options;
	int rc;

	if (!any_planned(report)) {
		fprintf(stderr, "zeroplan: %s\n", report->asked[0].reason);
		return EXIT_USAGE;
	}
	(o->json ? print_json : print_text)(stdout, report);
	if (fflush(stdout) != 0 || ferror(stdout)) {
		fprintf(stderr, "zeroplan: the output could not be written: is the disk full?\n");
		return EXIT_FAILED;
	}
	if (o->plot && (rc = draw_plan(report)))
		return rc;
	return any_fits(report->asked, report->nasked) ? EXIT_GOOD : EXIT_WRONG;
}

static int plan_run(const struct run *r)
{
	struct setting asked[ALL_STAGES];
	int nasked = list_asked(r, asked), nfound = list_settings(r, NULL), rc;
	struct setting *settings = calloc((size_t)nfound, sizeof(*settings));
	struct outcome *outcomes = calloc((size_t)(nasked + nfound), sizeof(*outcomes)), *found;
	struct report report = { .run = r, .asked = outcomes, .nasked = nasked, .nfound = nfound };

	if (settings && outcomes) {
		found = outcomes + nasked;
		list_settings(r, settings);
		if ((rc = plan_all(r, asked, nasked, outcomes)) == EXIT_GOOD &&
		    (rc = plan_all(r, settings, nfound, found)) == EXIT_GOOD) {
			sort_outcomes(found, nfound);
			report.found = found;
			for (int i = 0; i < nfound; i++)
				report.nfit += found[i].fits;
			rc = show(&report);
		}
	} else {
		fprintf(stderr, "zeroplan: out of memory for a list of %d settings\n", nfound);
		rc = EXIT_FAILED;
	}
	free(settings);
	free(outcomes);
	return rc;
}

int main(int argc, char **argv)
{
	struct options options;
	struct run run;
	int rc;

	parse_options(argc, argv, &options);
	if (options.plot && !gnuplot_draws(options.plot)) {
		fprintf(stderr, "zeroplan: --plot %s: must be a name that ends in .svg or .png\n",
			options.plot);
		return EXIT_USAGE;
	}
	if (options.plot && gnuplot_look("zeroplan", options.plot))
		return EXIT_FAILED;
	rc = open_run(&options, &run);
	if (rc == EXIT_GOOD)
		rc = plan_run(&run);
	close_run(&run);
	return rc;
}
